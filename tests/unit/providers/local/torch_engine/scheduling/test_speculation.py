"""What is guessed, and that guessing never loses more than it may."""

from __future__ import annotations

import random

import pytest

from providers.local.torch_engine.scheduling.speculation import (
    AT_FIRST,
    AT_MOST,
    EARNED,
    MOST_ROWS,
    Guesses,
    cost_of_one,
)


def rich() -> Guesses:
    """One that has been right before, and has all that can be saved up."""
    guesses = Guesses()
    for _ in range(8):
        guesses.settle(2, 2, 1)
    return guesses


def test_what_followed_the_last_time() -> None:
    tokens = [1, 2, 3, 4, 5, 9, 1, 2, 3, 6, 7, 8, 1, 2, 3]
    assert rich().next(tokens, 3, 1) == (6, 7, 8)
    assert rich().next(tokens[:9], 3, 1) == (4, 5, 9)


def test_two_tokens_that_are_the_same_are_not_enough() -> None:
    assert rich().next([1, 2, 3, 4, 5, 2, 3], 4, 1) == ()
    assert rich().next([1, 2, 3], 4, 1) == ()
    assert rich().next([], 4, 1) == ()


def test_the_last_tokens_are_not_their_own_place() -> None:
    assert rich().next([7, 7, 7], 4, 1) == ()
    # They overlap with what they repeat.
    assert rich().next([7, 7, 7, 7], 4, 1) == (7,)


def test_what_was_learnt_in_parts_is_what_is_learnt_at_once() -> None:
    dice = random.Random(4)
    tokens = [dice.randrange(3) for _ in range(300)]
    grown = rich()
    for end in range(1, len(tokens) + 1):
        assert grown.next(tokens[:end], 4, 1) == rich().next(tokens[:end], 4, 1)
        grown.settle(1, 1, 1)


FILE = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]


def test_behind_a_token_that_was_changed_it_goes_on() -> None:
    guesses, tokens = rich(), [*FILE, 10, 11, 12]
    assert guesses.next(tokens, 4, 1) == (13, 14, 15, 16)
    guesses.settle(4, 2, 1)
    # 99 in place of 15: what stands behind that is next, though nothing was said like it.
    tokens += [13, 14, 99]
    assert guesses.next(tokens, 4, 1) == (16, 17)
    # Of these the second was changed too.
    guesses.settle(2, 1, 1)
    tokens += [16, 98]
    assert guesses.next(tokens, 4, 1) == (18, 19)


def test_it_does_not_go_on_behind_more_than_a_token() -> None:
    guesses, tokens = rich(), [*FILE, 10, 11, 12]
    guesses.next(tokens, 4, 1)
    guesses.settle(4, 0, 1)
    tokens += [99]
    assert guesses.next(tokens, 4, 1) == (14, 15)
    guesses.settle(2, 0, 1)
    tokens += [98]
    assert guesses.next(tokens, 4, 1) == ()
    # Nor a step later.
    assert guesses.next([*tokens, 97], 4, 1) == ()


def test_it_goes_on_behind_at_once_or_not_at_all() -> None:
    guesses, tokens = rich(), [*FILE, 10, 11, 12]
    guesses.next(tokens, 4, 1)
    guesses.settle(4, 1, 1)
    assert guesses.next([*tokens, 13, 99], 0, 1) == ()
    assert guesses.next([*tokens, 13, 99, 98], 4, 1) == ()


def test_what_followed_the_last_time_is_before_what_is_behind() -> None:
    guesses, tokens = rich(), [1, 2, 99, 50, 51, *FILE, 1, 2, 10, 11, 12]
    assert guesses.next([*tokens[:-3], *FILE[:3]], 4, 1) == (13, 14, 15, 16)
    guesses.settle(4, 0, 1)
    assert guesses.next([*tokens, 1, 2, 99], 4, 1) == (50, 51)


def test_all_that_were_right_change_nothing() -> None:
    guesses, tokens = rich(), [*FILE, 10, 11, 12]
    assert guesses.next(tokens, 2, 1) == (13, 14)
    guesses.settle(2, 2, 1)
    assert guesses.next([*tokens, 13, 14, 77], 2, 1) == ()


def test_no_more_than_there_is_room_for() -> None:
    tokens = [*range(20), 0, 1, 2]
    assert [len(rich().next(tokens, most, 1)) for most in (0, 1, 2, 5, 100)] == [
        0,
        1,
        2,
        5,
        MOST_ROWS,
    ]


def test_it_begins_with_few_and_takes_more_while_they_are_right() -> None:
    guesses, tokens, widths = Guesses(), [*range(40), 0, 1, 2], []
    for _ in range(4):
        guessed = guesses.next(tokens, MOST_ROWS, 1)
        widths.append(len(guessed))
        guesses.settle(len(guessed), len(guessed), 1)
    assert widths == [2, 4, 8, 8]


def test_after_a_wrong_one_it_takes_as_many_as_were_right() -> None:
    guesses, tokens = rich(), [*range(40), 0, 1, 2]
    guesses.settle(8, 3, 1)
    assert len(guesses.next(tokens, MOST_ROWS, 1)) == 3


@pytest.mark.parametrize("sequences", [1, 2, 4])
def test_it_loses_next_to_nothing_where_all_guesses_are_wrong(sequences: int) -> None:
    guesses, tokens, spent = Guesses(), [*range(40), 0, 1, 2], 0.0
    for _ in range(1000):
        guessed = guesses.next(tokens, MOST_ROWS // sequences - 1, sequences)
        if guessed:
            spent += len(guessed) * cost_of_one(sequences)
            guesses.settle(len(guessed), 0, sequences)
    assert 0 < spent <= AT_FIRST + 1000 * EARNED


def test_what_it_saved_is_bounded() -> None:
    guesses, tokens, wrong = rich(), [*range(40), 0, 1, 2], 0.0
    for _ in range(100):
        guesses.settle(8, 8, 1)
    while guessed := guesses.next(tokens, MOST_ROWS, 1):
        wrong += len(guessed) * cost_of_one(1)
        guesses.settle(len(guessed), 0, 1)
    assert wrong <= AT_MOST + 1


def test_a_token_more_costs_what_it_takes_of_a_step_s_share() -> None:
    assert cost_of_one(1) == 0.25
    # Four sequences: 1.75 steps of one, of which each has a quarter.
    assert cost_of_one(4) == pytest.approx(0.25 / (1.75 / 4))
