"""Separated JSON: whatever the cuts, the objects that were sent come out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.wire.json_lines import (
    NEWLINE,
    NUL,
    JSONLines,
    LineTooLongError,
    ends_of_lines,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=4)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(
    sent=st.lists(json_objects, max_size=5),
    places=st.lists(st.integers(0, 10_000), max_size=12),
    separator=st.sampled_from([NEWLINE, NUL, b"\r\n"]),
    ascii_only=st.booleans(),
    last_separator=st.booleans(),
)
def test_objects_survive_any_cut(
    sent: list[dict[str, Any]],
    places: list[int],
    separator: bytes,
    ascii_only: bool,
    last_separator: bool,
) -> None:
    lines = [json.dumps(each, ensure_ascii=ascii_only).encode() for each in sent]
    data = separator.join(lines) + (separator if last_separator else b"")
    decoder = JSONLines(separator[-1:])
    got = [each for piece in cut(data, places) for each in decoder.feed(piece)]
    assert got + list(decoder.flush()) == sent
    assert list(decoder.flush()) == []


def test_an_object_comes_out_as_soon_as_it_is_complete() -> None:
    decoder = JSONLines(NUL)
    assert list(decoder.feed(b'{"text": "a"')) == []
    assert list(decoder.feed(b'}\0{"text"')) == [{"text": "a"}]
    assert list(decoder.feed(b': "b"}\0')) == [{"text": "b"}]


def test_blank_lines_are_skipped() -> None:
    data = b'\n\r\n{"a": 1}\r\n \n{"a": 2}\n'
    assert list(JSONLines().feed(data)) == [{"a": 1}, {"a": 2}]


def test_blank_lines_are_not_looked_at_one_by_one() -> None:
    """They are a bomb otherwise: 100 KB of gzip are 100 MB of them."""
    assert list(ends_of_lines(b"\r\n" * 1000 + b'{"a": 1}\n' + b"\n" * 1000 + b"{", NEWLINE)) == [
        b"\r",
        b'{"a": 1}',
    ]
    assert list(ends_of_lines(b"\0" * 1000, NUL)) == [b""]


def test_a_separator_of_another_kind_belongs_to_the_object() -> None:
    assert list(JSONLines(NUL).feed(b'{\n"a":\n1}\0')) == [{"a": 1}]


def test_half_a_character_is_json_all_the_same() -> None:
    assert list(JSONLines().feed(b'{"a": "\\ud83d"}\n')) == [{"a": "\ud83d"}]


@pytest.mark.parametrize(
    "line", [b"<html>", b'{"a": ', b"[1]", b"null", b'"text"', b'{"a": 1} {"b": 2}', b"[" * 9999]
)
def test_what_is_not_one_object_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(JSONLines().feed(line + b"\n"))


def test_what_came_before_a_broken_line_comes_out_before_the_error() -> None:
    objects = JSONLines().feed(b'{"a": 1}\n{"a": 2}\n<html>\n{"a": 3}\n')
    assert [next(objects), next(objects)] == [{"a": 1}, {"a": 2}]
    with pytest.raises(ValueError, match=r"."):
        next(objects)


def test_an_object_cut_by_the_end_of_the_stream_is_refused() -> None:
    decoder = JSONLines()
    assert list(decoder.feed(b'{"done": true')) == []
    with pytest.raises(ValueError, match=r"."):
        list(decoder.flush())


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    decoder = JSONLines(max_line_bytes=100)
    assert list(decoder.feed(b"x" * 60)) == []
    with pytest.raises(LineTooLongError, match="100 bytes"):
        list(decoder.feed(b"x" * 60))


def test_the_limit_is_a_line_s_not_the_stream_s() -> None:
    decoder = JSONLines(max_line_bytes=10)
    assert list(decoder.feed(b'{"a": 1}\n' * 50)) == [{"a": 1}] * 50
