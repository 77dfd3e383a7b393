"""Characters that a stream was cut inside of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.text.surrogates import SurrogateJoiner, json_escape


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["plain"], ["plain", ""]),
        (["a\ud83d", "\ude00b"], ["a", "😀b", ""]),
        (["a\ud83d"], ["a", "\ufffd"]),
        (["\ude00"], ["\ufffd", ""]),
        (["\ud83d", "x"], ["", "\ufffdx", ""]),
        (["\ud83d\ud83d", "\ude00"], ["\ufffd", "😀", ""]),
        (["\ud83d", "", "\ude00"], ["", "", "😀", ""]),
        (["é\ud83d\ude00"], ["é😀", ""]),
    ],
)
def test_halves_are_joined(pieces, shown):
    joiner = SurrogateJoiner()
    assert [*(joiner.push(piece) for piece in pieces), joiner.flush()] == shown


def test_a_half_that_stays_alone_may_become_an_escape():
    joiner = SurrogateJoiner(json_escape)
    assert joiner.push("a\ude00\ud83d") + joiner.flush() == "a\\ude00\\ud83d"


@given(st.text(), st.data())
def test_text_cut_by_utf_16_units_comes_out_whole(text, data):
    units = text.encode("utf-16-le", "surrogatepass")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(units) // 2), max_size=6)))
    joiner = SurrogateJoiner()
    shown = [
        joiner.push(units[2 * a : 2 * b].decode("utf-16-le", "surrogatepass"))
        for a, b in zip([0, *cuts], [*cuts, len(units) // 2], strict=True)
    ]
    assert "".join(shown) + joiner.flush() == text
