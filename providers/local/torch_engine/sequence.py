"""One choice that is being generated."""

from __future__ import annotations

import hashlib
import random
import secrets
import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from llama_compat.errors import APIError
from providers.local.engine import Generation, Output, TokenScores

if TYPE_CHECKING:
    from providers.local.torch_engine.sampler import TokenCounts

Deliver = Callable[[Output | APIError], None]


class Sequence:
    """The tokens of a generation, and how far the model has come with them.

    Args:
        generation: what is asked.
        deliver: takes the outputs and, at most once and last, the error.

    Attributes:
        token_ids: the prompt's, then those generated.
        computed: how many of them have their keys and values in the cache.
        blocks: the cache's blocks that hold them, in order.
        hashes: of the full blocks, as far as they were asked for.
        cached_tokens: of the prompt, found in the cache at the first attempt; None before it.
        started: when it came, on the monotonic clock.
        ended: the engine is through with it, one way or the other.
        random: where its random numbers come from; nobody else's.
        prompt_scores: of the prompt's tokens but the first, where they are wanted.
        counts: of its tokens, kept by the sampler where penalties need them.
    """

    def __init__(self, generation: Generation, deliver: Deliver) -> None:
        self.generation = generation
        self.deliver = deliver
        self.token_ids = list(generation.prompt_ids)
        self.computed = 0
        self.blocks: list[int] = []
        self.hashes: list[bytes] = []
        self.cached_tokens: int | None = None
        self.ended = False
        self.started = time.monotonic()
        seed = generation.sampling.seed
        # Random takes a number and its negative for the same seed.
        self.random = random.Random(secrets.randbits(64) if seed is None else seed % 2**64)
        self.prompt_scores: list[TokenScores] = []
        self.counts: TokenCounts | None = None

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prompt has."""
        return len(self.generation.prompt_ids)

    @property
    def completion_tokens(self) -> int:
        """How many tokens were generated."""
        return len(self.token_ids) - self.prompt_tokens

    @property
    def uncomputed(self) -> int:
        """How many tokens the model has not seen yet; it is 1 while decoding."""
        return len(self.token_ids) - self.computed

    @property
    def scores_prompt(self) -> bool:
        """Whether the next forward pass has to give the logits of all its tokens."""
        return self.generation.prompt_logprobs and len(self.prompt_scores) < self.prompt_tokens - 1

    def block_hash(self, index: int, block_size: int) -> bytes:
        """What the full block `index` is known by: its tokens and all those before it."""
        while len(self.hashes) <= index:
            salt = self.generation.sampling.cache_salt or ""
            before = self.hashes[-1] if self.hashes else salt.encode()
            start = len(self.hashes) * block_size
            tokens = array("q", self.token_ids[start : start + block_size])
            self.hashes.append(hashlib.blake2b(before + tokens.tobytes(), digest_size=16).digest())
        return self.hashes[index]
