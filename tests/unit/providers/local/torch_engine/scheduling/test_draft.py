"""A draft's own account of what it has computed, and of what it costs."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from llama_compat.types import GreedySamplingStrategy, SamplingParams
from providers.local.engine import Generation
from providers.local.torch_engine.model_runner import flattened
from providers.local.torch_engine.scheduling.draft import Draft, DraftGuesser
from providers.local.torch_engine.scheduling.measured_guesser import MEASURED
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.speculation import GuessRoom
from providers.local.torch_engine.scheduling.step import Chunk

VOCABULARY, LONGEST = 50, 128


def follows(tokens: Sequence[int]) -> int:
    """What the draft says after these tokens."""
    return sum((place + 1) * token for place, token in enumerate(tokens)) % VOCABULARY


class TokenCache:
    """A runner whose cache holds tokens, so that whatever is not what it should be is seen."""

    def __init__(self) -> None:
        self.now = 0.0
        self.computed = 0
        self.fails = False
        self._slots: dict[int, int] = {}

    def clock(self) -> float:
        return self.now

    def forward(self, chunks: Sequence[Chunk], chosen: torch.Tensor | None = None) -> torch.Tensor:
        if self.fails:
            raise RuntimeError("out of order")
        self.now += 0.001
        flat = flattened(chunks, 16)
        self.computed += len(flat.token_ids)
        self._slots.update(zip(flat.slots, flat.token_ids, strict=True))
        rows = []
        for chunk in chunks:
            own, end = chunk.sequence, chunk.sequence.computed + chunk.tokens
            held = [self._slots[own.blocks[at // 16] * 16 + at % 16] for at in range(end)]
            assert held == own.token_ids[:end], "the cache has other tokens than the sequence"
            if chunk.logits:
                row = torch.zeros(VOCABULARY)
                row[follows(held)] = 9.0
                rows.append(row)
        return torch.stack(rows) if rows else torch.empty(0, VOCABULARY)


def sequence_of(tokens: Sequence[int]) -> TorchSequence:
    sampling = SamplingParams(strategy=GreedySamplingStrategy())
    return TorchSequence(Generation(tuple(tokens), sampling, 100), lambda _: None)


def guesser_of(cache: TokenCache, step_tokens: int = 32) -> DraftGuesser:
    draft = Draft(cache, LONGEST // 16, LONGEST, step_tokens, 4)
    return DraftGuesser(draft, VOCABULARY, clock=cache.clock)


def measured(guesser: DraftGuesser, cache: TokenCache, sequences: int, seconds: float) -> None:
    """Steps without guesses, which take so long."""
    others = [sequence_of([1, 2]) for _ in range(sequences)]
    for each in others:
        guesser.begins(each)
    asked = [GuessRoom(each, 4) for each in others]
    for _ in range(MEASURED):
        assert not any(guesser.guess(asked, sequences))
        cache.now += seconds
        for each in others:
            each.token_ids.append(3)
    guesser.guess(asked, sequences)


def one_round(
    guesser: DraftGuesser, sequences: Sequence[TorchSequence], chance: random.Random
) -> None:
    """A step: what the draft says, and what the model says to that."""
    asked = [GuessRoom(each, 4) for each in sequences]
    guesses = guesser.guess(asked, len(sequences))
    for each, guessed in zip(sequences, guesses, strict=True):
        tokens = each.token_ids
        for place, token in enumerate(guessed):
            assert token == follows([*tokens, *guessed[:place]])
        right = chance.randrange(len(guessed) + 1)
        wrong = (follows([*tokens, *guessed[:right]]) + 1) % VOCABULARY
        tokens += [*guessed[:right], wrong]
        if guessed:
            guesser.settle(each, len(guessed), right, len(sequences))
        if chance.random() < 0.3:  # a step without guesses, whose token is among those guessed
            tokens.append(guessed[right + 1] if right + 1 < len(guessed) else 7)


def test_it_goes_on_from_what_was_said_whatever_was_guessed() -> None:
    cache, chance = TokenCache(), random.Random(5)
    guesser = guesser_of(cache)
    for count in (1, 2, 3):
        measured(guesser, cache, count, 1.0)
    before = cache.computed
    running: list[TorchSequence] = []
    for _ in range(300):
        while len(running) < chance.choice((1, 2, 3)):
            fresh = sequence_of([chance.randrange(50) for _ in range(chance.randrange(1, 60))])
            guesser.begins(fresh)
            running.append(fresh)
        one_round(guesser, running, chance)
        running = [each for each in running if len(each.token_ids) < 110]
        chance.shuffle(running)
    assert cache.computed - before > 500, "hardly anything was guessed"


def test_a_prompt_that_goes_on_from_another_is_not_computed_again() -> None:
    cache = TokenCache()
    guesser = guesser_of(cache)
    measured(guesser, cache, 1, 1.0)
    first = sequence_of(range(1, 31))
    guesser.begins(first)
    assert guesser.guess([GuessRoom(first, 4)], 1) != [()]
    before = cache.computed
    second = sequence_of([*range(1, 31), 9, 9])
    guesser.begins(second)
    assert guesser.guess([GuessRoom(second, 2)], 1) != [()]
    assert cache.computed - before == 2 + 1  # what is new of the prompt, and the first guess


def test_a_long_prompt_comes_in_by_parts() -> None:
    cache = TokenCache()
    guesser = guesser_of(cache, step_tokens=8)
    measured(guesser, cache, 1, 1.0)
    long = sequence_of(range(1, 31))
    guesser.begins(long)
    computed = []
    while not any(found := guesser.guess([GuessRoom(long, 4)], 1)):
        computed.append(cache.computed)
        assert len(computed) < 10
    assert [later - earlier for earlier, later in pairwise(computed)] == [8, 8]
    assert len(computed) == 3
    assert found[0][0] == follows(range(1, 31))


def test_nothing_is_guessed_before_it_is_known_what_a_step_takes() -> None:
    cache = TokenCache()
    guesser = guesser_of(cache)
    measured(guesser, cache, 2, 1.0)  # asserts it
    alone = sequence_of([1, 2, 3])
    guesser.begins(alone)
    assert guesser.guess([GuessRoom(alone, 4)], 1) == [()]


@pytest.mark.parametrize(
    ("step_seconds", "row_cost", "is_right", "pays"),
    [
        (0.02, 0.25, True, True),
        (0.02, 0.25, False, False),
        (0.0012, 0.25, True, False),
        # On a machine that is busy, or in numbers of 32 bits, a token more may cost a whole step.
        (0.02, 1.2, True, False),
    ],
)
def test_a_draft_that_does_not_pay_is_hardly_asked(
    step_seconds: float, row_cost: float, is_right: bool, pays: bool
) -> None:
    cache = TokenCache()
    guesser = guesser_of(cache)
    measured(guesser, cache, 1, step_seconds)
    said = sequence_of([1, 2, 3])
    guesser.begins(said)
    taken = steps = 0
    while len(said.token_ids) < 120:
        began = cache.now
        [guessed] = guesser.guess([GuessRoom(said, 4)], 1)
        cache.now += step_seconds * (1 + row_cost * len(guessed))
        right = len(guessed) if is_right else 0
        said.token_ids += [*guessed[:right], 0]
        if guessed:
            guesser.settle(said, len(guessed), right, 1)
        taken += cache.now - began
        steps += 1
    gain = 117 * step_seconds / taken
    assert gain > 1.5 if pays else gain > 0.94


def test_a_draft_that_fails_ends_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    cache = TokenCache()
    guesser = guesser_of(cache)
    measured(guesser, cache, 1, 1.0)
    said = sequence_of([1, 2, 3])
    guesser.begins(said)
    cache.fails = True
    assert guesser.guess([GuessRoom(said, 4)], 1) == [()]
    assert "what guesses failed" in caplog.text
    cache.fails = False
    assert guesser.guess([GuessRoom(said, 4)], 1) == [()]
