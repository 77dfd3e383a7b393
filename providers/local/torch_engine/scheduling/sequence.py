"""A sequence in the paged KV cache."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from providers.local.engine import Generation
from providers.local.sequence import Deliver, LocalSequence
from providers.local.torch_engine.media.in_sequence import SequenceMedia
from providers.local.torch_engine.scheduling.speculation import Guesses
from providers.local.torch_engine.scheduling.state_slots import Save

if TYPE_CHECKING:
    from providers.local.torch_engine.adapters.low_rank import TorchAdapter
    from providers.local.torch_engine.media.sense import TorchMedium
    from providers.local.torch_engine.scheduling.sampler import TokenCounts


class TorchSequence(LocalSequence):
    """A generation, and where it is in the KV cache.

    Attributes:
        blocks: the cache's blocks that hold its tokens, in order.
        hashes: of the full blocks, as far as they were asked for.
        turns_from: the row of the rotations that its first token turns by; see `LongRope`.
        counts: of its tokens, kept by the sampler where penalties need them.
        guesses: of what comes next, where the engine reads them off the sequence itself.
        adapter: what it is computed with besides the model's own weights.
        is_long: whether what it began with takes more than a step.
        media: in its prompt; None if there are none.
        state: the slot of its state while it runs, where the model's layers have one.
        save_after: after how many tokens copies of that are to be made.
        saves: those that were begun, until their tokens are known.
        followed: what the last copy of its reply is known by.
        prefilled: whether it was told that its prompt is computed.
    """

    def __init__(
        self,
        generation: Generation,
        deliver: Deliver,
        adapter: TorchAdapter | None = None,
        media: Sequence[TorchMedium] = (),
    ) -> None:
        super().__init__(generation, deliver)
        self.adapter = adapter
        self.media = SequenceMedia(media, self.prompt_tokens) if media else None
        self.blocks: list[int] = []
        self.hashes: list[bytes] = []
        self.turns_from = 0
        self.counts: TokenCounts | None = None
        self.guesses: Guesses | None = None
        self.is_long = False
        self.state: int | None = None
        self.save_after: tuple[int, ...] = ()
        self.saves: list[Save] = []
        self.followed: bytes | None = None
        self.prefilled = False

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

    def turn_from(self, row: int) -> None:
        """Turn by the rotations from `row` on; nothing of it may be in the cache."""
        if row != self.turns_from:
            self.turns_from = row
            self.hashes.clear()

    def block_hash(self, index: int, block_size: int) -> bytes:
        """What the full block `index` is known by: its tokens and all those before it.

        And what they turn by, and the adapter, of which their keys tell; and the media that
        tokens stand for, which are the same for all of a kind.
        """
        while len(self.hashes) <= index:
            before = self.hashes[-1] if self.hashes else self._root()
            start = len(self.hashes) * block_size
            if self.media is not None:
                shown = self.media.key(start, start + block_size)
                before = _hash(before + shown, b"media") if shown else before
            tokens = array("q", [self.turns_from, *self.token_ids[start : start + block_size]])
            self.hashes.append(_hash(before + tokens.tobytes(), b"block"))
        return self.hashes[index]

    def _root(self) -> bytes:
        """What stands before its first block."""
        salt = self.generation.sampling.cache_salt
        root = b"" if salt is None else _hash(salt.encode("utf-8", "surrogatepass"), b"cache_salt")
        return root if self.adapter is None else _hash(root + self.adapter.key, b"adapter")


def _hash(data: bytes, kind: bytes) -> bytes:
    """Apart by `kind`: what a client may choose is never taken for what was computed."""
    return hashlib.blake2b(data, digest_size=16, person=kind).digest()
