"""Answers as they are shown."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from routing.cli.chat.screen import blocks_of, show


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", [""]),
        ("one", ["one"]),
        ("one\n", ["one\n"]),
        ("one\n\n", ["one\n", ""]),
        ("one\ntwo\n\nthree", ["one\ntwo\n", "three"]),
        ("\n\none", ["one"]),
        ("```\na\n\nb\n```\n\nc", ["```\na\n\nb\n```\n", "c"]),
        ("```\na\n\nb", ["```\na\n\nb"]),
        ("````\n```\n\n````\n\nc", ["````\n```\n\n````\n", "c"]),
        ("~~~py\n\n```\n~~~\n\nc", ["~~~py\n\n```\n~~~\n", "c"]),
    ],
)
def test_a_block_ends_with_an_empty_line_outside_of_code(text: str, blocks: list[str]) -> None:
    assert blocks_of(text) == blocks


@given(st.lists(st.sampled_from(["a", " ", "\n", "```", "~", "b\n\n"]), max_size=30))
def test_no_text_is_lost(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert "".join(blocks_of(text)).split() == text.split()


@given(st.lists(st.integers(0, 60), max_size=6))
def test_however_it_comes_all_of_it_is_shown(cuts: list[int]) -> None:
    text = "# One\n\nTwo words\n\n- three\n- four\n\n```\nfive\n\nsix\n```\nseven"
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [("content", text[a:b]) for a, b in pairwise(places)]
    shown = io.StringIO()
    show(pieces, Console(file=shown, force_terminal=True, width=40, legacy_windows=False))
    words = ("One", "Two words", "three", "four", "five", "six", "seven")
    assert all(word in shown.getvalue() for word in words)


def test_links_say_where_they_lead() -> None:
    shown = io.StringIO()
    pieces = [("content", "[your bank](https://evil.example)")]
    show(pieces, Console(file=shown, force_terminal=True, width=80, legacy_windows=False))
    assert "https://evil.example" in shown.getvalue()
    assert "\x1b]8;" not in shown.getvalue()
