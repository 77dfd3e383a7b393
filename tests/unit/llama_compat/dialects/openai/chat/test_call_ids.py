"""Ids of calls in the bytes of chat messages."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.openai.chat.call_ids import with_fitting_ids
from llama_compat.tools.call_ids import alphanumeric_id

NINE = partial(alphanumeric_id, length=9)


def fitted(messages: Any) -> Any:
    return json.loads(bytes(with_fitting_ids(Raw(json.dumps(messages).encode()), NINE)))


def call(call_id: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_ids_fit_in_calls_and_in_answers() -> None:
    messages = [
        {"role": "user", "content": 'the "tool_calls"'},
        {"role": "assistant", "tool_calls": [call("call_1"), call("abcDEF123")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "x"},
        {"role": "tool", "tool_call_id": "abcDEF123", "content": "y"},
        {"role": "assistant", "tool_calls": [call("abcDEF123")]},
        {"role": "tool", "tool_call_id": "abcDEF123", "content": "z"},
    ]
    told = fitted(messages)
    one, two = NINE("call_1"), NINE("abcDEF123-2")
    assert [each["id"] for each in told[1]["tool_calls"]] == [one, "abcDEF123"]
    assert [message["tool_call_id"] for message in told[2:4]] == [one, "abcDEF123"]
    assert (told[4]["tool_calls"][0]["id"], told[5]["tool_call_id"]) == (two, two)
    told[1], told[2], told[4], told[5] = messages[1], messages[2], messages[4], messages[5]
    assert told == messages


@pytest.mark.parametrize(
    "messages",
    [
        b'[{"role": "assistant", "tool_calls": [{"id":"abcDEF123" }]}]',
        b'[{"tool_calls": null, "tool_call_id": 7}]',
        b'[{"tool_calls": [7]}]',
        b'[{"tool_calls": [{"id": null}, 7]}]',
        b'{"tool_calls": []}',
        b'["tool_calls"]',
        b"[1",
    ],
)
def test_what_fits_or_makes_no_sense_keeps_its_bytes(messages: bytes) -> None:
    assert bytes(with_fitting_ids(Raw(messages), NINE)) == messages
