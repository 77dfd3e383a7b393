"""What guesses cost that are computed, and who pays for that."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

from llama_compat.types import SamplingParams
from providers.local.engine import Generation
from providers.local.torch_engine.scheduling.measured_guesser import MEASURED, MeasuredGuesser
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.speculation import MOST_ROWS, ROW_COST, GuessRoom

STEP = 0.01
"""Seconds of a step of one token."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Ahead(MeasuredGuesser):
    """Takes so many steps for a token, of however many sequences."""

    def __init__(self, clock: Clock, cost: float) -> None:
        super().__init__(4, 10_000, clock)
        self.clock = clock
        self.cost = cost
        self.guessed_for: list[int] = []

    def _guess(self, wanted: dict[TorchSequence, int]) -> dict[TorchSequence, tuple[int, ...]]:
        self.guessed_for.append(len(wanted))
        for _ in range(max(wanted.values(), default=0)):
            began = self._clock()
            self.clock.now += self.cost * STEP
            self._took(began)
        return {each: (0,) * width for each, width in wanted.items()}


def begun(guesser: MeasuredGuesser) -> TorchSequence:
    sequence = TorchSequence(Generation((1, 2), SamplingParams(), 10_000), lambda _: None)
    guesser.begins(sequence)
    return sequence


def step(
    guesser: Ahead,
    sequences: Sequence[TorchSequence],
    right: Callable[[TorchSequence, int], int],
) -> int:
    """A step of all; how many tokens it gave."""
    count = len(sequences)
    asked = [GuessRoom(each, MOST_ROWS // count - 1) for each in sequences]
    guesses = guesser.guess(asked, count)
    guesser.clock.now += _seconds(count + sum(map(len, guesses)))
    before = sum(len(each.token_ids) for each in sequences)
    for each, guessed in zip(sequences, guesses, strict=True):
        count_right = right(each, len(guessed)) if guessed else 0
        each.token_ids += [0] * (1 + count_right)
        if guessed:
            guesser.settle(each, len(guessed), count_right, count)
    return sum(len(each.token_ids) for each in sequences) - before


def _seconds(tokens: int) -> float:
    return STEP * (1 + ROW_COST * (tokens - 1))


def gain(guesser: Ahead, count: int, right: Callable[[TorchSequence, int], int]) -> float:
    """How many times as fast as without guesses so many at a time are, who come and go."""
    dice, tokens = random.Random(3), 0
    running = {begun(guesser): dice.randrange(20, 300) for _ in range(count)}
    for _ in range(MEASURED + 1):  # what steps take is known then
        step(guesser, list(running), right)
    began = guesser.clock.now
    while tokens < 20_000:
        tokens += step(guesser, list(running), right)
        for each in [each for each, length in running.items() if len(each.token_ids) > length]:
            del running[each]
            running[begun(guesser)] = dice.randrange(150, 300)
    return tokens / count * _seconds(count) / (guesser.clock.now - began)


@pytest.mark.parametrize("cost", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_guesses_that_are_wrong_cost_next_to_nothing(count: int, cost: float) -> None:
    guesser = Ahead(Clock(), cost)
    found = gain(guesser, count, lambda _, guessed: 0)
    assert 0.97 <= found < 1.0
    assert any(guesser.guessed_for)


@pytest.mark.parametrize(("count", "least"), [(1, 2.0), (2, 1.5), (4, 1.1)])
def test_guesses_that_are_right_pay(count: int, least: float) -> None:
    assert gain(Ahead(Clock(), 0.05), count, lambda _, guessed: guessed) > least


@pytest.mark.parametrize("count", [1, 2, 4])
def test_guesses_that_are_right_and_dear_are_left_alone(count: int) -> None:
    assert gain(Ahead(Clock(), 1.0), count, lambda _, guessed: guessed) >= 0.98


def test_one_of_four_pays_for_what_all_wait_for() -> None:
    """What it guesses is right, and not worth it to the others: together they are no slower."""
    first: list[TorchSequence] = []

    def right(sequence: TorchSequence, guessed: int) -> int:
        first[:] = first or [sequence]
        return guessed if sequence is first[0] else 0

    assert gain(Ahead(Clock(), 0.3), 4, right) >= 0.97
