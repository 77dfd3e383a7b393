"""Custom tools and the older functions of chats, and calls in the client's own form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from llama_compat.dialects.base import TOOL_GRAMMAR, Labels
from llama_compat.dialects.openai.chat import ChatCall, parse_request
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.errors import APIError
from llama_compat.events import Collector, ReplyParts
from llama_compat.tools.calls import ToolCallAssembler
from llama_compat.tools.custom_tools import wrap
from llama_compat.types import (
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    ToolCall,
    ToolChoice,
    ToolResponseMessage,
    Usage,
)
from llama_compat.wire import sse

USER = {"role": "user", "content": "x"}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
TOOLS = [
    {"type": "function", "function": FUNCTION},
    {"type": "custom", "custom": {"name": "patch", "description": "Edits.", "format": GRAMMAR}},
]
PATCH = {"type": "custom", "custom": {"name": "patch"}}
LABELS = Labels("m", created=1)


def parsed(**body: Any) -> ChatCall:
    return parse_request({"messages": [USER], **body}, "m")


def said(*calls: tuple[str, str, str]) -> list[StreamEvent]:
    """Events of a reply with these calls, their arguments in pieces of three characters."""
    assembler, parts = ToolCallAssembler(), ReplyParts()
    deltas = []
    for index, (call_id, name, arguments) in enumerate(calls):
        deltas += assembler.push(index=index, call_id=call_id, tool_name=name, arguments="")
        for place in range(0, len(arguments), 3):
            piece = arguments[place : place + 3]
            deltas += assembler.push(index=index, call_id=None, tool_name=None, arguments=piece)
    deltas += assembler.finish()
    events = [parts.progress(delta) for delta in deltas]
    return [StreamStart(), *events, StreamComplete(StopReason.end_of_message)]


def whole(call: ChatCall, events: list[StreamEvent]) -> dict[str, Any]:
    collector = Collector()
    for event in events:
        collector.add(event)
    reply: dict[str, Any] = json.loads(
        call.render_reply([collector.chat_completion()], Usage(), LABELS)
    )
    ChatCompletion.model_validate(reply)
    choice: dict[str, Any] = reply["choices"][0]
    return choice


def streamed(call: ChatCall, events: list[StreamEvent]) -> list[dict[str, Any]]:
    renderer = call.stream_renderer(LABELS)
    body = b"".join(renderer.render(0, event) for event in events) + renderer.finish(Usage())
    return [
        json.loads(event.data)["choices"][0]
        for event in sse.EventDecoder().feed(body)
        if not event.is_done
    ]


# ---- custom tools --------------------------------------------------------------------------------


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    call = parsed(tools=TOOLS)
    names = [tool.tool_name for tool in call.request.tools]
    assert names == ["add", "patch"]
    patch = call.request.tools[1]
    assert patch.parameters is not None
    assert patch.parameters["required"] == ["input"]
    assert "start: x" in (patch.description or "")


def test_a_grammar_is_named_as_told_alone() -> None:
    asked = CHAT.parameters({"messages": [USER], "tools": TOOLS})
    assert asked["tools[1].custom.format"] == TOOL_GRAMMAR
    text = {"type": "custom", "custom": {"name": "p", "format": {"type": "text"}}}
    assert TOOL_GRAMMAR not in CHAT.parameters({"tools": [text]}).values()


def test_a_custom_tool_may_be_chosen() -> None:
    assert parsed(tools=TOOLS, tool_choice=PATCH).request.tool_choice == ToolChoice(
        "required", "patch"
    )
    allowed = {"mode": "required", "tools": [PATCH]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    offered = parsed(tools=TOOLS, tool_choice=choice).request.tools
    assert [tool.tool_name for tool in offered] == ["patch"]


@pytest.mark.parametrize("of", ["tool_choice", "allowed"])
def test_a_function_is_not_chosen_as_a_custom_tool(of: str) -> None:
    choice: dict[str, Any] = {"type": "custom", "custom": {"name": "add"}}
    if of == "allowed":
        allowed = {"mode": "auto", "tools": [choice]}
        choice = {"type": "allowed_tools", "allowed_tools": allowed}
    with pytest.raises(APIError):
        parsed(tools=TOOLS, tool_choice=choice)


def test_calls_of_custom_tools_are_read() -> None:
    made = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": 'a "b"'}}
    assistant = {"role": "assistant", "content": None, "tool_calls": [made]}
    answer = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    messages = parsed(tools=TOOLS, messages=[USER, assistant, answer]).request.messages
    (call,) = messages[1].tool_calls  # type: ignore[union-attr]
    assert isinstance(call, ToolCall)
    assert (call.call_id, call.arguments) == ("c1", {"input": 'a "b"'})


def test_a_reply_has_calls_of_both_kinds() -> None:
    events = said(("c1", "add", '{"a": 1}'), ("c2", "patch", wrap('x "y"\n')))
    choice = whole(parsed(tools=TOOLS), events)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": 'x "y"\n'}},
    ]


def test_a_stream_has_calls_of_both_kinds() -> None:
    events = said(("c1", "add", '{"a": 1}'), ("c2", "patch", wrap('x "y"\n')))
    choices = streamed(parsed(tools=TOOLS, stream=True), events)
    assert choices[-1]["finish_reason"] == "tool_calls"
    sent = [each for choice in choices for each in choice["delta"].get("tool_calls", ())]
    assert [each["type"] for each in sent if "type" in each] == ["function", "custom"]
    custom = [each["custom"] for each in sent if "custom" in each]
    assert custom[0] == {"name": "patch", "input": ""}
    assert "".join(each["input"] for each in custom) == 'x "y"\n'
    assert all(each["index"] == 1 for each in sent if "custom" in each)
    assert len(custom) > 2


def test_a_call_that_comes_whole_is_streamed_whole() -> None:
    start, *_, last, end = said(("c1", "patch", wrap("xyz")))
    choices = streamed(parsed(tools=TOOLS, stream=True), [start, last, end])
    (sent,) = choices[1]["delta"]["tool_calls"]
    assert sent == {
        "index": 0,
        "id": "c1",
        "type": "custom",
        "custom": {"name": "patch", "input": "xyz"},
    }


# ---- functions -----------------------------------------------------------------------------------


def test_functions_are_tools_of_which_one_is_called() -> None:
    request = parsed(functions=[FUNCTION]).request
    assert request.tools == parsed(tools=TOOLS[:1]).request.tools
    assert request.parallel_tool_calls is False
    assert request.tool_choice is None


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ({"name": "add"}, ToolChoice("required", "add")),
    ],
)
def test_function_call_is_a_choice(choice: Any, expected: ToolChoice) -> None:
    assert parsed(functions=[FUNCTION], function_call=choice).request.tool_choice == expected


def test_the_older_names_ask_for_what_the_newer_do() -> None:
    asked = CHAT.parameters({"functions": [FUNCTION], "function_call": {"name": "add"}})
    assert asked == {"functions": "tools", "function_call": "tool_choice"}
    assert CHAT.parameters({"functions": [FUNCTION], "function_call": "auto"}) == {
        "functions": "tools"
    }
    assert CHAT.parameters({"function_call": "none"}) == {}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"functions": [FUNCTION], "tools": TOOLS}, "functions"),
        ({"functions": [{"description": "x"}]}, "functions[0].name"),
        ({"functions": [FUNCTION], "function_call": "required"}, "function_call"),
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].name"),
    ],
)
def test_what_is_malformed_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        parsed(**body)
    assert refused.value.param == param


def test_messages_of_the_older_kind_are_calls_and_answers() -> None:
    first = {"role": "assistant", "function_call": {"name": "add", "arguments": '{"a": 1}'}}
    second = {"role": "assistant", "function_call": {"name": "add", "arguments": '{"a": 2}'}}
    answers = [{"role": "function", "name": "add", "content": each} for each in ("1", None)]
    talk = [USER, first, answers[0], second, answers[1]]
    messages = parsed(functions=[FUNCTION], messages=talk).request.messages
    calls = [each for message in messages for each in getattr(message, "tool_calls", ())]
    assert [call.arguments_json for call in calls] == ['{"a": 1}', '{"a": 2}']
    assert calls[0].call_id != calls[1].call_id
    assert [message for message in messages if isinstance(message, ToolResponseMessage)] == [
        ToolResponseMessage(calls[0].call_id, "1"),
        ToolResponseMessage(calls[1].call_id, ""),
    ]
    # Vendors cache what comes again.
    assert parsed(functions=[FUNCTION], messages=talk).request.messages == messages


def test_a_reply_to_functions_has_a_function_call() -> None:
    choice = whole(parsed(functions=[FUNCTION]), said(("c1", "add", '{"a": 1}')))
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "add", "arguments": '{"a": 1}'}
    assert "tool_calls" not in choice["message"]
    assert whole(parsed(functions=[FUNCTION]), said())["finish_reason"] == "stop"


def test_a_stream_to_functions_has_a_function_call() -> None:
    choices = streamed(parsed(functions=[FUNCTION]), said(("c1", "add", '{"a": 1}')))
    state = ChatCompletionStreamState()
    for choice in choices:
        state.handle_chunk(
            ChatCompletionChunk.model_validate(
                {
                    "id": "1",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                }
            )
        )
    read = state.current_completion_snapshot.choices[0]
    assert read.finish_reason == "function_call"
    assert read.message.function_call is not None
    assert read.message.function_call.name == "add"
    assert read.message.function_call.arguments == '{"a": 1}'
