"""What was sent to one target, as far as its cache may hold it still."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict

from routing.policy.prefix.chain import Chain


class SentPrefixes:
    """The blocks of the prompts that one target was sent, and when each was last.

    Whoever has a block has those before it: the last blocks of a prompt are forgotten first, as an
    engine does that keeps what was used last. It is a guess, as nobody asks the engine, but one
    that needs nothing of it.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        # In the order of the times, and within a prompt its first block last.
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def held(self, chain: Chain, since: float) -> int:
        """How many blocks at the beginning of `chain` were sent there at `since` or later."""
        if not chain or self.at(chain[0]) < since:
            return 0
        return bisect_left(chain, True, lo=1, key=lambda block: self.at(block) < since)

    def add(self, chain: Chain, now: float, since: float, most: int) -> None:
        """A prompt is sent there.

        Args:
            chain: of the prompt.
            now: when.
            since: what was not sent again since then is forgotten.
            most: so many blocks are remembered.
        """
        seen = self._seen
        for block in reversed(chain):
            seen[block] = now
            seen.move_to_end(block)
        while len(seen) > most or (seen and next(iter(seen.values())) < since):
            seen.popitem(last=False)

    def at(self, block: bytes) -> float:
        """When a block was sent there last; before all times if it was not."""
        return self._seen.get(block, -math.inf)
