"""Which tokens of which sequences the next step computes."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace

from llama_compat.types import CAN_WAIT
from providers.local.block_manager import BlockManager
from providers.local.torch_engine.model.rope import LongRope
from providers.local.torch_engine.scheduling.courtesy import Courtesy, StepKind
from providers.local.torch_engine.scheduling.pieces import PromptPieces
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.sequence_states import SequenceStates
from providers.local.torch_engine.scheduling.speculation import MOST_ROWS, Guesser, GuessRoom
from providers.local.torch_engine.scheduling.state_slots import StateSlots
from providers.local.torch_engine.scheduling.step import Chunk, StepBatch

SHORT_STEPS = 1000
"""So many steps take less after one had too little memory, before twice as much is tried."""


@dataclass(slots=True)
class StepLimits:
    """How much a step takes on.

    Attributes:
        sequences: how many are generated at the same time.
        tokens: how many a step computes, of prompts and of replies together.
        scored_tokens: how many of a prompt whose tokens are scored, since each has its logits.
    """

    sequences: int
    tokens: int
    scored_tokens: int


class TorchScheduler:
    """Waiting and running sequences, first come first served within a priority.

    Args:
        blocks: the memory of the KV cache.
        limits: of a step.
        prefix_cache: whether what was computed is looked for and kept.
        guesser: says what may come next, if something does.
        slowdown: how many times as long as without it a step may take with a part of a long prompt
            beside replies.
        long_rope: what long sequences turn by, where that is something else.
        states: who has which, where the model's layers have some.
    """

    def __init__(
        self,
        blocks: BlockManager,
        limits: StepLimits,
        *,
        prefix_cache: bool,
        guesser: Guesser | None = None,
        slowdown: float = 2.0,
        long_rope: LongRope | None = None,
        states: StateSlots | None = None,
    ) -> None:
        self.limits = limits
        self._most = replace(limits)
        self._short_steps = 0
        self.running: dict[TorchSequence, None] = {}
        self.preempted = 0
        self._blocks = blocks
        self._prefix_cache = prefix_cache
        # What is turned otherwise once it is long would have to be sent back amid its guesses.
        self._guesser = guesser if long_rope is None else None
        self._long_rope = long_rope
        self._states: SequenceStates | None = None
        if states is not None:
            self._states = SequenceStates(states, blocks.block_size, are_kept=prefix_cache)
            blocks.forgotten = states.forget
        self._waiting: list[tuple[int, int, TorchSequence]] = []
        self._arrivals = itertools.count()
        self._places: dict[TorchSequence, tuple[int, int]] = {}
        self._courtesy = Courtesy(limits.tokens)
        self._pieces = PromptPieces(limits.tokens, slowdown)
        self._noted: list[TorchSequence] = []
        self._patient = 0

    @property
    def waiting(self) -> int:
        """How many sequences wait."""
        return len(self._places) - len(self.running)

    def add(self, sequence: TorchSequence) -> None:
        """Queue a sequence."""
        self._places[sequence] = (sequence.generation.sampling.priority, next(self._arrivals))
        self._patient += self._can_wait(sequence)
        if self._guesser is not None:
            self._guesser.begins(sequence)
        self._queue(sequence)

    def drop(self, sequences: set[TorchSequence]) -> None:
        """Give up sequences, waiting or running, and their blocks.

        It costs as much as there are of them, however many others wait: those that waited keep
        their entry in the heap until it comes up, or until half of the heap is such entries.
        """
        for sequence in sequences:
            if sequence in self.running:
                self.end(sequence)
            elif sequence in self._places:
                self._forget(sequence)
        if len(self._waiting) > 2 * self.waiting:
            self._waiting = [item for item in self._waiting if item[2] in self._places]
            heapq.heapify(self._waiting)

    def end(self, sequence: TorchSequence) -> None:
        """A sequence is complete, or has failed."""
        self._forget(sequence)
        # One whose last token was chosen ahead may have been sent back meanwhile.
        if sequence in self.running:
            del self.running[sequence]
            self._release(sequence)

    def clear(self) -> list[TorchSequence]:
        """Let go of everything, and of what the cache was to hold of it; what there was."""
        left = list(self._places)
        self.drop(set(left))
        self._noted = []
        self._blocks.unregister(range(self._blocks.total))
        return left

    def schedule(self) -> StepBatch:
        """The next step; without chunks if nothing can be done.

        Those that decode come first, so that a long prompt does not hold them up; prompts share
        what is left of the step, long ones in pieces. What can wait has no part in a step that
        computes the prompt of what can't.
        """
        batch = StepBatch()
        self._grow()
        budget = self.limits.tokens
        self._send_back_outgrown()
        paused = self._give_way()
        for_patient = self._for_patient(paused=paused)
        for_long = self._for_long()
        for sequence in sorted(self.running, key=lambda each: each.uncomputed > 1):
            # It may have had to give way to one before it.
            if budget > 0 and sequence in self.running and not sequence.awaits_last:
                if not self._can_wait(sequence):
                    taken = self._take_part(batch, sequence, budget, for_long)
                    budget -= taken
                    for_long -= taken if _is_piece(sequence) else 0
                elif for_patient > 0:
                    taken = self._take(batch, sequence, min(budget, for_patient))
                    budget, for_patient = budget - taken, for_patient - taken
        while budget > 0 and self._waiting and len(self.running) < self.limits.sequences:
            sequence = self._waiting[0][2]
            if sequence not in self._places:
                heapq.heappop(self._waiting)
                continue
            can_wait = self._can_wait(sequence)
            if can_wait and for_patient <= 0:
                break
            # One that was sent back a moment ago waits until its last token is known.
            if sequence.awaits_token or not self._admit(sequence):
                break
            heapq.heappop(self._waiting)
            self.running[sequence] = None
            if can_wait:
                taken = self._take(batch, sequence, min(budget, for_patient))
                for_patient -= taken
            else:
                taken = self._take_part(batch, sequence, budget, for_long)
                for_long -= taken if _is_piece(sequence) else 0
            budget -= taken
        self._guess(batch)
        self._note(batch)
        return batch

    def register(self, batch: StepBatch, chunk: Chunk) -> None:
        """Make the blocks known that are full with `chunk`, as far as its tokens are known."""
        if not self._prefix_cache:
            return
        sequence, size = chunk.sequence, self._blocks.block_size
        known = len(sequence.token_ids) - sequence.awaits_token
        end = min(sequence.computed + chunk.tokens, known)
        for index in range(sequence.computed // size, end // size):
            block = sequence.blocks[index]
            if self._blocks.register(block, sequence.block_hash(index, size)):
                batch.registered.append(block)

    def guessed_right(self, batch: StepBatch, chunk: Chunk, right: int) -> None:
        """The first so many of the tokens that were guessed with `chunk` were what came, and are in
        the cache."""
        sequence = chunk.sequence
        if not sequence.ended:
            self.register(batch, Chunk(sequence, right))
            if self._states is not None:
                self._states.go_back(chunk, right)
            sequence.computed += right
            if self._states is not None:
                self._states.keep(sequence)
        assert self._guesser is not None
        self._guesser.settle(sequence, len(chunk.guessed), right, len(batch.chunks))

    def advance(self, chunk: Chunk) -> None:
        """A chunk is in the cache, or will be before anything is read from it."""
        chunk.sequence.computed += chunk.tokens
        if self._states is not None:
            self._states.keep(chunk.sequence)

    def distrust(self, sequence: TorchSequence) -> None:
        """Nobody may go on from what was computed of `sequence`."""
        self._blocks.unregister(sequence.blocks)
        if self._states is not None:
            self._states.distrust(sequence)

    def undo(self, batch: StepBatch) -> None:
        """A step failed: what it was to compute is not in the cache."""
        self._blocks.unregister(batch.registered)

    def shrink(self, batch: StepBatch) -> bool:
        """A step needed too much memory: take half as much for a while, and do it again.

        What somebody else has of a device's memory comes and goes, so that after `SHORT_STEPS` more
        is tried again.

        Returns:
            False if it can't be less: it was one sequence, in a step of the fewest tokens.
        """
        sequences, tokens = self.limits.sequences, self.limits.tokens
        if len(batch.chunks) > 1:
            sequences = max(1, len(batch.chunks) // 2)
        else:
            tokens = min(tokens, sum(chunk.rows for chunk in batch.chunks))
        tokens = max(sequences, tokens // 2)
        if (sequences, tokens) == (self.limits.sequences, self.limits.tokens):
            return False
        self.undo(batch)
        self.limits.sequences, self.limits.tokens = sequences, tokens
        self._short_steps = SHORT_STEPS
        # All of them: one may have counted on what another was to compute.
        for chunk in batch.chunks:
            # It may have ended with a token of this very step.
            if chunk.sequence in self.running:
                self._preempt(chunk.sequence)
        return True

    def _grow(self) -> None:
        """Take twice as much again, some steps after memory was short."""
        if not self._short_steps:
            return
        self._short_steps -= 1
        if not self._short_steps:
            self.limits.sequences = min(self._most.sequences, 2 * self.limits.sequences)
            self.limits.tokens = min(self._most.tokens, 2 * self.limits.tokens)
            if self.limits != self._most:
                self._short_steps = SHORT_STEPS

    # ----------------------------------------------------------------------------------------------

    def _guess(self, batch: StepBatch) -> None:
        """Add guesses to a step in which all sequences decode, as far as there is memory left."""
        chunks = batch.chunks
        guesser, count = self._guesser, len(chunks)
        if guesser is None or not 0 < count <= MOST_ROWS // 2:
            return
        if any(chunk.tokens > 1 or not chunk.samples for chunk in chunks):
            return
        room = MOST_ROWS // count - 1
        asked: dict[int, GuessRoom] = {}
        for place, chunk in enumerate(chunks):
            sequence = chunk.sequence
            left = sequence.generation.max_tokens - sequence.completion_tokens - 1
            if left >= 1 and not sequence.scores_prompt:
                asked[place] = GuessRoom(sequence, min(room, left))
        guesses = guesser.guess(list(asked.values()), count)
        first = 0
        for (place, each), guessed in zip(asked.items(), guesses, strict=True):
            end = each.sequence.computed + 1 + len(guessed)
            if guessed and self._has_room(each.sequence, end):
                tried = () if self._states is None else self._states.tried(first, len(guessed))
                first += len(guessed)
                chunks[place] = chunks[place]._replace(guessed=guessed, tried=tried)

    def _has_room(self, sequence: TorchSequence, tokens: int) -> bool:
        """Blocks for the first `tokens` tokens, if nobody has to give way for them."""
        needed = self._blocks.blocks_for(tokens) - len(sequence.blocks)
        if needed > 0 and self._blocks.available < needed + len(self.running):
            return False
        for _ in range(needed):
            block = self._blocks.allocate(after=sequence.blocks[-1], span=needed)
            if block is None:
                return False
            sequence.blocks.append(block)
        return True

    def _can_wait(self, sequence: TorchSequence) -> bool:
        return self._places[sequence][0] >= CAN_WAIT

    def _forget(self, sequence: TorchSequence) -> None:
        self._patient -= self._can_wait(sequence)
        del self._places[sequence]

    def _for_patient(self, *, paused: bool) -> int:
        """How many tokens of what can wait the step may have."""
        if not self._patient:
            return 0
        allowed = self._courtesy.tokens(people=len(self._places) > self._patient)
        return 0 if paused else allowed

    def _for_long(self) -> int:
        """How many tokens of long prompts the step may have."""
        # Where one of the last step goes on, no time has passed between the two.
        if any(each in self.running for each in self._noted):
            self._pieces.over()
        replies = [each for each in self.running if each.uncomputed == 1]
        if all(map(self._can_wait, replies)):
            return self.limits.tokens
        return min(self.limits.tokens, self._pieces.tokens(len(replies)))

    def _note(self, batch: StepBatch) -> None:
        """Tell what is in a step, so that the next ones are as long as they should be."""
        self._noted = [chunk.sequence for chunk in batch.chunks]
        prompts = [chunk for chunk in batch.chunks if chunk.tokens > 1 or not chunk.samples]
        replies = sum(chunk.rows for chunk in batch.chunks) - sum(chunk.rows for chunk in prompts)
        are_pieces = all(chunk.sequence.is_long for chunk in prompts)
        self._pieces.begins(replies if are_pieces else 0, sum(chunk.tokens for chunk in prompts))
        if not self._patient:
            self._courtesy.begins(StepKind.other, 0)
            return
        patient = [chunk for chunk in batch.chunks if self._can_wait(chunk.sequence)]
        others = [chunk for chunk in batch.chunks if not self._can_wait(chunk.sequence)]
        if any(chunk.tokens > 1 or not chunk.samples for chunk in others):
            self._courtesy.begins(StepKind.prompt, 0)
        elif patient:
            self._courtesy.begins(StepKind.patient, sum(chunk.tokens for chunk in patient))

    def _give_way(self) -> bool:
        """Send what can wait to the back, as far as what can't needs its places and its memory.

        Returns:
            Whether the prompt of something that can't wait is to be computed.
        """
        while self._waiting and self._waiting[0][2] not in self._places:
            heapq.heappop(self._waiting)
        somebody_waits = bool(self._waiting) and self._waiting[0][0] < CAN_WAIT
        patient = [each for each in self.running if self._can_wait(each)]
        if not patient:
            return False
        if not somebody_waits:
            return any(each.uncomputed > 1 and not self._can_wait(each) for each in self.running)
        patient.sort(key=self._places.__getitem__)
        waiting = sum(priority < CAN_WAIT for priority, _ in self._places.values())
        waiting -= len(self.running) - len(patient)
        places = waiting - (self.limits.sequences - len(self.running))
        first = self._waiting[0][2]
        while patient:
            needed = self._blocks.blocks_for(len(first.token_ids)) + len(self.running)
            if places <= 0 and self._blocks.available >= needed:
                break
            self._preempt(patient.pop())
            places -= 1
        return True

    def _queue(self, sequence: TorchSequence) -> None:
        heapq.heappush(self._waiting, (*self._places[sequence], sequence))

    def _admit(self, sequence: TorchSequence) -> bool:
        """Give a waiting sequence what the cache has of it; False if it must wait for memory.

        Its whole prompt has to fit, and a block for each that is running besides: otherwise the
        first of them to need one would send it back at once.
        """
        size = self._blocks.block_size
        sequence.turn_from(self._turns_from(sequence))
        found: list[int] = []
        if self._prefix_cache and not sequence.scores_prompt:
            # The last token is always computed: it gives the logits of the next.
            for index in range((len(sequence.token_ids) - 1) // size):
                block = self._blocks.find(sequence.block_hash(index, size))
                if block is None:
                    break
                found.append(block)
        if sequence.media is not None:
            # Tokens that look at each other are computed at once, or not at all.
            del found[sequence.media.begin_of_step(len(found) * size) // size :]
        if self._states is not None:
            del found[self._states.reach(sequence, len(found)) :]
        for block in found:
            self._blocks.share(block)
        needed = self._blocks.blocks_for(len(sequence.token_ids)) - len(found)
        reserve = len(self.running)
        if self._blocks.available < needed + reserve and self.running:
            self._blocks.release(found)
            return False
        if self._states is not None:
            self._states.begin(sequence, len(found))
        sequence.blocks = found
        sequence.computed = len(found) * size
        sequence.is_long = sequence.uncomputed > self.limits.tokens
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
        return True

    def _take_part(
        self, batch: StepBatch, sequence: TorchSequence, budget: int, for_long: int
    ) -> int:
        """As `_take`, of a long prompt no more than long ones may have."""
        if _is_piece(sequence):
            budget = min(budget, for_long)
        return self._take(batch, sequence, budget) if budget > 0 else 0

    def _take(self, batch: StepBatch, sequence: TorchSequence, budget: int) -> int:
        """Put the next tokens of `sequence` into the batch, as many as there is memory for."""
        limit = self.limits.scored_tokens if sequence.scores_prompt else budget
        tokens = min(sequence.uncomputed, budget, limit)
        if sequence.media is not None:
            start = sequence.computed
            tokens = sequence.media.end_of_step(start, start + tokens) - start
        if not self._make_room(batch, sequence, sequence.computed + tokens):
            return 0
        chunk = Chunk(sequence, tokens)
        if self._states is not None:
            self._states.save(chunk)
        # Known from now on: a step writes all its keys and values before it reads any.
        self.register(batch, chunk)
        batch.chunks.append(chunk)
        return tokens

    def _make_room(self, batch: StepBatch, sequence: TorchSequence, tokens: int) -> bool:
        """Blocks for the first `tokens` tokens; False if `sequence` itself had to give way."""
        taken = {chunk.sequence for chunk in batch.chunks}
        while len(sequence.blocks) < self._blocks.blocks_for(tokens):
            block = self._blocks.allocate(
                after=sequence.blocks[-1] if sequence.blocks else None,
                span=self._blocks.blocks_for(
                    sequence.prompt_tokens + sequence.generation.max_tokens
                ),
            )
            if block is not None:
                sequence.blocks.append(block)
                continue
            # Of the lowest priority the last; those in the batch need what they have.
            victim = max(self.running.keys() - taken, key=self._places.__getitem__)
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _turns_from(self, sequence: TorchSequence) -> int:
        """The row of the rotations that it is computed with."""
        rope = self._long_rope
        return rope.row if rope is not None and len(sequence.token_ids) > rope.after else 0

    def _send_back_outgrown(self) -> None:
        """Those that have become long turn by something else from their first token on."""
        if self._long_rope is None:
            return
        for sequence in list(self.running):
            if sequence.turns_from != self._turns_from(sequence) and not sequence.awaits_last:
                self._send_back(sequence)

    def _preempt(self, sequence: TorchSequence) -> None:
        """Make room of what a sequence has."""
        self.preempted += 1
        self._send_back(sequence)

    def _send_back(self, sequence: TorchSequence) -> None:
        """Back to the queue, where it keeps its place; it is computed again from its tokens."""
        del self.running[sequence]
        self._release(sequence)
        self._queue(sequence)

    def _release(self, sequence: TorchSequence) -> None:
        self._blocks.release(sequence.blocks)
        if self._states is not None:
            self._states.end(sequence)
        sequence.blocks = []
        sequence.computed = 0
        if sequence.scores_prompt:
            sequence.prompt_scores.clear()


def _is_piece(sequence: TorchSequence) -> bool:
    """Whether what comes next of it is a part of a long prompt."""
    return sequence.is_long and sequence.uncomputed > 1
