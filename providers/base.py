"""What a provider is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from llama_compat.errors import unsupported_capability
from llama_compat.exchange import OpenAIReply, OpenAIRequest
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    StreamEvent,
)


class ProviderConfig(BaseModel):
    """The settings that every provider has; a provider's own are a subclass of this.

    Subclasses import nothing heavy: a template is checked with them alone.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    unsupported: Literal["refuse", "drop"] = "refuse"
    """What to do with a parameter that the provider can't honour."""


@dataclass(frozen=True, slots=True)
class ProviderModel:
    """A model that the template asks a provider for: the provider's own name, and its context."""

    name: str
    context_length: int | None = None


class ProviderStartError(Exception):
    """The provider can't serve; the message is one sentence with the command that mends it."""


class Provider:
    """Offers models and answers requests, in one or both of two ways.

    It speaks OpenAI upstream: it overrides `openai_completion`, `openai_chat_completion`,
    `openai_embeddings`. Or it speaks the vocabulary: it overrides `completion`, `chat_completion`,
    and the mixins of `llama_compat.mixins` make the OpenAI calls of them.

    Args:
        provider_id: the id that the template gives it.
        config: its validated settings, an instance of `Config`.
        models: the models that the template wants from it.
    """

    Config: ClassVar[type[ProviderConfig]] = ProviderConfig

    parameters: ClassVar[frozenset[str]] = frozenset()
    """OpenAI's names of the sampling and other parameters that the vocabulary calls honour; those
    that every request has (model, messages, prompt, stream, n, ...) are not listed."""

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        self.id = provider_id
        self.config = config
        self.models = tuple(models)

    async def start(self) -> None:
        """Open what is held while the server runs: sessions, models.

        Raises:
            ProviderStartError: something that a person has to mend.
        """

    async def stop(self) -> None:
        """Close it all again; running requests have ended before."""

    def unsupported_values(self, body: Mapping[str, Any]) -> Mapping[str, str]:
        """The `parameters` of the request `body` that are honoured, but not with this value: why.

        Its `model` is the provider's own name.
        They are refused, or dropped where the template says so, like those that are never honoured.
        """
        return {}

    def context_length(self, model: str) -> int | None:
        """How many tokens `model` (the provider's name) holds, if known."""
        for offered in self.models:
            if offered.name == model:
                return offered.context_length
        return None

    async def discovered_models(self) -> Sequence[str]:
        """The models that the vendor itself lists, by its own names; none unless asked to look."""
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

    # OpenAI upstream ------------------------------------------------------------------------------

    async def openai_completion(self, request: OpenAIRequest) -> OpenAIReply:
        """Answer `POST /completions`."""
        raise unsupported_capability(self.id, "completions")

    async def openai_chat_completion(self, request: OpenAIRequest) -> OpenAIReply:
        """Answer `POST /chat/completions`."""
        raise unsupported_capability(self.id, "chat completions")

    async def openai_embeddings(self, request: OpenAIRequest) -> OpenAIReply:
        """Answer `POST /embeddings`."""
        raise unsupported_capability(self.id, "embeddings")

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
