"""Messages without the names of those who say them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.openai.chat.own_members.speakers import without_speakers
from llama_compat.wire.json_fields import to_raw

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_names_of_speakers_are_left_out_and_others_stay() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "x", "name": "rules"},
        {"role": "user", "content": "x", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "name": "bot"},
        {"role": "tool", "tool_call_id": "1", "content": "x", "name": "f"},
    ]
    told = json.loads(bytes(without_speakers(to_raw(messages))))
    assert [message.get("name") for message in told] == [None, None, None, "f"]
    assert told[2]["tool_calls"] == [CALL]
    assert [each["content"] for each in told] == ["x", "x", None, "x"]


@pytest.mark.parametrize(
    "messages",
    [
        b'[{"role": "user",  "content": "x"}]',
        b'[{"role": "tool",  "content": "x", "name": "f"}]',
        b'[{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]',
        b'[{"role": "user", "content": "\\"name\\""}]',
        b'{"name": 1}',
        b'["name"]',
    ],
)
def test_what_has_none_keeps_its_bytes(messages: bytes) -> None:
    raw = Raw(messages)
    assert without_speakers(raw) is raw
