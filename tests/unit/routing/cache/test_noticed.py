"""What of a request nobody has read."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.fitting.honoured import decoded
from routing.cache.noticed import NoticedMembers, has_unread
from tests.unit.calls import call_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def unread(operation: Operation, body: dict[str, Any]) -> bool:
    members = NoticedMembers(decoded(call_of(body, operation)))
    translation: Any = operation.parse(members, "m")
    return has_unread(members, translation.requests, {"model"}, {"cache_control"})


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x"}, *messages], **more}


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (CHAT, chat(temperature=0.5, stop=["a"], seed=3, logprobs=True, top_logprobs=2)),
        (CHAT, chat(tools=[{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}])),
        (CHAT, chat(unknown=None)),
        (
            MESSAGES,
            {
                "max_tokens": 3,
                "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
                "messages": [{"role": "user", "content": "x"}],
                "tools": [{"name": "f", "input_schema": SCHEMA}],
            },
        ),
        (
            RESPONSES,
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]},
        ),
    ],
)
def test_what_the_vocabulary_has_words_for(operation: Operation, body: dict[str, Any]) -> None:
    assert not unread(operation, body)


@pytest.mark.parametrize(
    "body",
    [
        chat(unknown=1),
        chat({"role": "assistant", "content": "It", "prefix": True}),
        chat({"role": "user", "content": [{"type": "text", "text": "x", "annotations": [1]}]}),
        chat(
            tools=[
                {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "mode": "x"}}
            ]
        ),
    ],
)
def test_what_it_has_none_for(body: dict[str, Any]) -> None:
    assert unread(CHAT, body)


def test_a_copy_of_everything_has_read_nothing() -> None:
    members = NoticedMembers({"a": {"b": 1}})
    assert {**members} == dict(members.items()) == {"a": {"b": 1}}
    assert has_unread(members, ())
    assert members["a"].get("b") == 1
    assert not has_unread(members, ())
    assert members.pop("c", None) is None
