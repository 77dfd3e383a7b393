"""How many tokens there were, where no vendor says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from llama_compat.extent import Prompt
from llama_compat.types import Usage
from routing.observability.records.estimate import (
    MAX_COUNT,
    completion_tokens,
    counted_or_estimated,
    sane,
)
from routing.observability.sample import Sample


def sent(*pieces: bytes, head_bytes: int = 4096) -> Sample:
    sample = Sample(head_bytes)
    for piece in pieces:
        sample.add(piece)
    return sample


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"choices":[{"message":{"role":"assistant","content":"twelve chars"}}]}', 3),
        (b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n' * 12, 3),
        (b'data: {"type":"content_block_delta","delta":{"text":"abcd"}}\n\n' * 3, 3),
        (b'{"response": "abcd"}\n' * 3, 3),
        (rb'{"content":"a\"b\\cd"}', 2),
        (b'{"content":"cut off in the mid', 5),
        (b'{"content":"abcde"}', 2),
        (b"", 0),
    ],
)
def test_the_completion_s(body: bytes, tokens: int) -> None:
    assert completion_tokens(sent(body)) == tokens


def test_a_long_stream_is_like_its_beginning() -> None:
    event = b'data: {"choices":[{"delta":{"content":"abcd"}}]}\n\n'
    assert completion_tokens(sent(*[event] * 1000, head_bytes=len(event) * 10)) == 1000


@given(st.binary(max_size=200))
def test_anything_can_be_estimated(body: bytes) -> None:
    assert 0 <= completion_tokens(sent(body)) <= len(body)


TEXT = b'{"content":"abcdefgh"}'
ASKED = Prompt({"p": Raw(b'"%b"' % (b"x" * 38))}, "p")


@pytest.mark.parametrize(
    ("counted", "complete", "expected"),
    [
        pytest.param(Usage(7, 5, 3), True, (Usage(7, 5, 3), False), id="counted"),
        pytest.param(Usage(7, 0), True, (Usage(7, 0), False), id="nothing was said"),
        pytest.param(None, True, (Usage(10, 2), True), id="nobody counted"),
        pytest.param(Usage(), True, (Usage(10, 2), True), id="somebody counted nothing"),
        pytest.param(
            Usage(7, 9, estimated=True), True, (Usage(7, 9, estimated=True), True), id="cut here"
        ),
        pytest.param(None, False, (Usage(10, 2), True), id="cut before anybody counted"),
        pytest.param(Usage(7, 1, 3), False, (Usage(7, 2, 3), True), id="cut: more was sent"),
        pytest.param(Usage(7, 9), False, (Usage(7, 9), True), id="cut: more was counted"),
    ],
)
def test_what_counts(counted: Usage | None, complete: bool, expected: tuple[Usage, bool]) -> None:
    assert counted_or_estimated(counted, ASKED, lambda: sent(TEXT), complete=complete) == expected


@pytest.mark.parametrize("nonsense", [-1, 1.5, "3", True, None, MAX_COUNT + 1])
def test_nonsense_is_no_count(nonsense: Any) -> None:
    usage = Usage(nonsense, nonsense, nonsense, nonsense, nonsense)
    assert sane(usage) == Usage(0, 0, None, None, None)
    assert sane(Usage(nonsense, estimated=True)) == Usage(estimated=True)
    assert sane(Usage(1, 0, 0, MAX_COUNT, 2)) == Usage(1, 0, 0, MAX_COUNT, 2)
