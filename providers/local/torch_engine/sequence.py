"""One choice that is being generated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_compat.errors import APIError
from llama_compat.types import SamplingParams, StreamEvent

if TYPE_CHECKING:
    from transformers import DynamicCache

    from providers.local.torch_engine.reply import Reply
    from providers.local.torch_engine.sampler import Sampler, TokenScores


@dataclass(frozen=True, slots=True)
class Generation:
    """What is asked of the engine; checked already.

    Attributes:
        prompt_ids: the prompt's tokens, at least one.
        sampling: how tokens are chosen.
        max_tokens: how many are generated at most; the prompt and they fit into the context.
        logprobs: how many alternatives are wanted beside each token's log probability, if any is.
        echo: the prompt's text, if the reply begins with it; its log probabilities as well.
        openings: tokens, of which the reply has to begin with one sequence; with none, freely.
        shown_tokens: special tokens that are part of the text.
    """

    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    logprobs: int | None = None
    echo: str | None = None
    openings: tuple[tuple[int, ...], ...] = ()
    shown_tokens: frozenset[int] = frozenset()


class Sequence:
    """The tokens of a generation, and how far the model has come with them.

    Args:
        generation: what is asked.
        deliver: takes the events and, at most once and last, the error; callable from any thread.

    Attributes:
        token_ids: the prompt's, then those generated.
        computed: how many of them have their keys and values in `cache`.
        cancelled: nobody wants the rest.
        cache, sampler, reply: its own, from its first turn on.
        prompt_scores: of the prompt's tokens but the first, where they are wanted.
    """

    def __init__(
        self, generation: Generation, deliver: Callable[[StreamEvent | APIError], None]
    ) -> None:
        self.generation = generation
        self.deliver = deliver
        self.token_ids = list(generation.prompt_ids)
        self.computed = 0
        self.cancelled = False
        self.cache: DynamicCache | None = None
        self.sampler: Sampler | None = None
        self.reply: Reply | None = None
        self.prompt_scores: list[TokenScores] = []

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prompt has."""
        return len(self.generation.prompt_ids)

    @property
    def completion_tokens(self) -> int:
        """How many tokens were generated, the one that ended the reply included."""
        return len(self.token_ids) - self.prompt_tokens

    @property
    def scores_prompt(self) -> bool:
        """Whether the next forward pass has to give the logits of all its tokens."""
        generation = self.generation
        wanted = generation.echo is not None and generation.logprobs is not None
        return wanted and self.computed < self.prompt_tokens

    def release(self) -> None:
        """Let go of all that takes memory."""
        self.cache = self.sampler = self.reply = None
