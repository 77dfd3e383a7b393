"""What was kept of a request, as a conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routing.observability.records.record import Record
from routing.page.conversation import as_chat, said

ASKED: dict[tuple[str, str], Any] = {
    ("openai", "chat"): {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5},
    ("openai", "completions"): {"prompt": "Hi"},
    ("responses", "responses"): {"input": "Hi"},
    ("anthropic", "messages"): {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
    ("gemini", "gemini_generate"): {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    ("ollama", "ollama_chat"): {"messages": [{"role": "user", "content": "Hi"}]},
}


def record(api: str, operation: str, *, stream: bool = False) -> Record:
    return Record(0.0, "r", "", api, operation, model="m", stream=int(stream))


@pytest.mark.parametrize(("api", "operation"), ASKED)
def test_whichever_api_it_came_by(api: str, operation: str) -> None:
    body = json.dumps({"model": "m", **ASKED[api, operation]}).encode()
    chat = as_chat(record(api, operation), body)
    assert chat is not None
    assert (chat["model"], chat["messages"]) == ("m", [{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize(
    "body",
    [b"", b"[cut]", b'{"model": "m", "mess[cut]', b"[]", b"1", b'{"messages": 7}', b"[" * 9999],
)
@pytest.mark.parametrize(("api", "operation"), ASKED)
def test_what_cannot_be_read_is_none(api: str, operation: str, body: bytes) -> None:
    assert as_chat(record(api, operation), body) is None
    assert said(record(api, operation), body) is None
    assert said(record(api, operation, stream=True), body) is None


def test_what_is_no_conversation_is_none() -> None:
    assert as_chat(record("openai", "embeddings"), b'{"input": "Hi"}') is None
    assert as_chat(record("nobody", "chat"), b'{"messages": []}') is None
    assert said(record("openai", "embeddings"), b"{}") is None


def test_what_was_said_with_its_calls() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": "Well.", "tool_calls": [call]}
    reply = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    found = said(record("openai", "chat"), json.dumps(reply).encode())
    assert found is not None
    assert found["content"] == "Well."
    assert found["tool_calls"][0]["function"] == call["function"]
