"""What was asked and said, in OpenTelemetry's shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from routing.observability.telemetry.content import input_messages, output_messages


def asked(**members: Any) -> list[tuple[str, list[str]]]:
    fields = {name: Raw(json.dumps(value).encode()) for name, value in members.items()}
    return [
        (message["role"], [part["content"] for part in message["parts"]])
        for message in json.loads(input_messages(fields))
    ]


USER = {"role": "user", "content": "Hi"}
BOTH = [("system", ["Be brief."]), ("user", ["Hi"])]


@pytest.mark.parametrize(
    ("members", "messages"),
    [
        ({"messages": [{"role": "system", "content": "Be brief."}, USER]},
         BOTH),
        ({"system": "Be brief.", "messages": [USER]}, BOTH),
        ({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]}]},
         [("user", ["a", "b"])]),
        ({"input": "Hi", "instructions": "Be brief."}, BOTH),
        ({"contents": [{"role": "model", "parts": [{"text": "Hi"}]}]}, [("model", ["Hi"])]),
        ({"systemInstruction": {"parts": [{"text": "Be brief."}]}}, [("system", ["Be brief."])]),
        ({"prompt": ["a", "b"]}, [("user", ["a"]), ("user", ["b"])]),
        ({"messages": [{"role": "assistant", "content": None}, 7]}, [("assistant", [])]),
        ({}, []),
    ],
)  # fmt: skip
def test_what_was_asked(members: dict[str, Any], messages: list[Any]) -> None:
    assert asked(**members) == messages


@pytest.mark.parametrize(
    ("reply", "streamed", "texts"),
    [
        (b'{"choices":[{"message":{"role":"assistant","content":"Hello"}}]}', False, ["Hello"]),
        (b'{"type":"message","content":[{"type":"text","text":"Hello"}]}', False, ["Hello"]),
        (b'{"candidates":[{"content":{"parts":[{"text":"Hello"}]}}]}', False, ["Hello"]),
        (b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
         b'data: {"choices":[{"delta":{"content":"lo"}}]}\n\ndata: [DONE]\n\n', True, ["Hello"]),
        (b'{"choices":[{"mess', False, []),
        (b"", True, []),
    ],
)  # fmt: skip
def test_what_was_said(reply: bytes, streamed: bool, texts: list[str]) -> None:
    (message,) = json.loads(output_messages(reply, "stop", streamed=streamed))
    assert (message["role"], message["finish_reason"]) == ("assistant", "stop")
    assert [part["content"] for part in message["parts"]] == texts
