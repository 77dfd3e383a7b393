"""The sequences of a llama.cpp context, and what each still holds of an earlier request.

There are more than can run at a time: those that nobody runs in keep what others may begin with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from providers.local.llama_cpp_engine.bindings.context import Context
    from providers.local.llama_cpp_engine.sequence import LlamaSequence, Owner

Tokens = np.ndarray[Any, np.dtype[np.int32]]


class Slot:
    """One of the context's sequences.

    Args:
        index: its id in the context.
        capacity: how many tokens it may come to hold.

    Attributes:
        tokens: what is in the KV cache, the first `length` of them.
        length: how many.
        owner: who brought them; others don't get them.
        sequence: who is being generated in it; None while it is free.
        used: when it was given back, counted in slots given back.
        prompt: how many of its tokens may have been computed as a prompt.
    """

    def __init__(self, index: int, capacity: int) -> None:
        self.index = index
        self.tokens: Tokens = np.zeros(capacity, np.int32)
        self.length = 0
        self.owner: Owner = (None, None)
        self.sequence: LlamaSequence | None = None
        self.used = 0
        self.prompt = 0


class Prefix(NamedTuple):
    """How much of a prompt a slot has: `tokens` now, `coming` when its own prompt is computed."""

    slot: Slot
    tokens: int
    coming: int


class Slots:
    """All slots of a context: who has which, and the prefixes that they share.

    Args:
        context: whose sequences they are.
        count: how many may be in use at a time.
        held: how many there are, those included.
        capacity: how many tokens each may come to hold.
        reuse: whether what is held is looked for and kept.
        step: where not None, a prompt is gone on with as it was computed: in the slot where it is,
            after whole steps of so many tokens.
    """

    def __init__(
        self,
        context: Context,
        count: int,
        held: int,
        capacity: int,
        *,
        reuse: bool,
        step: int | None = None,
    ) -> None:
        self._context = context
        self._step = step
        self._count = count
        self._slots = [Slot(index, capacity) for index in range(held)]
        self._reuse = reuse
        self._given_back = 0

    @property
    def total(self) -> int:
        """How many may be in use at a time."""
        return self._count

    @property
    def used(self) -> int:
        """How many have a sequence."""
        return sum(slot.sequence is not None for slot in self._slots)

    def longest_prefix(self, sequence: LlamaSequence) -> Prefix | None:
        """The slot that has, or will have, most of what `sequence` begins with; None if none has.

        The last token is never part of it: it has to be computed, for the logits behind it.
        """
        if not self._reuse or sequence.scores_prompt:
            return None
        if self._step is not None:
            return self._whole_steps(sequence, self._step)
        owner, wanted = sequence.owner, sequence.tokens[:-1]
        best: Prefix | None = None
        for slot in self._slots:
            holder = slot.sequence
            if (slot.length == 0 and holder is None) or slot.owner != owner:
                continue
            common = common_prefix(wanted, slot.tokens[: slot.length])
            has = coming = sequence.media.cut(common)
            if holder is not None and common == slot.length:
                coming = max(has, sequence.media.cut(common_prefix(wanted, holder.tokens)))
            if coming and (best is None or (coming, has) > (best.coming, best.tokens)):
                best = Prefix(slot, has, coming)
        return best

    def _whole_steps(self, sequence: LlamaSequence, step: int) -> Prefix | None:
        """Of the free slots the one with the most whole steps of the prompt of `sequence`."""
        wanted = sequence.tokens[: min(sequence.prompt_tokens, len(sequence.token_ids) - 1)]
        best: Prefix | None = None
        for slot in self._slots:
            if slot.sequence is not None or slot.owner != sequence.owner:
                continue
            has = common_prefix(wanted, slot.tokens[: min(slot.length, slot.prompt)])
            has = sequence.media.cut(has - has % step)
            if has and (best is None or has > best.tokens):
                best = Prefix(slot, has, has)
        return best

    def take(self, sequence: LlamaSequence, prefix: Prefix | None) -> None:
        """Give `sequence` a slot, one of which is free, that begins with `prefix`.

        Sets the sequence's `slot` and how much of it is `computed`.
        """
        free = [slot for slot in self._slots if slot.sequence is None]
        slot = min(free, key=lambda each: (each.length > 0, each.used))
        kept = 0
        if prefix is not None and prefix.tokens:
            source = prefix.slot
            position = sequence.media.position(prefix.tokens)
            goes_on = source.length == prefix.tokens or self._step is not None
            if source.sequence is None and goes_on:
                # It goes on from there; nothing that it holds is lost.
                slot = source
            if slot is source:
                kept = prefix.tokens if self._context.keep(slot.index, position) else 0
            else:
                self._context.keep(slot.index, 0)
                if self._context.share(source.index, slot.index, position):
                    slot.tokens[: prefix.tokens] = source.tokens[: prefix.tokens]
                    kept = prefix.tokens
        if not kept:
            self._context.keep(slot.index, 0)
        slot.length, slot.sequence = kept, sequence
        slot.owner, slot.prompt = sequence.owner, sequence.prompt_tokens
        sequence.slot, sequence.computed = slot, kept

    def give_back(self, sequence: LlamaSequence, *, keep: bool) -> None:
        """`sequence` leaves its slot; what is in it stays for others if it is to be kept."""
        slot = sequence.slot
        assert slot is not None
        slot.sequence = sequence.slot = None
        self._given_back += 1
        slot.used = self._given_back
        if not (keep and self._reuse):
            self.empty(slot)

    def make_room(self) -> bool:
        """Empty the free slot that was used longest ago; False if all are empty or in use."""
        held = [slot for slot in self._slots if slot.sequence is None and slot.length]
        if not held:
            return False
        self.empty(min(held, key=lambda slot: slot.used))
        return True

    def empty(self, slot: Slot) -> None:
        """Forget what a slot holds."""
        self._context.keep(slot.index, 0)
        slot.length = 0


def common_prefix(first: Tokens, second: Tokens) -> int:
    """How many tokens two arrays have in common from their beginning."""
    length = min(len(first), len(second))
    different = first[:length] != second[:length]
    at = int(different.argmax()) if length else 0
    return at if length and different[at] else length
