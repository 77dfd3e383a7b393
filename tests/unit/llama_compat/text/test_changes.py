"""What has become of a text, told by whoever changes it."""

from __future__ import annotations

import re

import pytest

from llama_compat.text.changes import Changes, InTurn, substituted


def told(*runs: tuple[str, str | None], in_bytes: bool = False) -> Changes:
    changes = Changes(in_bytes=in_bytes)
    for said, instead in runs:
        changes.keep(said) if instead is None else changes.put(said, instead)
    return changes


def test_what_is_put_in_place_of_the_same_changes_nothing() -> None:
    changes = told(("ab", None), ("cdef", "cdef"), ("gh", None))
    assert not changes.are_some
    assert [changes.place(at, is_end=False) for at in range(9)] == list(range(9))


@pytest.mark.parametrize(
    ("at", "begin", "end"), [(0, 0, 0), (2, 2, 2), (3, 2, 3), (4, 3, 3), (6, 5, 5), (7, 5, 6)]
)
def test_several_change_a_text_in_turn(at: int, begin: int, end: int) -> None:
    # `ab` `cd` `ef` `ghi` is shown as `ab` `X` `ef` `Y`, by one and by the other.
    one = told(("ab", None), ("cd", "X"), ("efghi", None))
    other = told(("abXef", None), ("ghi", "Y"))
    both = InTurn([one, other])
    assert both.are_some
    assert (both.place(at, is_end=False), both.place(at, is_end=True)) == (begin, end)


def test_nobody_changes_nothing() -> None:
    assert not InTurn([]).are_some
    assert InTurn([]).place(7, is_end=True) == 7


def test_what_is_substituted_is_told() -> None:
    changes = Changes(in_bytes=False)
    numbers = re.compile(r"\d+")
    shown = substituted(numbers, lambda match: "<n>", "a 12345 b 6", changes)
    assert shown == "a <n> b <n>"
    assert changes.place(8, is_end=False) == 6
    assert substituted(numbers, lambda match: "<n>", "a 12345", None) == "a <n>"
