"""What a provider is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import ConfigDict

from llama_compat.catalog.makers import reasoning_family
from llama_compat.dialects.stop_lists import ANY_STOPS, StopBound
from llama_compat.distribution.adapters import AdapterOf
from llama_compat.distribution.residency import ModelStay
from llama_compat.errors import not_offered, unsupported_capability
from llama_compat.exchange import Call, Reply, Target
from llama_compat.fitting.hints import NO_HINTS, HintPlaces
from llama_compat.hosted.vocabulary import WebSearchTool
from llama_compat.prefixes.held import CacheNews, HeldPrompts
from llama_compat.reasoning.recollection import ReasoningRule
from llama_compat.settings.model import TemplateSettings
from llama_compat.tools.names import NameForm
from llama_compat.translation import answer_rerank, answer_token_count
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    RerankRequest,
    RerankResponse,
    StreamEvent,
)

if TYPE_CHECKING:
    from providers.local.engine import Stats
    from providers.local.residency.residency import Residency
    from providers.local.residency.resident import Resident
    from providers.remote.batches.base import VendorBatches


TellOfCache = Callable[[str, str, CacheNews], None]
"""Takes the provider's name for a model, the replica's address (empty for what is none), and what
is new of its cache."""


WAKING_KEEPALIVE_SECONDS = 5.0
"""A stream whose client waits for a model to be loaded, or for a replica to start, is kept alive as
often as that."""


class ProviderConfig(TemplateSettings):
    """The settings that every provider has; a provider's own are a subclass of this.

    Subclasses import nothing heavy: a template is checked with them alone.
    """

    # Some know where their vendor is once all else is read.
    model_config = ConfigDict(frozen=False)

    unsupported: Literal["refuse", "drop", "adapt"] | None = None
    """What to do with a parameter that the provider or its model can't honour: `refuse` the
    request, `drop` the parameter, or `adapt`: say it in another way, leave mere wishes out, and
    refuse the rest. Without it, translated calls are adapted, and relayed ones pass as they are but
    for what the vendor never takes, which is refused."""


@dataclass(frozen=True, slots=True)
class ProviderModel:
    """A model that the template asks a provider for: the provider's own name, the most context that
    any public model of it may have (None: as much as it has), how long it stays in memory, and the
    adapters with which it is offered."""

    name: str
    context_length: int | None = None
    stay: ModelStay = field(default_factory=ModelStay)
    adapters: tuple[AdapterOf, ...] = ()

    @property
    def loaded_as(self) -> tuple[str, int | None]:
        """What decides how it is loaded."""
        return self.name, self.context_length


class ProviderStartError(Exception):
    """The provider can't serve; the message is one sentence with the command that mends it."""


class Provider:
    """Offers models and answers calls, in one or both of two ways.

    It relays the wires that its side speaks itself: `relays` names them, and `relay` passes a call
    on as it came. Or it speaks the vocabulary: it overrides `completion`, `chat_completion`,
    `embed` and `count_tokens`, and the mixins of `llama_compat.mixins` answer any client's API from
    those. `providers.answer` decides between the two.

    Args:
        provider_id: the id that the template gives it.
        config: its validated settings, an instance of `Config`.
        models: the models that the template wants from it.
    """

    Config: ClassVar[type[ProviderConfig]] = ProviderConfig

    parameters: frozenset[str] = frozenset()
    """OpenAI's names of the sampling and other parameters that the vocabulary calls honour; those
    that every request has (model, messages, prompt, stream, n, ...) are not listed."""

    def parameters_of(self, model: str) -> frozenset[str]:
        """Those that it honours of requests for `model`, by its own name, as far as that is known
        before it is asked."""
        return self.parameters

    placeless: frozenset[str] = frozenset()
    """What its API has no place for in messages and tools (`llama_compat.fitting.placeless`)."""

    hint_places: HintPlaces = NO_HINTS
    """What hints its API has a place for (`llama_compat.fitting.hints`)."""

    embedding_parameters: frozenset[str] = frozenset()
    """The same for `embed`."""

    rerank_parameters: frozenset[str] = frozenset()
    """The same for `rerank`, by the names that its APIs have for them."""

    pays_each_choice: bool = False
    """Whether a prompt is read, and paid for, once for each of `n` choices."""

    tool_names: NameForm | None = None
    """The names that its vendor takes for tools; those of a request that it would refuse are told
    in another way. None where it takes any."""

    member_names: NameForm | None = None
    """The same for members of what tools are given."""

    loads_models: bool = False
    """Whether `start` loads the models that the template wants, and can answer from no others."""

    relays: Set[str] = frozenset()
    """The names of the operations (`chat`, `messages`, ...) that are relayed."""

    keeps_responses: bool = True
    """Whether who relays responses, or interactions, knows them again by their ids. Where nobody
    does, those that this server is to keep are translated."""

    model_facts: Mapping[str, Any] = {}
    """What its API makes of every model, whatever the catalogue knows of it: names and values of
    `llama_compat.catalog.facts.Facts`."""

    keepalive_seconds: float | None = None
    """After so long a silence a stream's client is sent something that keeps its connection open;
    None for what its dialect has."""

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        self.id = provider_id
        self.config = config
        self.models = tuple(models)

    def serves(self, config: ProviderConfig, models: Sequence[ProviderModel]) -> bool:
        """Whether a new provider with these settings would be no other than this one, so that this
        one can stay when its server gets another template."""
        same_models = tuple(models) == self.models or not self.loads_models
        return config == self.config and same_models

    def adopt(self, previous: Provider) -> None:
        """Take over what can be used again of `previous`, which runs, has the same id, and is
        stopped after this one has started. Called before `start`."""

    def share_memory(self, residency: Residency) -> None:
        """Have `residency` say which of its models are in memory, if any are in that of this
        process. Called before `start`."""

    def resident(self, model: str) -> Resident | None:
        """What has to be leased while `model` (the provider's name) answers; None where it is
        always there."""
        return None

    def is_adapted(self, model: str) -> bool:
        """Whether `model` (the provider's name) is another one with an adapter."""
        return False

    def has_adapter(self, model: str) -> bool:
        """Whether the adapter of `model`, which `is_adapted`, is in memory now."""
        return False

    async def load_adapter(self, model: str) -> None:
        """Have the adapter of `model`, which `is_adapted`, in memory.

        Raises:
            APIError: 503, it can't be loaded.
        """

    async def unload_adapter(self, model: str) -> None:
        """Let go of the adapter of `model`, which `is_adapted`; its next request loads it again."""

    @classmethod
    def load_ahead(cls) -> None:
        """Begin to load, aside, what `start` imports and takes long. Called in a process that will
        start such a provider, before what else it needs is imported; or not at all."""

    async def start(self) -> None:
        """Open what is held while the server runs: sessions, models.

        Raises:
            ProviderStartError: something that a person has to mend.
        """

    async def stop(self) -> None:
        """Close it all again; running requests have ended before."""

    def hosted_tools(self, wire: str) -> Set[str]:
        """The kinds of tools (`web_search`, `web_fetch`, `file_search`, `mcp`) that the vendor runs
        itself, for calls that are relayed by `wire`."""
        return frozenset()

    def searches_elsewhere(self, call: Call, model: str) -> bool:
        """Whether the vendor does not search the web by the wire of `call`, which asks for that,
        for `model` (the provider's name), although it has that wire."""
        return False

    def calls_elsewhere(self, call: Call, target: Target) -> bool:
        """Whether the vendor does not let the model of `target` call functions by the wire of
        `call`, which offers some, although it has that wire."""
        return False

    def is_seen_to_here(self, call: Call) -> bool:
        """Whether `call` asks for what the vendor can't be told, and this server sees to where it
        puts calls into the vocabulary."""
        return False

    def searches(self, tool: WebSearchTool, request: ChatCompletionRequest) -> bool:
        """Whether the vendor searches the web itself for `request`, which is put into the
        vocabulary, with all that `tool` says of where, for whom and how often."""
        return False

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """The `parameters` of `request` that are honoured, but not with this value: why.

        They are refused, or dropped where the template says so, like those that are never honoured.
        """
        return {}

    def placeless_in(self, request: ChatCompletionRequest) -> Set[str]:
        """What its API has no place for in messages and tools, where it is asked for `request`."""
        return self.placeless

    def stop_bound(self, model: str) -> StopBound:
        """Which stop strings `model` (the provider's name) takes; replies are cut here at the
        others."""
        return ANY_STOPS

    @property
    def wants_reasoning_back(self) -> bool:
        """Whether what its models thought has to come back in turns that call tools."""
        return False

    def reasoning_rule(self, model: str) -> ReasoningRule:
        """What is done about the reasoning of `model` (the provider's name) in such turns."""
        return ReasoningRule(reasoning_family(model))

    def context_length(self, model: str) -> int | None:
        """How many tokens `model` (the provider's name) holds, if known."""
        return None

    def inputs(self, model: str) -> tuple[str, ...] | None:
        """What `model` (the provider's name) reads, of `llama_compat.catalog.facts.INPUTS`; None
        where only the catalogue may know."""
        return None

    def outputs(self, model: str) -> tuple[str, ...] | None:
        """What `model` (the provider's name) gives, in the words of `ModelInfo.output`; None where
        only the catalogue may know."""
        return None

    def discovered_models(self) -> Sequence[str]:
        """The models that the vendor itself listed last, by its own names; none unless asked to
        look."""
        return ()

    async def live_models(self) -> Sequence[str]:
        """The models that the vendor lists when asked right now, by its own names.

        Raises:
            APIError: the vendor can't be asked, or does not answer.
        """
        raise unsupported_capability(self.id, "listing its models")

    def stats(self) -> dict[str, int]:
        """How many requests are `running` and `waiting` in the engine now, for `/health`.

        A provider without an engine of its own counts nothing.
        """
        return {}

    def lost_devices(self) -> Sequence[str]:
        """The devices, such as `cuda:0`, that nothing can be computed on any more until this
        process is started again; for `/health`."""
        return ()

    def batches(self) -> VendorBatches | None:
        """The batch API that its vendor has; None where it has none, or none that is known."""
        return None

    def places(self, model: str) -> Sequence[str] | None:
        """The addresses of the replicas of `model` (the provider's name) that take requests now,
        each a target by itself; None for a provider without replicas."""
        return None

    def when_moved(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have `tell` called whenever `places` has changed, until what is returned is called."""
        return lambda: None

    def replica_stats(self) -> Mapping[tuple[str, str], Stats]:
        """What the engine of each replica does and has done, by its model and its address."""
        return {}

    def held_prompts(self, model: str) -> HeldPrompts | None:
        """Which prompts the KV cache of `model` (the provider's name) holds, of those that came
        since this was first asked for; None where no cache of this process has any, or tells."""
        return None

    def follow_caches(self, tell: TellOfCache) -> Callable[[], None]:
        """Have `tell` called with what caches elsewhere hold, all of it first and then what is new,
        until what is returned is called. A provider whose side tells nobody calls it never."""
        return lambda: None

    def engine_stats(self) -> Mapping[str, Stats]:
        """What each engine of the provider's own does and has done, by its model; for metrics."""
        return {}

    # Calls ----------------------------------------------------------------------------------------

    async def relay(self, call: Call, target: Target) -> Reply:
        """Answer a call of one of the operations in `relays`, passed on as it came."""
        raise unsupported_capability(self.id, f"relaying '{call.operation.name}'")

    async def kept_reply(
        self, wire: str, target: Target, reply_id: str, *, cancel: bool = False
    ) -> Reply:
        """A reply that the vendor has begun, as a call of the operation `wire` asked it to in the
        background, whole and as it is now; with `cancel`, it is to end first.

        Raises:
            APIError: 404, there is none of this id; or whatever went wrong with the vendor.
        """
        raise unsupported_capability(self.id, f"asking for what '{wire}' has begun")

    async def openai_completion(self, call: Call, target: Target) -> Reply:
        """Answer a call that continues prompts."""
        raise unsupported_capability(self.id, "completions")

    async def openai_chat_completion(self, call: Call, target: Target) -> Reply:
        """Answer a call that continues a conversation."""
        raise unsupported_capability(self.id, "chat completions")

    async def openai_embeddings(self, call: Call, target: Target) -> Reply:
        """Answer a call for embeddings."""
        raise unsupported_capability(self.id, "embeddings")

    async def openai_rerank(self, call: Call, target: Target) -> Reply:
        """Answer a call that ranks documents, from `rerank`."""
        return await answer_rerank(self, self.rerank, call, target)

    async def openai_token_count(self, call: Call, target: Target) -> Reply:
        """Answer a call that counts a conversation's tokens, from `count_tokens`."""
        return await answer_token_count(self, self.count_tokens, call, target)

    # The vocabulary -------------------------------------------------------------------------------

    def completion(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Continue a prompt: one `StreamStart`, any number of `StreamProgress`, `StreamComplete`.

        `request.model` is the provider's own name. Closing the generator (`aclose`) cancels the
        generation at once.

        Raises (from the generator):
            APIError: before the first event for a request that can't be served, later for one that
                broke off.
        """
        raise unsupported_capability(self.id, "completions")

    def chat_completion(self, request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message of a conversation; the rest as in `completion`."""
        raise unsupported_capability(self.id, "chat completions")

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Turn texts into vectors.

        Raises:
            APIError: the request can't be served.
        """
        raise unsupported_capability(self.id, "embeddings")

    async def rerank(self, request: RerankRequest) -> RerankResponse:
        """Say how much each document has to do with a query.

        Raises:
            APIError: the request can't be served.
        """
        raise unsupported_capability(self.id, "rerank")

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        """How many tokens the conversation has as a prompt, its tools included.

        Raises:
            APIError: 404, nobody here can tell.
        """
        raise not_offered(self.id, "counting tokens")
