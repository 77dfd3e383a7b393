"""Guesses that are computed: what they cost is measured.

A sequence whose guesses don't pay for that goes on without.
"""

from __future__ import annotations

import logging
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from msgspec import structs

from providers.local.engine import Generation
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
"""Sequences that are guessed for in one step, at most."""

AT_FIRST = 1.5
"""What a sequence has for guesses when it begins, in steps: they cost more than to look."""

MEASURED = 4
"""Steps without guesses, of each number of sequences, before there are any: what they take has to
be known."""

UNKNOWN_COST = 0.3
"""What a guessed token takes before there was one, in steps of the model."""

RECENT = 0.1
"""What the last step counts for beside all before it."""


class MeasuredGuesser(ABC):
    """Has something that goes ahead say what may come; see `Guesser`.

    Args:
        most: how many tokens it guesses at most, of one sequence.
        longest: the most tokens of a sequence that it can have.
        clock: seconds, of no certain beginning.
    """

    def __init__(
        self, most: int, longest: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._most, self._longest = most, longest
        self._clock = clock
        self._accounts: WeakKeyDictionary[TorchSequence, Account] = WeakKeyDictionary()
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
                log.error("guessing ends, as what guesses failed", exc_info=error)
                self._failed = True
            if found:
                guessed, share = max(map(len, found.values())), sequences / len(found)
                expected = guessed * _cost_each(self._cost(usual), len(found), sequences)
                lengths = {each: len(each.token_ids) + 1 for each in found}
                self._round = _Round(began, usual, share, expected, lengths)
        if not found:
            self._plain.begins(asked, sequences)
        return [found.get(each, ()) for each, _ in asked]

    def settle(self, sequence: TorchSequence, guessed: int, right: int, sequences: int) -> None:
        """See `Guesser`."""
        self._accounts[sequence].settle(guessed, right)
        if self._round is not None and sequence in self._round.lengths:
            self._round.lengths[sequence] += right

    def _pay(self, asked: Sequence[GuessRoom]) -> None:
        """Those that had guesses in the last step pay what it took beyond one without: the time of
        guessing, and that of more tokens in a step, for all that waited meanwhile. Where something
        else was between, it is what was to be expected."""
        last, self._round = self._round, None
        if last is None:
            return
        now = {each: len(each.token_ids) for each, _ in asked}
        steps = last.expected
        if all(now.get(each) == length for each, length in last.lengths.items()):
            steps = (self._clock() - last.began) / last.usual - 1
            steps = min(AT_MOST, steps * last.share)
        for each in last.lengths:
            self._accounts[each].spend(steps)

    def _cost(self, usual: float) -> float:
        """What a guessed token takes, in steps of the model that take so many seconds."""
        return UNKNOWN_COST if self._token_seconds is None else self._token_seconds / usual

    def _wanted(
        self, asked: Sequence[GuessRoom], sequences: int, cost: float
    ) -> dict[TorchSequence, int]:
        """How many tokens to guess for which sequences; what guesses of few take all wait for, so
        that these are dearer."""
        rooms = {}
        for each, most in asked:
            most = min(most, self._most, self._longest - len(each.token_ids))
            if most >= 1:
                rooms[each] = most
                self._accounts[each].earn()
        while rooms:
            one = _cost_each(cost, len(rooms), sequences)
            found = {
                each: width
                for each, most in rooms.items()
                if (width := self._accounts[each].width(most, one))
            }
            if len(found) == len(rooms):
                return found
            rooms = {each: rooms[each] for each in found}
        return {}

    @abstractmethod
    def _guess(self, wanted: dict[TorchSequence, int]) -> dict[TorchSequence, tuple[int, ...]]:
        """What may come after the tokens of each, so many at most; of some there may be nothing."""

    def _took(self, began: float) -> None:
        """A token of each was guessed since then."""
        self._token_seconds = _recent(self._token_seconds, self._clock() - began)


def as_guessed(sequence: TorchSequence) -> TorchSequence:
    """Another sequence of the same tokens, which draws what follows by the same numbers."""
    generation = sequence.generation
    sampling = structs.replace(
        generation.sampling,
        seed=sequence.seed,
        # They count what was said, and of what is guessed some never is.
        frequency_penalty=0.0,
        presence_penalty=0.0,
        repetition_penalty=1.0,
    )
    plain = Generation(generation.prompt_ids, sampling, generation.max_tokens)
    made = TorchSequence(plain, nobody)
    made.token_ids = list(sequence.token_ids)
    return made


def nobody(output: object) -> None:
    """Where what sequences come to goes that are there for guessing alone."""


class _Round(NamedTuple):
    """A step with guesses.

    Attributes:
        began: when the guessing did.
        usual: seconds of a step without.
        share: how many waited for it, for each that was guessed for.
        expected: what it should cost each of these beyond that, in such steps.
        lengths: the tokens that each sequence has when it is over.
    """

    began: float
    usual: float
    share: float
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


def _cost_each(cost: float, guessed_for: int, sequences: int) -> float:
    """What a token for each costs it, in steps.

    Args:
        cost: of guessing it, in steps, for however many.
        guessed_for: how many have one.
        sequences: how many wait for it.
    """
    return cost_of_one(sequences) + cost * sequences / guessed_for


def _recent(before: float | None, now: float) -> float:
    return now if before is None else before + RECENT * (now - before)
