"""A sequence in the paged KV cache."""

from __future__ import annotations

import hashlib
import random
import secrets
from array import array
from typing import TYPE_CHECKING

from providers.local import sequence as shared
from providers.local.engine import Generation

if TYPE_CHECKING:
    from providers.local.torch_engine.sampler import TokenCounts


class Sequence(shared.Sequence):
    """A generation, and where it is in the KV cache.

    Attributes:
        blocks: the cache's blocks that hold its tokens, in order.
        hashes: of the full blocks, as far as they were asked for.
        random: where its random numbers come from; nobody else's.
        counts: of its tokens, kept by the sampler where penalties need them.
    """

    def __init__(self, generation: Generation, deliver: shared.Deliver) -> None:
        super().__init__(generation, deliver)
        self.blocks: list[int] = []
        self.hashes: list[bytes] = []
        seed = generation.sampling.seed
        # Random takes a number and its negative for the same seed.
        self.random = random.Random(secrets.randbits(64) if seed is None else seed % 2**64)
        self.counts: TokenCounts | None = None

    @property
    def awaits_token(self) -> bool:
        """Whether its last token stands for one that a step has yet to choose.

        Such a token is -1 less the place that the sequence has among those that the step chooses
        for.
        """
        return self.token_ids[-1] < 0

    @property
    def awaits_last(self) -> bool:
        """Whether the token that it awaits is the last that was asked for."""
        return self.awaits_token and self.completion_tokens == self.generation.max_tokens

    def block_hash(self, index: int, block_size: int) -> bytes:
        """What the full block `index` is known by: its tokens and all those before it."""
        while len(self.hashes) <= index:
            salt = self.generation.sampling.cache_salt or ""
            before = self.hashes[-1] if self.hashes else salt.encode()
            start = len(self.hashes) * block_size
            tokens = array("q", self.token_ids[start : start + block_size])
            self.hashes.append(hashlib.blake2b(before + tokens.tobytes(), digest_size=16).digest())
        return self.hashes[index]
