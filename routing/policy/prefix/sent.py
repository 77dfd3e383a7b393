"""What one target has of prompts: what it says that it holds, and what was sent to it.

What was sent there is a guess: nobody knows what the cache has kept of it, nor what other gateways
have sent. An engine that tells (`llama_compat.prefixes.held`) makes it knowledge, block by block:
what it says that it holds is held, however long ago it was sent and by whom; what it says that it
has removed is gone. What it was sent and has not computed yet counts as sent, so that those who ask
for the same at the same time meet.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from llama_compat.prefixes.chain import Chain
from llama_compat.prefixes.held import MOST_BLOCKS as MOST_HELD
from llama_compat.prefixes.held import CacheNews, blocks_in

TOLD_AGAIN_SECONDS = 10.0
"""What was sent again sooner than that is no news to other gateways."""

MOST_NEWS = 65_536
"""So many blocks wait to be told to them."""


class SentPrefixes:
    """The blocks of the prompts that one target was sent, and when each was last; those first of
    which the target itself has told.

    Whoever has a block has those before it: the last blocks of a prompt are forgotten first, as an
    engine does that keeps what was used last.

    Attributes:
        is_told: whether the target tells what it holds.
    """

    __slots__ = ("_held", "_news", "_seen", "is_told")

    def __init__(self) -> None:
        self.is_told = False
        self._held: dict[bytes, float] = {}
        self._news: list[bytes] | None = None
        # In the order of the times, and within a prompt its first block last.
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen) + len(self._held)

    @property
    def told(self) -> int | None:
        """How many blocks it says that it holds; None where it tells nothing."""
        return len(self._held) if self.is_told else None

    def held(self, chain: Chain, since: float) -> int:
        """How many blocks at the beginning of `chain` it holds, or was sent at `since` or later."""
        held, seen = self._held, self._seen

        def is_missing(block: bytes) -> bool:
            return block not in held and seen.get(block, -math.inf) < since

        if not chain or is_missing(chain[0]):
            return 0
        return bisect_left(chain, True, lo=1, key=is_missing)

    def add(self, chain: Chain, now: float, since: float, most: int) -> None:
        """A prompt is sent there.

        Args:
            chain: of the prompt.
            now: when.
            since: what was not sent again since then is forgotten.
            most: so many blocks are remembered.
        """
        seen, held, news = self._seen, self._held, self._news
        if news is not None and len(news) < MOST_NEWS:
            old = now - TOLD_AGAIN_SECONDS
            news += [block for block in reversed(chain) if self.at(block) < old]
        for block in reversed(chain):
            if block in held:
                held[block] = now
            else:
                seen[block] = now
                seen.move_to_end(block)
        while len(seen) > most or (seen and next(iter(seen.values())) < since):
            seen.popitem(last=False)

    def at(self, block: bytes) -> float:
        """When a block was sent there last, or told of; before all times if it was neither."""
        found = self._held.get(block)
        return self._seen.get(block, -math.inf) if found is None else found

    # What the target tells itself -----------------------------------------------------------------

    def tells(self, news: CacheNews, now: float) -> None:
        """It has told what its cache holds."""
        self.is_told = True
        held, seen = self._held, self._seen
        stored = blocks_in(news.stored)
        if news.is_all:
            # What it told of before and does not any more is gone; what it was sent may come yet.
            held = self._held = {block: self.at(block) for block in stored if block in held}
        for block in blocks_in(news.removed):
            held.pop(block, None)
            seen.pop(block, None)
        for block in stored[: max(0, MOST_HELD - len(held))]:
            sent = seen.pop(block, None)
            if block not in held:
                held[block] = now if sent is None else sent

    # What several gateways tell each other --------------------------------------------------------

    def news_from_now(self, most: int) -> Sequence[bytes]:
        """The blocks that were sent there since the last call, `most` of them; the first call has
        them noted from now on."""
        news = self._news or []
        self._news = news[most:]
        return news[:most]

    def latest(self, most: int) -> Sequence[bytes]:
        """The blocks that were sent there last, the latest at the end."""
        return list(islice(reversed(self._seen), most))[::-1]

    def learn(self, blocks: Iterable[bytes], now: float) -> None:
        """Another gateway has sent these there, the last block of a prompt first. What is older
        than is kept goes with the next `add`."""
        for block in blocks:
            self._seen[block] = now
            self._seen.move_to_end(block)
        while len(self._seen) > MOST_NEWS:
            self._seen.popitem(last=False)
