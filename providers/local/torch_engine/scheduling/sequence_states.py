"""The states of sequences at the ends of blocks, of models whose layers keep one of each sequence.

Where later sequences may go on, a copy of a state is kept; and a sequence goes back to the one that
it had before guesses that were wrong.
"""

from __future__ import annotations

from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.state_slots import Save, StateSlots
from providers.local.torch_engine.scheduling.step import Chunk


class SequenceStates:
    """What a sequence's state goes through from its admission to its end.

    Args:
        slots: who has which.
        block_size: of the KV cache; states are kept at the ends of its blocks.
        are_kept: whether what was computed is looked for and kept.
    """

    def __init__(self, slots: StateSlots, block_size: int, *, are_kept: bool) -> None:
        self._slots = slots
        self._block_size = block_size
        self._are_kept = are_kept

    def reach(self, sequence: TorchSequence, blocks: int) -> int:
        """How many of the first `blocks` blocks, that the cache has, it can go on behind."""
        size, found = self._block_size, blocks
        while blocks and not self._slots.is_kept(sequence.block_hash(blocks - 1, size)):
            blocks -= 1
        # At the end of what it begins with, for the same once more and what goes on from there; and
        # where its blocks were known already, since others began like that.
        ends = {found, (len(sequence.token_ids) - 1) // size}
        sequence.save_after = tuple(end * size for end in sorted(ends) if end > blocks)
        return blocks

    def begin(self, sequence: TorchSequence, blocks: int) -> None:
        """A sequence begins to run, behind the first so many of its blocks."""
        key = sequence.block_hash(blocks - 1, self._block_size) if blocks else None
        sequence.state = self._slots.begin(key)

    def tried(self, first: int, count: int) -> tuple[int, ...]:
        """See `StateSlots.tried`."""
        return self._slots.tried(first, count)

    def save(self, chunk: Chunk) -> None:
        """Have copies made of the states that a chunk comes to."""
        if not self._are_kept:
            return
        sequence, size = chunk.sequence, self._block_size
        start, end = sequence.computed, sequence.computed + chunk.tokens
        known = len(sequence.token_ids) - sequence.awaits_token
        at = {after: False for after in sequence.save_after if start < after <= end}
        # And of its reply, where that is now.
        if chunk.tokens == 1 and end % size == 0:
            at.setdefault(end, True)
        for after, follows in at.items():
            if after <= known:
                key = sequence.block_hash(after // size - 1, size)
                if self._slots.is_kept(key):
                    continue
            slot = self._slots.reserve()
            if slot is not None:
                sequence.saves.append(Save(after, slot, follows))

    def keep(self, sequence: TorchSequence) -> None:
        """Keep the copies that were made of a sequence's state, as far as its tokens are known."""
        size = self._block_size
        known = len(sequence.token_ids) - sequence.awaits_token
        for save in list(sequence.saves):
            if save.tokens > min(known, sequence.computed):
                continue
            sequence.saves.remove(save)
            key = sequence.block_hash(save.tokens // size - 1, size)
            is_new = self._slots.keep(save.slot, key)
            if save.follows:
                if sequence.followed is not None:
                    self._slots.forget(sequence.followed)
                sequence.followed = key if is_new else None

    def go_back(self, chunk: Chunk, right: int) -> None:
        """Make a sequence's state that behind the first so many guesses, which were right; a copy
        is kept where a block of its reply was full with one of them."""
        sequence, size = chunk.sequence, self._block_size
        assert sequence.state is not None
        states, slots = self._slots.states, (*chunk.tried, sequence.state)
        end = (sequence.computed + right) // size * size
        if self._are_kept and end > sequence.computed:
            slot = self._slots.reserve()
            if slot is not None:
                states.copy(slots[end - sequence.computed], slot)
                sequence.saves.append(Save(end, slot, follows=True))
        if right < len(chunk.guessed):
            states.copy(chunk.tried[right], sequence.state)

    def distrust(self, sequence: TorchSequence) -> None:
        """Nobody may go on from a state of `sequence`."""
        for key in sequence.hashes:
            self._slots.forget(key)

    def end(self, sequence: TorchSequence) -> None:
        """A sequence does not run any more."""
        if sequence.state is None:
            return
        self._slots.end(sequence.state)
        sequence.state = None
        for save in sequence.saves:
            self._slots.give_back(save.slot)
        sequence.saves.clear()
