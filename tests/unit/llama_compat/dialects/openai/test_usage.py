"""OpenAI's `usage`, read from the bytes that a vendor sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from llama_compat.dialects.counts import MAX_COUNT
from llama_compat.dialects.openai.usage import parse_usage, read_usage
from llama_compat.types import Usage
from llama_compat.wire.json_fields import to_raw

COUNTS = st.one_of(
    st.integers(0, 500),
    st.sampled_from([None, -1, True, 2.0, 1.5, "7", "x", MAX_COUNT, MAX_COUNT + 1, 10**30, [], {}]),
)


def some(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, COUNTS))


DETAILS = st.one_of(
    st.none(),
    st.just("none"),
    some("cached_tokens", "cache_write_tokens", "reasoning_tokens", "audio_tokens"),
)
USAGES = st.builds(
    lambda counts, details: {**counts, **details},
    some("prompt_tokens", "completion_tokens", "total_tokens", "prompt_cache_hit_tokens"),
    st.fixed_dictionaries(
        {},
        optional={"prompt_tokens_details": DETAILS, "completion_tokens_details": DETAILS},
    ),
)


@given(USAGES)
def test_bytes_are_read_as_what_they_stand_for(usage: dict[str, Any]) -> None:
    assert read_usage(to_raw(usage)) == parse_usage(usage)


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (None, None),
        (b"null", None),
        (b"[]", None),
        (b'"many"', None),
        (b"{}", Usage()),
        (b'{"prompt_tokens":3,"completion_tokens":4}', Usage(3, 4)),
        (b'{"prompt_tokens":null,"completion_tokens":4.0}', Usage(0, 4)),
        (
            b'{"prompt_tokens":9,"completion_tokens":2,"total_tokens":16,"prompt_tokens_details":'
            b'{"cached_tokens":8,"cache_write_tokens":1},"completion_tokens_details":'
            b'{"reasoning_tokens":5}}',
            Usage(9, 7, 8, 5, 1),
        ),
        (
            b'{"prompt_tokens":9,"completion_tokens":2,"prompt_cache_hit_tokens":4}',
            Usage(9, 2, 4),
        ),
    ],
)
def test_what_a_vendor_sent(raw: bytes | None, read: Usage | None) -> None:
    assert read_usage(None if raw is None else Raw(raw)) == read
