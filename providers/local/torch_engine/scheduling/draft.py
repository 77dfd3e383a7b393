"""Tokens guessed by a smaller model, which goes ahead of the one that is asked.

The draft draws by the numbers that the model itself will draw by (see `providers.local.draw`). So
where both find the same tokens likely they mostly draw the same one, whatever the temperature: of
two distributions that differ by a part d, 1 - d of 1 + d at least (arXiv:2408.07978). And a reply
is what it is without a draft, so that its distribution is the model's own. Rejection sampling, as
in arXiv:2211.17192, would keep the distribution, too, but not the reply that goes with a seed.

What a draft costs is measured. A sequence whose guesses don't pay for that goes on without.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from operator import eq
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from msgspec import structs
from torch.nn.functional import pad

from llama_compat.types import SamplingParams
from providers.local.engine import Generation
from providers.local.torch_engine.model_runner import Runner
from providers.local.torch_engine.scheduling.sampler import NO_TOKEN, Sampler
from providers.local.torch_engine.scheduling.scheduler import Chunk
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.speculation import (
    AT_MOST,
    MOST_ROWS,
    Account,
    GuessRoom,
    cost_of_one,
)

log = logging.getLogger(__name__)

PLACES = MOST_ROWS // 2
"""Sequences that it keeps in its cache: as many as are guessed for in one step."""

AT_FIRST = 1.5
"""What a sequence has for guesses when it begins, in steps: a draft costs more than to look."""

MEASURED = 4
"""Steps without guesses, of each number of sequences, before there are any: what they take has to
be known."""

UNKNOWN_COST = 0.3
"""What a token of the draft takes before there was one, in steps of the model."""

RECENT = 0.1
"""What the last step counts for beside all before it."""


class Draft(NamedTuple):
    """A model that goes ahead of another one.

    Attributes:
        runner: of it, with a KV cache of `PLACES` times as many blocks as the longest sequence has.
        blocks: of the longest sequence.
        longest: the most tokens of a sequence.
        step_tokens: of a prompt, at once.
        most: how many it guesses at most.
    """

    runner: Runner
    blocks: int
    longest: int
    step_tokens: int
    most: int


class DraftGuesser:
    """Has a draft say what may come; see `Guesser`.

    Args:
        draft: the smaller model.
        vocab_size: of the model that is asked.
        stop_tokens: see `Sampler`.
        clock: seconds, of no certain beginning.
    """

    def __init__(
        self,
        draft: Draft,
        vocab_size: int,
        stop_tokens: Collection[int] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._draft = draft
        self._vocab_size = vocab_size
        self._sampler = Sampler(vocab_size, stop_tokens)
        self._clock = clock
        self._accounts: WeakKeyDictionary[TorchSequence, Account] = WeakKeyDictionary()
        blocks = range(PLACES * draft.blocks)
        self._places = [
            _Place(list(blocks[at * draft.blocks : (at + 1) * draft.blocks]))
            for at in range(PLACES)
        ]
        self._turns = 0
        self._plain = _PlainSteps(clock)
        self._token_seconds: float | None = None
        self._round: _Round | None = None
        self._failed = False

    def begins(self, sequence: TorchSequence) -> None:
        """See `Guesser`."""
        self._accounts[sequence] = Account(AT_FIRST)

    def guess(self, asked: Sequence[GuessRoom], sequences: int) -> Sequence[tuple[int, ...]]:
        """See `Guesser`."""
        if self._failed:
            return [()] * len(asked)
        self._plain.over(asked)
        self._pay(asked)
        began = self._clock()
        usual = self._plain.seconds(sequences)
        found: dict[TorchSequence, tuple[int, ...]] = {}
        if usual is not None:
            wanted = self._wanted(asked, sequences, self._cost(usual))
            try:
                found = self._guess(wanted)
            except Exception as error:
                # Guesses are no part of a reply: those that are being made go on without.
                log.error("guessing ends, as the draft failed", exc_info=error)
                self._failed = True
            if found:
                guessed = max(map(len, found.values()))
                expected = guessed * (cost_of_one(sequences) + self._cost(usual))
                lengths = {each: len(each.token_ids) + 1 for each in found}
                self._round = _Round(began, usual, expected, lengths)
        if not found:
            self._plain.begins(asked, sequences)
        return [found.get(each, ()) for each, _ in asked]

    def settle(self, sequence: TorchSequence, guessed: int, right: int, sequences: int) -> None:
        """See `Guesser`."""
        self._accounts[sequence].settle(guessed, right)
        if self._round is not None and sequence in self._round.lengths:
            self._round.lengths[sequence] += right

    def _pay(self, asked: Sequence[GuessRoom]) -> None:
        """Those that had guesses in the last step pay what it took beyond one without: the draft's
        time, and that of more tokens in a step. Where something else was between, it is what was to
        be expected."""
        last, self._round = self._round, None
        if last is None:
            return
        now = {each: len(each.token_ids) for each, _ in asked}
        steps = last.expected
        if all(now.get(each) == length for each, length in last.lengths.items()):
            steps = min(AT_MOST, (self._clock() - last.began) / last.usual - 1)
        for each in last.lengths:
            self._accounts[each].spend(steps)

    def _cost(self, usual: float) -> float:
        """What a token of the draft takes, in steps of the model that take so many seconds."""
        return UNKNOWN_COST if self._token_seconds is None else self._token_seconds / usual

    def _wanted(
        self, asked: Sequence[GuessRoom], sequences: int, cost: float
    ) -> dict[TorchSequence, int]:
        """How many tokens to guess for which sequences."""
        found = {}
        for each, most in asked:
            most = min(most, self._draft.most, self._draft.longest - len(each.token_ids))
            if most < 1:
                continue
            if width := self._accounts[each].width(most, cost_of_one(sequences) + cost):
                found[each] = width
        return found

    def _guess(self, wanted: dict[TorchSequence, int]) -> dict[TorchSequence, tuple[int, ...]]:
        places = {each: self._place_of(each, wanted) for each in wanted}
        for each, place in places.items():
            place.follow(each)
        guesses: dict[TorchSequence, tuple[int, ...]] = dict.fromkeys(wanted, ())
        going = list(wanted)
        while going:
            chosen = self._step([places[each].own for each in going])
            for each in going:
                token_id = chosen.get(places[each].own)
                if token_id is not None:
                    guesses[each] += (token_id,)
            going = [
                each
                for each in going
                if places[each].own in chosen and len(guesses[each]) < wanted[each]
            ]
        return {each: guessed for each, guessed in guesses.items() if guessed}

    def _step(self, sequences: Sequence[TorchSequence]) -> dict[TorchSequence, int]:
        """Have the draft compute what it can of these sequences, its own; the next tokens of those
        of which that was all. A long prompt comes in by parts, each beside a step of the model."""
        began = self._clock()
        chunks, budget = [], self._draft.step_tokens
        for each in sequences:
            tokens = min(each.uncomputed, budget)
            if tokens:
                chunks.append(Chunk(each, tokens))
                budget -= tokens
        logits = self._draft.runner.forward(chunks)
        sampling = [chunk.sequence for chunk in chunks if chunk.samples]
        for chunk in chunks:
            chunk.sequence.computed += chunk.tokens
        if not sampling:
            return {}
        # The tables of models that have the same tokens are filled up to different sizes.
        logits = pad(logits, (0, self._vocab_size - logits.shape[1]), value=-torch.inf)
        choices = self._sampler.sample(logits, sampling, [None] * len(sampling))
        chosen = {
            each: choice.token_id
            for each, choice in zip(sampling, choices, strict=True)
            if choice is not None and choice.token_id != NO_TOKEN
        }
        for each, token_id in chosen.items():
            each.token_ids.append(token_id)
        # What is a token more is one that was guessed rightly.
        if all(chunk.tokens <= 2 for chunk in chunks):
            self._token_seconds = _recent(self._token_seconds, self._clock() - began)
        return chosen

    def _place_of(self, sequence: TorchSequence, beside: dict[TorchSequence, int]) -> _Place:
        """Where it is in the draft's cache: where it was, else where most of it is already, of the
        places whose sequences are not guessed for now; the one that was left longest ago among
        equals."""
        self._turns += 1
        place = next((each for each in self._places if each.whose is sequence), None)
        if place is None:
            free = [each for each in self._places if each.whose not in beside]
            tokens = sequence.token_ids
            place = max(free, key=lambda each: (each.same_as(tokens), -each.used))
            place.take(sequence)
        place.used = self._turns
        return place


class _Place:
    """Room for one sequence in the draft's cache.

    Args:
        blocks: of the cache.

    Attributes:
        whose: the sequence that it was last taken for.
        own: that sequence as the draft knows it.
        used: when, in turns.
    """

    def __init__(self, blocks: list[int]) -> None:
        self._blocks = blocks
        self._followed = 0
        self.whose: TorchSequence | None = None
        self.used = 0
        self.own = TorchSequence(Generation((), SamplingParams(), 1), _nobody)

    def take(self, sequence: TorchSequence) -> None:
        """It is for another sequence from now on; what both begin with is kept."""
        same, generation = self.same_as(sequence.token_ids), sequence.generation
        sampling = structs.replace(
            generation.sampling,
            seed=sequence.seed,
            # They count what was said, and of what is guessed some never is.
            frequency_penalty=0.0,
            presence_penalty=0.0,
            repetition_penalty=1.0,
        )
        plain = Generation(generation.prompt_ids, sampling, generation.max_tokens)
        self.own = TorchSequence(plain, _nobody)
        self.own.blocks = self._blocks
        self.own.token_ids = list(sequence.token_ids)
        self.own.computed = same
        self.whose, self._followed = sequence, len(sequence.token_ids)

    def follow(self, sequence: TorchSequence) -> None:
        """Know its tokens: those that were said since, in the place of those that were guessed."""
        own, tokens = self.own, sequence.token_ids
        same = self._followed
        while same < min(len(own.token_ids), len(tokens)) and own.token_ids[same] == tokens[same]:
            same += 1
        own.token_ids[same:] = tokens[same:]
        # The last one is always computed: it gives the logits of the next.
        own.computed = min(own.computed, same, len(tokens) - 1)
        self._followed = len(tokens)

    def same_as(self, tokens: Sequence[int]) -> int:
        """With how many of what is computed here `tokens` begin."""
        known = self.own.token_ids[: self.own.computed]
        return sum(takewhile(bool, map(eq, known, tokens)))


class _Round(NamedTuple):
    """A step with guesses.

    Attributes:
        began: when the draft was asked.
        usual: seconds of a step without.
        expected: what it should cost beyond that, in such steps.
        lengths: the tokens that each sequence has when it is over.
    """

    began: float
    usual: float
    expected: float
    lengths: dict[TorchSequence, int]


class _PlainSteps:
    """What steps without guesses take, by how many sequences they compute.

    Args:
        clock: seconds, of no certain beginning.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds: dict[int, list[float]] = {}
        self._began: float | None = None
        self._lengths: list[tuple[TorchSequence, int]] = []
        self._sequences = 0

    def seconds(self, sequences: int) -> float | None:
        """The median of the last few; None where they were too few."""
        known = self._seconds.get(sequences, [])
        return statistics.median(known) if len(known) >= MEASURED else None

    def begins(self, asked: Sequence[GuessRoom], sequences: int) -> None:
        """A step of so many sequences begins, and nothing was guessed for any of those `asked`."""
        self._lengths = [(each, len(each.token_ids) + 1) for each, _ in asked]
        self._sequences = sequences
        self._began = self._clock()

    def over(self, asked: Sequence[GuessRoom]) -> None:
        """A step is over, and the next one, of those `asked`, is about to begin. What was between
        counts if it was that step alone."""
        began, self._began = self._began, None
        if began is None or [(each, len(each.token_ids)) for each, _ in asked] != self._lengths:
            return
        known = self._seconds.setdefault(self._sequences, [])
        known.append(self._clock() - began)
        del known[: -2 * MEASURED]


def _nobody(output: object) -> None:
    """Where what the draft's own sequences come to goes."""


def _recent(before: float | None, now: float) -> float:
    return now if before is None else before + RECENT * (now - before)
