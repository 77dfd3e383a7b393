"""Stop strings: what is shown of a text that comes in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.text.stop_strings import StopStrings

# Few letters, so that stop strings overlap with the text, with each other and with themselves.
TEXTS = st.text(alphabet="abé", max_size=40)
STOPS = st.lists(st.text(alphabet="abé", min_size=1, max_size=6), max_size=4)


def shown(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    finder = StopStrings(stops)
    text = ""
    for piece in pieces:
        more, stopped = finder.push(piece)
        text += more
        if stopped:
            return text, True
    return text + finder.flush(), False


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    """The same, said plainly: the shortest beginning of the text that ends with a stop string."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


@given(text=TEXTS, stops=STOPS, cuts=st.lists(st.integers(0, 40)))
def test_the_cuts_do_not_matter(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert shown(stops, pieces) == expected(stops, text)


@given(text=TEXTS, stops=STOPS)
def test_no_stop_string_is_ever_shown(text: str, stops: list[str]) -> None:
    visible, stopped = shown(stops, list(text))
    assert not any(stop in visible for stop in stops)
    assert stopped == any(stop in text for stop in stops)


@given(text=TEXTS, stops=STOPS)
def test_only_a_possible_beginning_is_held_back(text: str, stops: list[str]) -> None:
    finder = StopStrings(stops)
    visible = ""
    for end, character in enumerate(text, 1):
        more, stopped = finder.push(character)
        visible += more
        if stopped:
            break
        held = text[len(visible) : end]
        assert not held or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(
    ("stops", "pieces", "visible", "stopped"),
    [
        ([], ["any", "thing"], "anything", False),
        (["\n\n"], ["one\n", "two\n", "\nthree"], "one\ntwo", True),
        (["aab"], ["aa", "ab", "c"], "a", True),
        (["STOP", "TOP"], ["xS", "TOP"], "x", True),
        (["abcd", "bc"], ["ab", "cd"], "a", True),
        (["END"], ["the EN"], "the EN", False),
        (["é"], ["caf", "é au lait"], "caf", True),
        (["a"], [""], "", False),
    ],
)
def test_examples(stops: list[str], pieces: list[str], visible: str, stopped: bool) -> None:
    assert shown(stops, pieces) == (visible, stopped)


def test_nothing_comes_after_the_end() -> None:
    finder = StopStrings(["x"])
    assert finder.push("axb") == ("a", True)
    assert finder.push("more") == ("", True)
    assert finder.flush() == ""
