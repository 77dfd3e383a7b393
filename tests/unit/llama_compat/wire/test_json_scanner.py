"""Where JSON ends in a text that comes in pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.wire.json_scanner import JSONScanner
from tests.unit import vocabulary


def scan(pieces: list[str]) -> tuple[int | None, bool, bool]:
    """How many characters there are to the end, or to where it breaks; whole; broken."""
    scanner = JSONScanner()
    before = 0
    for piece in pieces:
        end = scanner.feed(piece)
        if end is not None:
            return before + end, scanner.whole, scanner.broken
        before += len(piece)
    return None, scanner.whole, scanner.broken


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("{} rest", 2),
        (' \n[1, "]", {"a": [true, null, -1.5e+3]}]]', 40),
        ('{"a\\"}": "}\\\\"}}', 15),
        ('{"a": "é😀{["}', 13),
    ],
)
def test_the_end_is_found(text, end):
    assert scan([text]) == (end, True, False)
    assert scan(list(text)) == (end, True, False)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("x{}", 0),
        ("1", 0),
        ('"a"', 0),
        ("  ,{}", 0),
        ("}", 0),
        ("{]", 1),
        ("[}", 1),
        ('{"a": x}', 6),
        ('{"a": "b\nc"}', 8),
        ("{'a': 1}", 1),
    ],
)
def test_a_break_is_found(text, at):
    _, whole, broken = scan([text])
    assert (whole, broken) == (False, True)
    assert scan(list(text))[1:] == (False, True)
    if text.strip() == text:
        assert scan([text])[0] == scan(list(text))[0] == at


@pytest.mark.parametrize("text", ["", " ", "{", '{"a": "', '{"a": "\\', "[1, 2"])
def test_more_may_be_needed(text):
    assert scan([text]) == scan(list(text)) == (None, False, False)


@given(vocabulary.json_objects | st.lists(vocabulary.json_values), st.booleans(), st.data())
def test_all_json_ends_where_it_ends(value, ascii_only, data):
    text = json.dumps(value, ensure_ascii=ascii_only)
    content = text + data.draw(st.sampled_from(["", "}", " {", '"']))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(content)), max_size=8)))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    assert scan(pieces) == (len(text), True, False)
