"""One choice that is being generated, as every engine sees it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from llama_compat.errors import APIError
from providers.local.draw import DrawKey, draw_key
from providers.local.engine import Generation, Output, TokenScores

Deliver = Callable[[Output | APIError], None]


class LocalSequence:
    """The tokens of a generation, and how far the model has come with them.

    Args:
        generation: what is asked.
        deliver: takes the outputs and, at most once and last, the error.

    Attributes:
        token_ids: the prompt's, then those generated.
        computed: how many of them have their keys and values in the cache.
        cached_tokens: of the prompt, found in the cache at the first attempt; None before it.
        started: when it came, on the monotonic clock.
        ended: the engine is through with it, one way or the other.
        prompt_scores: of the prompt's tokens but the first, where they are wanted.
        seed: of what is drawn; by chance, where none was given.
    """

    def __init__(self, generation: Generation, deliver: Deliver) -> None:
        self.generation = generation
        self.deliver = deliver
        self.token_ids = list(generation.prompt_ids)
        self.computed = 0
        self.cached_tokens: int | None = None
        self.started = time.monotonic()
        self.ended = False
        self.prompt_scores: list[TokenScores] = []
        given = generation.sampling.seed
        self.seed = secrets.randbits(64) if given is None else given

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prompt has."""
        return len(self.generation.prompt_ids)

    @property
    def completion_tokens(self) -> int:
        """How many tokens were generated."""
        return len(self.token_ids) - self.prompt_tokens

    @property
    def draw_key(self) -> DrawKey:
        """Of the draw of its next token: nothing that runs beside it has a part in it."""
        return draw_key(self.seed, self.completion_tokens)

    @property
    def uncomputed(self) -> int:
        """How many tokens the model has not seen yet; it is 1 while decoding."""
        return len(self.token_ids) - self.computed

    @property
    def scores_prompt(self) -> bool:
        """Whether the next forward pass has to give the logits of all its tokens."""
        return self.generation.prompt_logprobs and len(self.prompt_scores) < self.prompt_tokens - 1
