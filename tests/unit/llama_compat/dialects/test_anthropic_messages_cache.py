"""Marks for Anthropic's cache of prompts, where a client has set none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages.input.cache_marks import with_cache_marks
from llama_compat.wire.json_fields import encode_fields, parse_fields

MARK = {"cache_control": {"type": "ephemeral"}}
TOOLS = [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}]
CALL = {"type": "tool_use", "id": "1", "name": "a", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "22"}


def marked(**body: Any) -> dict[str, Any]:
    fields = parse_fields(json.dumps(body).encode())
    result: dict[str, Any] = json.loads(encode_fields(with_cache_marks(fields)))
    return result


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_tools_system_and_the_last_two_turns_are_marked() -> None:
    body = marked(
        tools=TOOLS,
        system="Be brief.",
        messages=[
            user("one"),
            {"role": "assistant", "content": "1"},
            user([{"type": "text", "text": "two"}]),
            {"role": "assistant", "content": [CALL]},
            user([RESULT]),
        ],
    )
    assert body["tools"] == [TOOLS[0], TOOLS[1] | MARK]
    assert body["system"] == [{"type": "text", "text": "Be brief."} | MARK]
    assert body["messages"][0] == user("one")
    assert body["messages"][2] == user([{"type": "text", "text": "two"} | MARK])
    assert body["messages"][4] == user([RESULT | MARK])
    assert json.dumps(body).count("cache_control") == 4


def test_the_last_turn_is_where_the_next_request_looks() -> None:
    # A round of tools may be longer than what is looked at before a mark.
    history = [user("one")]
    before = marked(messages=history)["messages"][-1]
    history += [{"role": "assistant", "content": [CALL] * 30}, user([RESULT] * 30)]
    assert marked(messages=history)["messages"][0] == before


@pytest.mark.parametrize(
    "where",
    [
        {"cache_control": {"type": "ephemeral"}},
        {"system": [{"type": "text", "text": "Be brief."} | MARK]},
        {"tools": [TOOLS[0] | MARK]},
        {"messages": [user([{"type": "text", "text": "Hi"} | MARK])]},
    ],
)
def test_a_client_that_marks_is_left_alone(where: dict[str, Any]) -> None:
    body = {"system": "Be brief.", "messages": [user("Hi")], **where}
    assert marked(**body) == body


def test_what_cant_be_marked_is_passed_over() -> None:
    late = {"name": "c", "input_schema": {}, "defer_loading": True}
    body = marked(
        tools=[*TOOLS, late],
        system="",
        messages=[user("one"), user([{"type": "text", "text": ""}]), user("")],
    )
    assert body["tools"] == [TOOLS[0], TOOLS[1] | MARK, late]
    assert body["system"] == ""
    assert body["messages"][0]["content"] == [{"type": "text", "text": "one"} | MARK]
    assert body["messages"][1:] == [user([{"type": "text", "text": ""}]), user("")]


@pytest.mark.parametrize("messages", [7, [7], [{"role": "user"}], [{"role": "user", "content": 7}]])
def test_what_is_malformed_stays_as_it_is(messages: Any) -> None:
    body = {"system": "Be brief.", "messages": messages}
    assert marked(**body) == body
