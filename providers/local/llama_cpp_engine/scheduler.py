"""Which tokens of which sequences the next batch computes."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from llama_compat.types import CAN_WAIT
from providers.local.llama_cpp_engine.sequence import LlamaSequence
from providers.local.llama_cpp_engine.slots import Slots

if TYPE_CHECKING:
    from providers.local.llama_cpp_engine.bindings.model import LlamaAdapter

WORTH_WAITING = 16
"""Tokens: if another prompt is about to compute so many that this one begins with too, this one
waits for them."""


@dataclass(frozen=True, slots=True)
class LlamaLimits:
    """How much a step takes on.

    Attributes:
        tokens: how many a step computes, of prompts and of replies together.
        scored_tokens: how many of prompts whose tokens are scored, since each has its logits.
    """

    tokens: int
    scored_tokens: int


class LlamaChunk(NamedTuple):
    """The next tokens of one sequence: those from `sequence.computed` on."""

    sequence: LlamaSequence
    tokens: int

    @property
    def samples(self) -> bool:
        """Whether the token after the chunk is to be chosen."""
        return self.tokens == self.sequence.uncomputed


Company = int | None | LlamaSequence
"""Of those that may be in one batch: the key of their adapter, or the only one of them, as is one
whose next tokens stand for a medium."""


@dataclass(slots=True)
class LlamaBatch:
    """One step: its chunks, and how many tokens in them are scored."""

    chunks: list[LlamaChunk] = field(default_factory=list)
    scored: int = 0

    @property
    def adapter(self) -> LlamaAdapter | None:
        """What all of it is computed with."""
        return self.chunks[0].sequence.adapter


class LlamaScheduler:
    """Waiting and running sequences, first come first served within a priority.

    Args:
        slots: where they are computed.
        limits: of a step.
        apart: whether each is computed alone, in the same pieces whatever others there are: the
            whole steps of its prompt, and then token by token.

    Attributes:
        running: in the order in which they came to run.
        preempted: how many had to give way, and were computed again.
    """

    def __init__(self, slots: Slots, limits: LlamaLimits, *, apart: bool = False) -> None:
        self._apart = apart
        self.running: dict[LlamaSequence, None] = {}
        self.preempted = 0
        self._slots = slots
        self._limits = limits
        self._waiting: list[tuple[int, int, LlamaSequence]] = []
        self._arrivals = itertools.count()
        self._places: dict[LlamaSequence, tuple[int, int]] = {}
        self._crowded = False
        self._steps = 0
        self._served: dict[Company, int] = {}

    @property
    def waiting(self) -> int:
        """How many sequences wait."""
        return len(self._waiting)

    def add(self, sequence: LlamaSequence) -> None:
        """Queue a sequence."""
        self._places[sequence] = (sequence.generation.sampling.priority, next(self._arrivals))
        self._queue(sequence)

    def drop(self, sequences: set[LlamaSequence]) -> None:
        """Give up sequences, waiting or running, and their slots."""
        if any(item[2] in sequences for item in self._waiting):
            self._waiting = [item for item in self._waiting if item[2] not in sequences]
            heapq.heapify(self._waiting)
        for sequence in sequences:
            if sequence in self.running:
                self.end(sequence)
            elif self._places.pop(sequence, None) is not None:
                _free(sequence)

    def end(self, sequence: LlamaSequence, *, keep: bool = True) -> None:
        """A running sequence is complete, or has failed; then nothing that it computed is kept."""
        del self.running[sequence]
        del self._places[sequence]
        self._slots.give_back(sequence, keep=keep)
        self._crowded = False
        _free(sequence)

    def clear(self) -> list[LlamaSequence]:
        """Let go of everything; what there was."""
        left = [*self.running, *(sequence for *_, sequence in self._waiting)]
        for sequence in list(self.running):
            self.end(sequence, keep=False)
        self.drop(set(left))
        return left

    def schedule(self) -> LlamaBatch:
        """The next step; without chunks if there is nothing to do.

        Those that decode come first, so that a long prompt does not hold them up; prompts share
        what is left of the step. What can wait has no part in a step that computes the prompt of
        what can't. Nor has what has another adapter: a batch has one, and they take turns.
        """
        batch = LlamaBatch()
        budget = self._limits.tokens
        paused = self._drop_to_back()
        able = [each for each in self.running if not (paused and self._can_wait(each))]
        turn = self._next_turn(able)
        for sequence in sorted(able, key=lambda each: each.uncomputed > 1):
            if budget == 0:
                return batch
            if self._company_of(sequence) == turn:
                budget -= self._put(batch, sequence, budget)
        if not self._waiting or (self._crowded and self.running):
            return batch
        put_off: list[tuple[int, int, LlamaSequence]] = []
        while budget > 0 and self._waiting and self._slots.used < self._slots.total:
            sequence = self._waiting[0][2]
            if paused and self._can_wait(sequence):
                break
            prefix = self._slots.longest_prefix(sequence)
            if prefix is not None and prefix.coming - prefix.tokens >= WORTH_WAITING:
                put_off.append(heapq.heappop(self._waiting))
                continue
            heapq.heappop(self._waiting)
            self._slots.take(sequence, prefix)
            if sequence.cached_tokens is None:
                sequence.cached_tokens = sequence.computed
            self.running[sequence] = None
            if not batch.chunks or self._company_of(sequence) == turn:
                turn = self._company_of(sequence)
                self._served[turn] = self._steps
                budget -= self._put(batch, sequence, budget)
        for item in put_off:
            heapq.heappush(self._waiting, item)
        return batch

    def give_way(self, batch: LlamaBatch) -> bool:
        """The KV cache has no room for `batch`: forget something, and take out who has to wait.

        What nobody uses goes first, then the newest of the lowest priority; nobody else is let in
        before one of those that stay has ended.

        Returns:
            False if there is nobody but one.
        """
        if self._slots.make_room():
            return True
        if len(self.running) < 2:
            return False
        self._crowded = True
        victim = max(self.running, key=self._places.__getitem__)
        self._send_back(victim)
        batch.chunks = [chunk for chunk in batch.chunks if chunk.sequence is not victim]
        return True

    # ----------------------------------------------------------------------------------------------

    def _next_turn(self, able: Sequence[LlamaSequence]) -> Company:
        """Whose batch is next: theirs who have waited for longest."""
        self._steps += 1
        companies = dict.fromkeys(map(self._company_of, able))
        self._served = {each: self._served.get(each, 0) for each in companies}
        turn = min(companies, key=self._served.__getitem__, default=None)
        if companies:
            self._served[turn] = self._steps
        return turn

    def _company_of(self, sequence: LlamaSequence) -> Company:
        """With whom a sequence may be in a batch."""
        if self._apart or sequence.media.at(sequence.computed) is not None:
            return sequence
        return None if sequence.adapter is None else sequence.adapter.key

    def _can_wait(self, sequence: LlamaSequence) -> bool:
        return self._places[sequence][0] >= CAN_WAIT

    def _drop_to_back(self) -> bool:
        """Send what can wait to the back, as far as what can't needs its slots.

        Returns:
            Whether the prompt of something that can't wait is to be computed.
        """
        patient = [each for each in self.running if self._can_wait(each)]
        if not patient:
            return False
        if not self._waiting or self._waiting[0][0] >= CAN_WAIT:
            return any(each.uncomputed > 1 and not self._can_wait(each) for each in self.running)
        patient.sort(key=self._places.__getitem__)
        waiting = sum(priority < CAN_WAIT for priority, *_ in self._waiting)
        while patient and self._slots.total - self._slots.used < waiting:
            self._send_back(patient.pop())
        return True

    def _send_back(self, sequence: LlamaSequence) -> None:
        """Back to the queue, where it keeps its place; it is computed again from its tokens."""
        self.preempted += 1
        del self.running[sequence]
        self._slots.give_back(sequence, keep=False)
        sequence.computed = 0
        if sequence.scores_prompt:
            sequence.prompt_scores.clear()
        self._queue(sequence)

    def _queue(self, sequence: LlamaSequence) -> None:
        heapq.heappush(self._waiting, (*self._places[sequence], sequence))

    def _put(self, batch: LlamaBatch, sequence: LlamaSequence, budget: int) -> int:
        """Put the next tokens of `sequence` into the batch; how many."""
        start = sequence.computed
        tokens = min(sequence.uncomputed, budget)
        if self._apart:
            step = self._limits.tokens
            left = sequence.prompt_tokens - start
            tokens = min(left, step - start % step) if left > 0 else 1
        tokens = sequence.media.end_of_step(start, start + tokens) - start
        if sequence.scores_prompt:
            tokens = min(tokens, self._limits.scored_tokens - batch.scored)
            batch.scored += tokens
        if tokens:
            batch.chunks.append(LlamaChunk(sequence, tokens))
        return tokens


def _free(sequence: LlamaSequence) -> None:
    if sequence.sampler is not None:
        sequence.sampler.free()
        sequence.sampler = None
