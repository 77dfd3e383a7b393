"""Long prompts come in so that others' replies take about twice as long, whatever a step takes."""

from __future__ import annotations

import pytest

from providers.local.torch_engine.scheduling.pieces import (
    FIRST_TOKENS,
    LEAST_TOKENS,
    MULTIPLE,
    PIECES_IN_A_ROW,
    PromptPieces,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Engine:
    """One whose steps take so many seconds for each token of replies, and of prompts."""

    def __init__(
        self, slowdown: float, reply: float, prompt: float, *, piece: float = 0.0, most: int = 512
    ) -> None:
        self.clock = Clock()
        self.pieces = PromptPieces(most, slowdown, self.clock)
        self.reply, self.prompt, self.piece = reply, prompt, piece

    def step(self, replies: int, tokens: int) -> float:
        self.pieces.begins(replies, tokens)
        seconds = 0.01 + replies * self.reply + tokens * self.prompt
        seconds += self.piece if tokens else 0
        self.clock.now += seconds
        self.pieces.over()
        return seconds


@pytest.mark.parametrize("slowdown", [1.5, 2.0, 4.0])
@pytest.mark.parametrize("prompt", [0.0005, 0.001])
def test_a_step_takes_that_many_times_as_long(slowdown: float, prompt: float) -> None:
    engine = Engine(slowdown, 0.005, prompt)
    usual = [engine.step(8, 0) for _ in range(5)][-1]
    seconds = [engine.step(8, engine.pieces.tokens(8)) for _ in range(30)]
    assert all(each <= max(slowdown, 1 + FIRST_TOKENS * prompt / usual) * usual for each in seconds)
    # And no less than that: the prompt is to come in.
    assert seconds[-1] >= (1 + 0.5 * (slowdown - 1)) * usual


def test_pieces_become_smaller_as_a_prompt_becomes_slower() -> None:
    engine = Engine(2.0, 0.005, 0.0002)
    engine.step(8, 0)
    first = [engine.pieces.tokens(8) for _ in range(20) if engine.step(8, engine.pieces.tokens(8))]
    engine.prompt = 0.001
    for _ in range(40):
        engine.step(8, engine.pieces.tokens(8))
    assert LEAST_TOKENS < engine.pieces.tokens(8) < first[-1] / 3
    assert engine.pieces.tokens(8) % MULTIPLE == 0


def test_pieces_are_large_where_small_ones_take_as_long() -> None:
    """As on a GPU, where a step with a piece is launched kernel by kernel."""
    engine = Engine(2.0, 0.0001, 0.000025, piece=0.012, most=2048)
    usual = [engine.step(8, 0) for _ in range(3)][-1]
    pieces, seconds = [], []
    while sum(pieces) < 4000:
        pieces.append(engine.pieces.tokens(8))
        seconds.append(engine.step(8, pieces[-1]))
    assert len(pieces) < 20
    # As much again, about, as the smallest piece takes.
    assert max(seconds) < usual + 2.1 * engine.piece
    assert seconds[-1] > usual + 1.6 * engine.piece


@pytest.mark.parametrize("piece", [0.0, 0.005, 0.01, 0.02])
def test_what_a_piece_takes_at_least_counts_of_what_it_may_take(piece: float) -> None:
    """As on a CPU far in a prompt: all of its keys and values are read for a piece of any size."""
    engine = Engine(2.0, 0.003, 0.002, piece=piece)
    usual = [engine.step(8, 0) for _ in range(3)][-1]
    for _ in range(4 * PIECES_IN_A_ROW):
        engine.step(8, engine.pieces.tokens(8))
    seconds = [engine.step(8, engine.pieces.tokens(8)) for _ in range(4 * PIECES_IN_A_ROW)]
    assert max(seconds) <= max(2.0 * usual, usual + 1.9 * piece)
    assert sum(each > 1.6 * usual for each in seconds) > 3 * PIECES_IN_A_ROW


def test_small_pieces_take_no_longer_than_others_near_the_end_of_a_prompt() -> None:
    engine = Engine(2.0, 0.003, 0.001, piece=0.001)
    usual = [engine.step(8, 0) for _ in range(3)][-1]
    for _ in range(8 * PIECES_IN_A_ROW):
        engine.prompt = min(1.02 * engine.prompt, 0.009)
        engine.step(8, engine.pieces.tokens(8))
    seconds, pieces = [], []
    for _ in range(4 * (PIECES_IN_A_ROW + 1)):
        pieces.append(engine.pieces.tokens(8))
        seconds.append(engine.step(8, pieces[-1]))
    assert max(seconds) <= 2.0 * usual
    assert set(pieces) == {0, LEAST_TOKENS}


def test_what_a_piece_takes_at_least_is_forgotten_where_it_takes_that_no_more() -> None:
    engine = Engine(2.0, 0.0001, 0.000025, piece=0.012, most=2048)
    engine.step(8, 0)
    for _ in range(30):
        engine.step(8, engine.pieces.tokens(8))
    engine.piece = 0.0
    for _ in range(8 * PIECES_IN_A_ROW):
        seconds = engine.step(8, engine.pieces.tokens(8))
    usual = engine.step(8, 0)
    assert seconds < 2.1 * usual


def test_what_else_holds_up_some_steps_makes_pieces_no_larger() -> None:
    """Other processes do; what a piece takes at least is not learnt of them."""
    alone, beside = Engine(2.0, 0.005, 0.0005), Engine(2.0, 0.005, 0.0005)
    pieces: list[list[int]] = []
    for engine in (alone, beside):
        engine.step(8, 0)
        pieces.append([])
        for turn in range(20 * PIECES_IN_A_ROW):
            pieces[-1].append(engine.pieces.tokens(8))
            engine.piece = 0.3 if engine is beside and turn % 5 == 0 else 0.0
            engine.step(8, pieces[-1][-1])
    assert max(pieces[1]) <= 1.1 * max(pieces[0])


def test_the_prompt_always_comes_in() -> None:
    engine = Engine(1.01, 0.0001, 1.0)
    engine.step(1, 0)
    for _ in range(10):
        engine.step(1, engine.pieces.tokens(1))
    assert engine.pieces.tokens(1) == LEAST_TOKENS


def test_nothing_is_bounded_where_nobody_is_replied_to() -> None:
    assert PromptPieces(512, 2.0, Clock()).tokens(0) == 512


def test_what_is_not_known_yet_is_little() -> None:
    assert PromptPieces(512, 2.0, Clock()).tokens(3) == FIRST_TOKENS
    assert PromptPieces(8, 2.0, Clock()).tokens(3) == 8


def test_what_a_step_takes_is_known_by_one_with_about_as_many_replies() -> None:
    engine = Engine(2.0, 0.005, 0.0005)
    engine.step(1, 0)
    engine.step(20, 0)
    for _ in range(20):
        engine.step(20, engine.pieces.tokens(20))
    many = engine.pieces.tokens(19)
    assert many > 3 * engine.pieces.tokens(2)


def test_other_steps_teach_nothing() -> None:
    engine = Engine(2.0, 0.005, 0.0005)
    engine.step(8, 0)
    for _ in range(10):
        engine.step(8, engine.pieces.tokens(8))
    before = engine.pieces.tokens(8)
    engine.reply = engine.prompt = 10.0
    engine.step(0, 100)
    assert engine.pieces.tokens(8) == before


def test_what_a_step_takes_without_a_piece_is_looked_at_again_as_replies_grow() -> None:
    engine = Engine(2.0, 0.005, 0.0005)
    engine.step(8, 0)
    pieces = []
    for _ in range(60 * (PIECES_IN_A_ROW + 1)):
        engine.reply *= 1.002
        pieces.append(engine.pieces.tokens(8))
        engine.step(8, pieces[-1])
    assert [place for place, tokens in enumerate(pieces) if not tokens] == [
        turn * (PIECES_IN_A_ROW + 1) + PIECES_IN_A_ROW for turn in range(60)
    ]
    # A reply's token takes eight times as long: so may a piece.
    assert pieces[-2] > 4 * pieces[PIECES_IN_A_ROW - 1]
