"""Nothing in a request or a whole reply goes by unread, whichever API's it is."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from llama_compat.guardrails.documents import has_twins, mapped, without_tokens
from llama_compat.guardrails.settings import Place
from llama_compat.wire.json_fields import from_raw
from tests.examples import examples
from tests.unit.llama_compat.guardrails.texts import texts_of

NAMES = st.sampled_from(
    ["content", "text", "input", "type", "role", "parts", "arguments", "data", "metadata", "output"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [each for item in value for each in strings(item)]
    if isinstance(value, dict):
        return [each for name, item in value.items() for each in (name, *strings(item))]
    return []


@settings(max_examples=examples(300), deadline=None)
@given(VALUES)
def test_each_text_is_read_once(value: Any) -> None:
    said = [text for _, text in texts_of(value, "input")]
    numbers = [each for each in said if each not in strings(value)]
    assert sorted(strings(value)) == sorted(each for each in said if each not in numbers)
    assert all(each.isdecimal() for each in numbers)
    assert mapped(value, "input", lambda place, text: text) is value


def places(value: Any) -> dict[str, Place]:
    return {text: place for place, text in texts_of(value, "input") if text.startswith("canary")}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"messages": [{"role": "user", "content": "canary"}]}, "input"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "canary"}]}]},
            "input",
        ),
        ({"messages": [{"role": "tool", "content": "canary"}]}, "tool_results"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "canary"}}]}, "tool_arguments"),
        ({"type": "tool_use", "input": {"a": ["canary"]}}, "tool_arguments"),
        ({"type": "tool_result", "content": [{"text": "canary"}]}, "tool_results"),
        ({"type": "document", "source": {"type": "text", "data": "canary" * 20}}, "input"),
        ({"type": "function_call", "arguments": "canary"}, "tool_arguments"),
        ({"type": "function_call_output", "output": "canary"}, "tool_results"),
        ({"type": "mcp_call", "output": "canary"}, "tool_results"),
        ({"input": "canary"}, "input"),
        ({"contents": [{"parts": [{"text": "canary"}]}]}, "input"),
        ({"functionCall": {"args": {"a": "canary"}}}, "tool_arguments"),
        ({"functionResponse": {"response": {"a": "canary"}}}, "tool_results"),
        ({"prompt": "canary", "suffix": "x"}, "input"),
        ({"tools": [{"function": {"description": "canary"}}]}, "input"),
        ({"metadata": {"canary": "x"}}, "input"),
    ],
)
def test_each_place_in_each_api(value: Any, place: Place) -> None:
    (found,) = places(value).values()
    assert found == place


def test_what_nobody_reads_as_text_is_left_alone() -> None:
    binary = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(50)).decode()
    value = {
        "image_url": {"url": f"data:image/png;base64,{binary}"},
        "images": [binary, "A" * 2000],
        "source": {"type": "base64", "media_type": "image/png", "data": binary},
        "thinking": [{"type": "thinking", "thinking": "canary", "signature": "seal"}],
        "redacted": {"type": "redacted_thinking", "data": "seal"},
    }
    texts = [text for _, text in texts_of(value, "input")]
    assert "canary" in texts
    assert not {binary, "A" * 2000, "seal", f"data:image/png;base64,{binary}"} & set(texts)


def test_a_key_is_a_text_whatever_its_member_is_called() -> None:
    key = "sk-proj-" + "aB3dE6gH9j" * 16
    for value in (
        {"functionResponse": {"response": {"result": key}}},
        {"type": "tool_use", "input": {"data": key}},
        {"image": key},
    ):
        assert key in [text for _, text in texts_of(value, "input")]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (rb'{"a": "x", "a": "y"}', True),
        (rb'[{"a": 1, "b": {"c": "\\", "c": "\\\\\""}}]', True),
        (rb'{"a": 1, "\u0061": 2}', True),
        (rb'{"a": "\"a\": 1, \\", "b": ["a", "a"]}', False),
        (rb'"\\\"\\"', False),
        (rb'{"\u0061\/": "\u0022\u005c"}', False),
        (rb"[1, 2.50, null]", False),
    ],
)
def test_no_member_hides_behind_another_of_its_name(raw: bytes, expected: bool) -> None:
    assert has_twins(raw, from_raw(Raw(raw))) is expected


def test_numbers_that_tools_are_given_are_texts_too() -> None:
    value = {"type": "tool_use", "input": {"card": 4111111111111111, "n": 3}}
    changed = mapped(value, "input", lambda place, text: text.replace("4111111111111111", "<X>"))
    assert changed["input"] == {"card": "<X>", "n": 3}


def test_tokens_do_not_tell_what_a_reply_said() -> None:
    reply = {
        "text": "<CARD_1>",
        "words": [{"word": "4111", "start": 0.5}],
        "segments": [{"text": "<CARD_1>", "tokens": [4111]}],
        "choices": [
            {
                "message": {"content": "<CARD_1>"},
                "logprobs": {"content": [{"token": "4111", "bytes": [52]}]},
                "token_ids": [4111],
            }
        ],
        "candidates": [{"logprobsResult": {"chosenCandidates": [{"token": "4111"}]}}],
        "meta": {"tokens": {"input_tokens": 3}},
        "usage": {"tokens": 9},
    }
    shown = without_tokens(reply)
    assert "4111" not in str(shown)
    assert shown["text"] == shown["segments"][0]["text"] == "<CARD_1>"
    assert shown["choices"] == [
        {"message": {"content": "<CARD_1>"}, "logprobs": None, "token_ids": []}
    ]
    assert shown["meta"] == reply["meta"]
    assert shown["usage"] == reply["usage"]
