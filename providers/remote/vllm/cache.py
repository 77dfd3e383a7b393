"""One server's KV cache, as its events tell it."""

from __future__ import annotations

from collections.abc import Sequence

from llama_compat.prefixes.held import BlockOfTokens, HeldPrompts
from llama_compat.prefixes.marks import Marks
from providers.remote.vllm.messages import (
    AllRemoved,
    BlocksRemoved,
    BlocksStored,
    EngineHash,
    EventBatch,
    block_after,
    blocks_of,
)

MOST_BLOCKS = 1_000_000
"""Blocks of tokens that are known; a server with more is followed anew from there."""


class ServerCache:
    """What is in it, in the server's words and in those of a gateway.

    Attributes:
        held: the prompts that it holds.
        block_size: tokens in a block; None until it has told of one.
    """

    def __init__(self) -> None:
        self.held = HeldPrompts()
        self.block_size: int | None = None
        self._known: dict[EngineHash, BlockOfTokens] = {}

    def learn(self, marks: Marks, tokens: Sequence[int]) -> None:
        """A prompt goes there.

        Args:
            marks: of its characters.
            tokens: its own.
        """
        size = self.block_size
        if size is None:
            return
        blocks, before, needs = blocks_of(tokens, size), 0, []
        for block, count in marks:
            full = count // size
            if full:
                needs.append((block, tuple(blocks[min(before, full - 1) : full])))
                before = full
        self.held.learn(needs)

    def take(self, batch: EventBatch) -> None:
        """Some more of its events."""
        for event in batch.events:
            match event:
                case BlocksStored():
                    self._store(event)
                case BlocksRemoved():
                    for each in event.blocks:
                        block = self._known.pop(each, None)
                        if block is not None:
                            self.held.removed(block)
                case AllRemoved():
                    self.clear()

    def clear(self) -> None:
        """Nothing is known to be in it."""
        self._known.clear()
        self.held.cleared()

    def _store(self, event: BlocksStored) -> None:
        before = b"" if event.parent is None else self._known.get(event.parent)
        # What nobody has told of the block before can't be told of this one either.
        if before is None or not event.is_plain:
            return
        if event.size != self.block_size:
            if self.block_size is not None:  # another server is at the same place
                self.clear()
                self.held = HeldPrompts()
            self.block_size = event.size
        if len(self._known) > MOST_BLOCKS:
            self.clear()
        for index, each in enumerate(event.blocks):
            tokens = event.tokens[index * event.size : (index + 1) * event.size]
            before = self._known[each] = block_after(before, tokens)
            self.held.stored(before)
