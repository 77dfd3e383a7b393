"""What vendors count and seal, whatever they make of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.anthropic_messages.usage import Counts
from llama_compat.dialects.counts import MAX_COUNT, count, members
from llama_compat.dialects.gemini.replies import parse_usage as parse_gemini
from llama_compat.dialects.gemini.responses import render_usage as render_gemini
from llama_compat.dialects.openai.usage import parse_usage as parse_openai
from llama_compat.dialects.openai.usage import read_usage as read_openai
from llama_compat.dialects.openai_responses.output.response_object import (
    parse_usage as parse_responses,
)
from llama_compat.dialects.seals import parse_seal
from llama_compat.types import Usage
from llama_compat.wire.json_fields import encode_json


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (3, 3),
        (3.0, 3),
        ("3", 3),
        (MAX_COUNT, MAX_COUNT),
        (MAX_COUNT + 1, None),
        (-1, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        (None, None),
        ("", None),
        ("3.5", None),
        ("9" * 20, None),
        ("\N{SUPERSCRIPT TWO}", None),
        ([3], None),
        ({}, None),
    ],
)
def test_a_count_is_a_number_of_tokens_or_none(value: Any, expected: int | None) -> None:
    assert count(value) == expected


def test_only_objects_have_members() -> None:
    assert members({"a": 1}) == {"a": 1}
    for value in (None, [], [1], "text", 3, True):
        assert members(value) == {}


@pytest.mark.parametrize("usage", [None, [], "many", 3, {"prompt_tokens_details": 3}])
def test_usage_that_makes_no_sense_is_none(usage: Any) -> None:
    assert Counts(usage).usage() == Usage()
    assert parse_gemini(usage) in (None, Usage())
    assert parse_responses(usage) in (None, Usage())


def test_usage_is_read_as_far_as_it_makes_sense() -> None:
    gemini = {"promptTokenCount": "3", "candidatesTokenCount": 4.0, "thoughtsTokenCount": [1]}
    assert parse_gemini(gemini) == Usage(3, 4)
    anthropic = {"input_tokens": "3", "output_tokens": 4, "cache_read_input_tokens": {}}
    assert Counts({**anthropic, "output_tokens_details": 3}).usage() == Usage(3, 4)
    responses = {"input_tokens": 3, "output_tokens": 4.0, "input_tokens_details": "many"}
    assert parse_responses(responses) == Usage(3, 4)


def test_reasoning_is_never_more_than_all_that_was_generated() -> None:
    # Where it is, it was counted beside it, or the other count is missing.
    openai = {"prompt_tokens": 3, "completion_tokens": 4}
    told = {"reasoning_tokens": 9}
    thought = Usage(3, 13, reasoning_tokens=9)
    assert parse_openai({**openai, "completion_tokens_details": told}) == thought
    assert (
        parse_openai({**openai, "total_tokens": 16, "completion_tokens_details": told}) == thought
    )
    read = read_openai(Raw(encode_json({**openai, "completion_tokens_details": told})))
    assert read == thought
    responses = {"input_tokens": 3, "output_tokens": 4}
    assert parse_responses({**responses, "output_tokens_details": told}) == thought
    assert Counts({**responses, "output_tokens_details": {"thinking_tokens": 9}}).usage() == thought
    assert render_gemini(parse_openai({"completion_tokens_details": told})) == {
        "promptTokenCount": 0,
        "candidatesTokenCount": 0,
        "thoughtsTokenCount": 9,
        "totalTokenCount": 9,
    }


@pytest.mark.parametrize("seal", [None, "", "c2ln"])
def test_a_seal_is_text_in_ascii(seal: str | None) -> None:
    assert parse_seal(seal) == seal


@pytest.mark.parametrize("seal", [3, True, ["c2ln"], {}, "\ud83d", "\N{BULLET}"])
def test_all_else_is_no_seal(seal: Any) -> None:
    with pytest.raises(ValueError, match="no text in ASCII"):
        parse_seal(seal)
