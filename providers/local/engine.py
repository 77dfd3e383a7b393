"""What an engine in this process is: it takes prompts as token ids and gives tokens.

All that is text (chat templates, tool calls, stop strings) is the business of `LocalProvider`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from llama_compat.prefixes.held import HeldPrompts
from llama_compat.prefixes.marks import Marks
from llama_compat.tools.formats import ToolFormat
from llama_compat.types import (
    EmbeddingRequest,
    EmbeddingResponse,
    RerankRequest,
    RerankResponse,
    SamplingParams,
    StopReason,
)
from providers.local.media.medium import Kind
from providers.local.media.placing import PlacedMedium, Sense

if TYPE_CHECKING:
    from providers.local.replies.detokenizer import Detokenizer


class Tokenizer(Protocol):
    """Text made into tokens, and conversations into text."""

    @property
    def chat_template(self) -> str | None:
        """The source of the model's chat template (of all, if it has several), if it has one."""

    @property
    def control_tokens(self) -> frozenset[str]:
        """How the tokens are written that mean something to the model rather than stand for text:
        those that `encode` would make of a text that spells them out."""

    @property
    def longest_token(self) -> int:
        """The most bytes that one token stands for."""

    @property
    def first_token(self) -> int | None:
        """The token that stands before every text, if the model has one."""

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """The tokens of `text`; special tokens that it spells out are those tokens."""

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        own: Mapping[str, Any] | None = None,
    ) -> str:
        """What the chat template writes, up to where the reply begins; `own` are variables that
        not every template has.

        Raises:
            TemplateBrokenOff: it took too much time or memory.
            RendererClosed: `close` was called.
            Exception: anything else with which it refuses what it was given.
        """

    def close(self) -> None:
        """Break off what is being rendered; the rest goes on to work."""

    def for_grammars(self, vocab_size: int, end_tokens: Sequence[int]) -> Any:
        """The tokenizer as llguidance's `LLTokenizer`.

        Raises:
            ValueError: it is of a kind that llguidance can't read.
        """


class Vocabulary(Protocol):
    """What the token ids of a model stand for."""

    def id_of(self, token: str) -> int | None:
        """The id of the token that is written so, if there is one."""

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a mark for the model, such as an end of turn, and no text."""

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes of one token, perhaps part of a character; a special token's name."""

    def decode(self, token_ids: Sequence[int], shown: Collection[int] = frozenset()) -> str:
        """The text of a whole sequence of tokens, of its special tokens only those in `shown`."""

    def detokenizer(
        self, context: Sequence[int], shown: Collection[int] = frozenset()
    ) -> Detokenizer:
        """A detokenizer for what follows the tokens `context`; special tokens in `shown` are text.

        The others are left out.
        """


@dataclass(frozen=True)
class LocalModel:
    """A model as a provider sees it.

    Attributes:
        name: the provider's name for it.
        tokenizer: its own.
        vocabulary: what the token ids stand for.
        vocab_size: how many token ids the model takes and gives.
        context_length: how many tokens a sequence can have.
        stop_tokens: the tokens that end a reply, and what they say.
        tool_format: how it writes tool calls; None if it can't, or nothing tells.
        defaults: how its makers want it sampled, where a request does not say.
        senses: what it makes of media, by their kind; none if it takes text alone.
    """

    name: str
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    vocab_size: int
    context_length: int
    stop_tokens: Mapping[int, StopReason]
    tool_format: ToolFormat | None
    defaults: SamplingParams = field(default_factory=SamplingParams)
    senses: Mapping[Kind, Sense] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What it reads, in the catalogue's words."""
        return ("text", *self.senses)


class Constraint(Protocol):
    """What the next token of one sequence has to be."""

    def allowed(self) -> Any:
        """A boolean numpy array `[vocab_size]`; None where every token may come.

        It is asked for while the forward pass runs, so in a thread of its own.
        """

    def accept(self, token_id: int) -> None:
        """The token that was chosen."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What is asked of an engine; checked already.

    Attributes:
        prompt_ids: the prompt's tokens, at least one.
        sampling: how tokens are chosen. Its stop strings are not the engine's business.
        max_tokens: how many are generated at most; the prompt and they fit into the context.
        logprobs: how many alternatives are wanted beside each token's log probability, if any is.
        prompt_logprobs: whether the prompt's tokens are scored as well.
        constraint: what the tokens have to be, if they are not free.
        marks: which tokens of the prompt each block of its characters stands for, where somebody
            is told which prompts the cache holds.
        adapter: the source of the one that it is computed with, if that is not the model alone.
        media: in the prompt, in order.
    """

    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    logprobs: int | None = None
    prompt_logprobs: bool = False
    constraint: Constraint | None = None
    marks: Marks = ()
    adapter: str | None = None
    media: tuple[PlacedMedium, ...] = ()


class TokenScores(NamedTuple):
    """The log probability of one token, and of the likeliest at its place (id, log probability)."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class Prefilled(NamedTuple):
    """The prompt was computed.

    `cached_tokens` of it were there from an earlier request; `scores` are those of its tokens but
    the first, where they are wanted.
    """

    cached_tokens: int
    scores: tuple[TokenScores, ...] = ()


class Sampled(NamedTuple):
    """One more token; `scores` where they are wanted."""

    token_id: int
    scores: TokenScores | None = None


class Ended(NamedTuple):
    """The last: why, and the token that ended it, if one did."""

    stop_reason: StopReason
    token_id: int | None = None


Output = Prefilled | Sampled | Ended


@dataclass(slots=True)
class Stats:
    """What an engine is doing and has done, in sequences and in tokens.

    `waiting`, `running` and the blocks of the KV cache are now; the rest counts since the start.
    Each sequence that came ends as one of `finished`, `cancelled` and `failed`. `prompt_tokens` are
    those that were computed, `cached_tokens` those that did not have to be. `guessed_tokens` were
    computed before it was known that they come, as `guessed_right_tokens` of them did. `batched`
    says whether several sequences share a forward pass.
    """

    waiting: int = 0
    running: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    preempted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    guessed_tokens: int = 0
    guessed_right_tokens: int = 0
    steps: int = 0
    used_blocks: int = 0
    total_blocks: int = 0
    batched: bool = True


@runtime_checkable
class Embedder(Protocol):
    """Embeds with one model."""

    @property
    def stats(self) -> Stats:
        """The figures of this moment."""

    def stop(self) -> None:
        """Break off what there is; blocks until it is at rest."""

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """One vector a text.

        Raises:
            APIError: 400 for what the model can't do, 429 where too many wait.
        """


@runtime_checkable
class Reranker(Protocol):
    """Says with one model how much texts have to do with a query."""

    @property
    def stats(self) -> Stats:
        """The figures of this moment."""

    def stop(self) -> None:
        """Break off what there is; blocks until it is at rest."""

    async def rerank(self, request: RerankRequest) -> RerankResponse:
        """The documents, the best one first.

        Raises:
            APIError: 400 for what the model can't do, 429 where too many wait.
        """


class Engine(Protocol):
    """Generates with one model."""

    @property
    def model(self) -> LocalModel:
        """The model."""

    @property
    def stats(self) -> Stats:
        """The figures of this moment."""

    def stop(self) -> None:
        """Break off what there is with an error; blocks until the engine is at rest."""

    def held_prompts(self) -> HeldPrompts | None:
        """Which prompts its cache holds, of those that came since this was first asked for; None
        where it keeps none, or can't tell."""

    def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Output], None]:
        """`Prefilled`, any number of `Sampled`, `Ended`, as many at once as there are.

        Closing the generator cancels the generation before the engine's next step.

        Raises (from the generator):
            APIError: 429 where too many wait, 500 where the model failed, 503 where the memory was
                not enough or the engine was stopped.
        """


@runtime_checkable
class AdaptableEngine(Protocol):
    """An engine whose model can be adapted while it runs, for each generation by itself."""

    @property
    def adapters(self) -> Collection[str]:
        """The sources of those that are loaded."""

    def load_adapter(self, source: str) -> None:
        """Load an adapter, which generations may name from then on; blocks until that is done.

        Args:
            source: as a template names it.

        Raises:
            ProviderStartError: it is not there, not supported, or for another model.
        """

    def unload_adapter(self, source: str) -> None:
        """Let go of an adapter; what runs with it goes on to its end."""


class ParkedModel(Protocol):
    """A model whose engine was stopped, and whose weights wait in main memory."""

    @property
    def size(self) -> int:
        """How many bytes of it they take."""

    def reopened(self) -> Engine | Embedder | Reranker:
        """An engine that runs, with the same weights on their device; blocks until it does. It is
        asked for once.

        Raises:
            ProviderStartError: the device has no room.
        """

    def close(self) -> None:
        """Let go of the weights, of which nobody wants to hear any more."""


@runtime_checkable
class ParkableEngine(Protocol):
    """An engine whose weights can wait in main memory, where they are elsewhere."""

    @property
    def parked_bytes(self) -> int:
        """How many bytes of it they would take; 0 where they can't wait there."""

    def parked(self) -> ParkedModel:
        """Its model, with its weights in main memory, where `parked_bytes` is not 0; the engine was
        stopped, and is of no use any more. Blocks until that is done.

        Raises:
            RuntimeError: the main memory is not enough.
        """
