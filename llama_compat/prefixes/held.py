"""Which prompts a KV cache holds, in blocks of their characters, and what is new of that."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from msgspec import Struct

from llama_compat.prefixes.chain import HASH_BYTES

MOST_BLOCKS = 65_536
"""Blocks of characters that are known: 32 MiB of text, some 8 million tokens. Of more, those that
were not asked for again for the longest time are given up."""

MOST_NEWS = 65_536
"""Changes that are remembered for who asks; who has missed more is told all there is."""

BlockOfTokens = bytes
"""What the engine knows a full block of its KV cache by: its tokens and all before them."""


class CacheNews(Struct):
    """What is new of one cache, or all of it.

    Attributes:
        log: which numbers these are: another cache, or the same one started again, has others.
        number: of the last change.
        is_all: whether `stored` is all that there is, rather than what is new.
        stored: the blocks of characters of which every token is in the cache now, one after the
            other, 8 bytes each.
        removed: those of which some token is not any more.
    """

    log: str
    number: int
    is_all: bool
    stored: bytes = b""
    removed: bytes = b""


def blocks_in(joined: bytes) -> Sequence[bytes]:
    """The blocks that `CacheNews` has one after the other."""
    return [joined[at : at + HASH_BYTES] for at in range(0, len(joined), HASH_BYTES)]


class HeldPrompts:
    """The prompts that one KV cache holds; any thread may tell it, and any may ask.

    A block of characters is held while every block of tokens is that it needs. It needs those that
    are full with its own text; what lies in a block with the text after it counts for that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log = os.urandom(6).hex()
        self._number = 0
        self._news: deque[tuple[bytes, bool]] = deque(maxlen=MOST_NEWS)
        self._stored: set[BlockOfTokens] = set()
        # In the order in which they were asked for.
        self._needs: OrderedDict[bytes, Sequence[BlockOfTokens]] = OrderedDict()
        self._needed_by: dict[BlockOfTokens, set[bytes]] = {}
        self._missing: dict[bytes, int] = {}

    def learn(
        self,
        prompt: Iterable[tuple[bytes, Sequence[BlockOfTokens]]],
        is_stored: Callable[[BlockOfTokens], bool] = lambda block: False,
    ) -> None:
        """A prompt came: what each of its blocks of characters needs, at least one.

        Args:
            prompt: its blocks, in their order.
            is_stored: whether a block of tokens is in the cache that nobody has told of.
        """
        with self._lock:
            for block, needs in prompt:
                if self._needs.get(block) == needs:
                    self._needs.move_to_end(block)
                    continue
                self._give_up(block)
                self._needs[block] = needs
                for each in needs:
                    self._needed_by.setdefault(each, set()).add(block)
                    if each not in self._stored and is_stored(each):
                        self._store(each)
                self._missing[block] = sum(each not in self._stored for each in set(needs))
                if not self._missing[block]:
                    self._tell(block, is_held=True)
            while len(self._needs) > MOST_BLOCKS:
                self._give_up(next(iter(self._needs)))

    def knows(self, block: bytes) -> bool:
        """Whether it is known what this block of characters needs."""
        return block in self._needs

    def stored(self, block: BlockOfTokens) -> None:
        """A block of tokens is in the cache."""
        with self._lock:
            self._store(block)

    def removed(self, block: BlockOfTokens) -> None:
        """A block of tokens is not in the cache any more."""
        with self._lock:
            if block in self._stored:
                self._stored.discard(block)
                for each in self._needed_by.get(block, ()):
                    self._missing[each] += 1
                    if self._missing[each] == 1:
                        self._tell(each, is_held=False)

    def cleared(self) -> None:
        """Nothing is in the cache any more, or nobody knows what is."""
        with self._lock:
            self._stored.clear()
            self._log = os.urandom(6).hex()
            self._news.clear()
            self._missing = {block: len(set(needs)) for block, needs in self._needs.items()}

    def news(self, log: str = "", after: int = 0) -> CacheNews:
        """What is new since what the change `after` of `log` was told; all, where that is not
        known (any more)."""
        with self._lock:
            fresh = self._number - after
            if log != self._log or not 0 <= fresh <= len(self._news):
                held = [block for block, missing in self._missing.items() if not missing]
                return CacheNews(self._log, self._number, True, b"".join(held))
            last: dict[bytes, bool] = dict(islice(self._news, len(self._news) - fresh, None))
        stored = b"".join([block for block, is_held in last.items() if is_held])
        removed = b"".join([block for block, is_held in last.items() if not is_held])
        return CacheNews(self._log, after + fresh, False, stored, removed)

    # With the lock --------------------------------------------------------------------------------

    def _store(self, block: BlockOfTokens) -> None:
        if block not in self._stored:
            self._stored.add(block)
            for each in self._needed_by.get(block, ()):
                if each in self._missing:
                    self._missing[each] -= 1
                    if not self._missing[each]:
                        self._tell(each, is_held=True)

    def _give_up(self, block: bytes) -> None:
        needs = self._needs.pop(block, None)
        if needs is None:
            return
        for each in needs:
            needed_by = self._needed_by.get(each)
            if needed_by is not None:
                needed_by.discard(block)
                if not needed_by:
                    del self._needed_by[each]
        if not self._missing.pop(block):
            self._tell(block, is_held=False)

    def _tell(self, block: bytes, *, is_held: bool) -> None:
        self._number += 1
        self._news.append((block, is_held))
