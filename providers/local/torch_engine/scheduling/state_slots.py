"""Who has which state, of models whose layers keep one of each sequence.

A sequence that runs has one, which changes with each of its tokens. Copies are kept of where later
ones may go on: each is known by the tokens that it came of, as blocks of the KV cache are, and goes
when the block does that holds the last of them, since one is of no use without the other.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import NamedTuple

from providers.local.torch_engine.model.recurrent.states import StatePool


class Save(NamedTuple):
    """A copy of a sequence's state that a step makes.

    Attributes:
        tokens: how many of the sequence it comes of.
        slot: where it goes.
        follows: whether it takes the place of the one before it.
    """

    tokens: int
    slot: int
    follows: bool


class StateSlots:
    """Gives out slots of states and takes them back.

    Args:
        states: of all sequences.
        sequences: how many run at most: the first so many slots are theirs, and those behind them
            keep copies.
        tried: how many slots, the last, are for the length of a step that has guesses.
    """

    def __init__(self, states: StatePool, sequences: int, tried: int = 0) -> None:
        self.states = states
        kept = states.slots - tried
        self._free = list(range(sequences))
        self._spare = list(range(sequences, kept))
        self._tried = range(kept, states.slots)
        self._kept: OrderedDict[bytes, int] = OrderedDict()

    @property
    def kept(self) -> int:
        """How many states are kept."""
        return len(self._kept)

    def is_kept(self, key: bytes) -> bool:
        """Whether the state is there that came of these tokens."""
        return key in self._kept

    def begin(self, key: bytes | None) -> int:
        """The slot for a sequence that begins to run, with the state that is kept as `key`; with
        that of no tokens if None. The lowest, since those side by side are computed together."""
        slot = heapq.heappop(self._free)
        if key is None:
            self.states.clear(slot)
        else:
            self._kept.move_to_end(key)
            self.states.copy(self._kept[key], slot)
        return slot

    def end(self, slot: int) -> None:
        """A sequence does not run any more."""
        heapq.heappush(self._free, slot)

    def tried(self, first: int, count: int) -> tuple[int, ...]:
        """Slots for what a step has before each of its guesses, of those from `first` on."""
        return tuple(self._tried[first : first + count])

    def reserve(self) -> int | None:
        """A slot for a copy: an empty one, or that of the copy that was not of use for the longest
        time; None if there is none."""
        if self._spare:
            return self._spare.pop()
        return self._kept.popitem(last=False)[1] if self._kept else None

    def give_back(self, slot: int) -> None:
        """A reserved slot holds nothing."""
        self._spare.append(slot)

    def keep(self, slot: int, key: bytes) -> bool:
        """A reserved slot holds the state that came of these tokens; False if that was there."""
        if key in self._kept:
            self.give_back(slot)
            return False
        self._kept[key] = slot
        return True

    def forget(self, key: bytes) -> None:
        """A state is of no use any more, if it is there."""
        slot = self._kept.pop(key, None)
        if slot is not None:
            self.give_back(slot)
