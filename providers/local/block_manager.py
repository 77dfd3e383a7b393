"""The KV cache's memory: who has which block, and what blocks hold that may be needed again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from llama_compat.prefixes.held import HeldPrompts
from llama_compat.prefixes.marks import Marks

BLOCK_SIZE = 16
"""Tokens in a block of a model's KV cache."""


class BlockManager:
    """Gives out blocks of the KV cache and takes them back.

    A full block can be registered under the hash of its tokens and of all before them. It is then
    shared by every sequence that begins so, and stays when nobody uses it any more, until its
    memory is needed: the one that was not used for the longest time goes first.

    Args:
        total: how many blocks there are.
        block_size: tokens in each.

    Attributes:
        held: is told what is stored and what is removed, if somebody wants to know which prompts
            there are.
        forgotten: is told what is removed, if something else is kept with it.
    """

    def __init__(self, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self.held: HeldPrompts | None = None
        self.forgotten: Callable[[bytes], None] | None = None
        self._references = [0] * total
        self._hashes: list[bytes | None] = [None] * total
        self._by_hash: dict[bytes, int] = {}
        self._empty = OrderedDict.fromkeys(range(total))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._next_start = 0

    @property
    def available(self) -> int:
        """How many blocks can be given out."""
        return len(self._empty) + len(self._cached)

    @property
    def used(self) -> int:
        """How many blocks somebody holds."""
        return self.total - self.available

    def blocks_for(self, tokens: int) -> int:
        """How many blocks hold so many tokens."""
        return -(-tokens // self.block_size)

    def find(self, block_hash: bytes) -> int | None:
        """The block with this content, if there is one."""
        return self._by_hash.get(block_hash)

    def share(self, block: int) -> None:
        """One more sequence uses a block that was found."""
        self._references[block] += 1
        self._cached.pop(block, None)

    def allocate(self, *, after: int | None = None, span: int = 1) -> int | None:
        """A block of one's own; None if there is none left.

        Args:
            after: the sequence's block before it: its neighbour is taken if that is empty, since
                blocks side by side can be read without being gathered.
            span: for a sequence's first block, how many it may come to need.
        """
        if after is None:
            wanted = self._next_start
            self._next_start = (wanted + span) % self.total
        else:
            wanted = after + 1
        if wanted in self._empty:
            del self._empty[wanted]
            block = wanted
        elif self._empty:
            block, _ = self._empty.popitem(last=False)
        elif self._cached:
            block, _ = self._cached.popitem(last=False)
            self._forget(block)
        else:
            return None
        self._references[block] = 1
        return block

    def release(self, blocks: Iterable[int]) -> None:
        """A sequence gives its blocks back, which it lists in their order."""
        # The last first, since the first ones are the likeliest to be a prompt of somebody else.
        for block in reversed(list(blocks)):
            self._references[block] -= 1
            if self._references[block] == 0:
                (self._empty if self._hashes[block] is None else self._cached)[block] = None

    def register(self, block: int, block_hash: bytes) -> bool:
        """Make a full block known by its content; False if another one with it is known."""
        if self._hashes[block] is not None or block_hash in self._by_hash:
            return False
        self._hashes[block] = block_hash
        self._by_hash[block_hash] = block
        if self.held is not None:
            self.held.stored(block_hash)
        return True

    def unregister(self, blocks: Iterable[int]) -> None:
        """Blocks do not hold what they were registered for."""
        for block in blocks:
            self._forget(block)
            if block in self._cached:
                del self._cached[block]
                self._empty[block] = None

    def _forget(self, block: int) -> None:
        block_hash = self._hashes[block]
        if block_hash is not None:
            del self._by_hash[block_hash]
            self._hashes[block] = None
            if self.held is not None:
                self.held.removed(block_hash)
            if self.forgotten is not None:
                self.forgotten(block_hash)

    def note(self, marks: Marks, hash_of: Callable[[int], bytes]) -> None:
        """A prompt was computed.

        Args:
            marks: of its characters.
            hash_of: what its full block of this number is known by.
        """
        if self.held is None or not marks:
            return
        needs, before = [], 0
        for block, tokens in marks:
            full = tokens // self.block_size
            if full:
                # One that ends in the same block of tokens as the one before it needs that, too.
                first = min(before, full - 1)
                needs.append((block, tuple(map(hash_of, range(first, full)))))
                before = full
        self.held.learn(needs, self._by_hash.__contains__)
