"""How deep JSON is nested."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from llama_compat.wire.json_depth import MAX_DEPTH, is_deeper, too_deep
from llama_compat.wire.json_fields import from_raw, parse_fields, to_raw, unicode_from_raw


def depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


texts = st.text(st.sampled_from('[]{}"\\n\n,: \x7fé'), max_size=8)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=20,
)


@given(values, st.integers(0, 12), st.booleans())
def test_it_is_as_deep_as_python_finds_it(value: Any, limit: int, ascii: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii).encode()
    assert is_deeper(data, limit) is (depth(value) > limit)


@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"[":', b"}]")]
)
def test_the_limit_itself_is_allowed(opening: bytes, closing: bytes) -> None:
    levels = opening.count(b"[{") + 1
    data = opening * (MAX_DEPTH // levels) + b"1" + closing * (MAX_DEPTH // levels)
    assert not is_deeper(data)
    assert is_deeper(b"[%b]" % data)


@pytest.mark.parametrize("data", [b"[" * 1_000_000, b"[" * 1_000_000 + b"]" * 1_000_000])
def test_no_depth_is_too_much_to_see(data: bytes) -> None:
    assert is_deeper(data)


@pytest.mark.parametrize(
    "data",
    [
        b'"%b"' % (b"[" * 1000),
        b'"\\\\%b"' % (b"[" * 1000),
        b'["\\"%b"]' % (b"{" * 1000),
        b"[]" * 999,
    ],
)
def test_brackets_side_by_side_or_in_text_do_not_count(data: bytes) -> None:
    assert not is_deeper(data)


def test_a_request_says_which_member_is_too_deep() -> None:
    fine: Any = []
    for _ in range(MAX_DEPTH - 2):
        fine = [fine]
    assert too_deep({"a": to_raw(fine), "b": to_raw("[" * 999)}) is None
    assert too_deep({"a": to_raw(fine), "b": to_raw([fine])}) == "b"
    assert too_deep({}) is None


def test_what_is_too_deep_to_be_parsed_at_all_is_an_error_of_its_own() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_fields(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    deep = Raw(b"[" * 100_000 + b"]" * 100_000)
    for read in (from_raw, unicode_from_raw):
        with pytest.raises(ValueError, match="nested too deeply"):
            read(deep)
        with pytest.raises(ValueError, match="nested too deeply"):
            read(Raw(b'["\\ud83d",' + b"[" * 100_000))
