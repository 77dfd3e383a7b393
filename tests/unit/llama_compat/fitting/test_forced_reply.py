from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal

import pytest
from msgspec import structs

from llama_compat.events import Collector
from llama_compat.fitting.forced_reply import (
    as_text,
    json_by_call,
    reply_by_call,
    thought_before_forced_call,
    with_json_call,
)
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    ReasoningDelta,
    ResponseFormat,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    ToolChoice,
    ToolDefinition,
    UnparseableToolCall,
    UserMessage,
)

STATUS = ToolCallParseStatus
WHOLE = ToolCall("c", "reply", {"a": 1}, '{"a": 1}')
STARTED = ToolCallDelta(0, STATUS.started, "c", "reply")
PIECES = [ToolCallDelta(0, STATUS.in_progress, arguments=each) for each in ('{"a"', ": 1}")]
DONE = ToolCallDelta(0, STATUS.succeeded, tool_call=WHOLE)


async def said(deltas: Sequence[object], stop: StopReason) -> Collector:
    async def events() -> AsyncGenerator[StreamEvent, None]:
        yield StreamStart(3)
        for part, delta in enumerate(deltas):
            yield StreamProgress(delta, part=part)  # type: ignore[arg-type]
        yield StreamComplete(stop)

    collector = Collector()
    async for event in as_text(events()):
        collector.add(event)
    return collector


@pytest.mark.parametrize(
    "deltas",
    [
        [STARTED, *PIECES, DONE],
        [DONE],
        [TextDelta("Here you are: "), STARTED, *PIECES, DONE],
        [STARTED, *PIECES, DONE, ToolCallDelta(1, STATUS.started, "d", "reply")],
    ],
)
async def test_the_arguments_are_the_text_and_nothing_else_is(deltas: list[object]) -> None:
    message = (await said(deltas, StopReason.end_of_message)).chat_completion().completion_message
    assert (message.content, message.tool_calls) == ('{"a": 1}', ())
    assert message.stop_reason is StopReason.end_of_turn


async def test_thoughts_stay() -> None:
    reply = (await said([ReasoningDelta("hm"), DONE], StopReason.end_of_message)).chat_completion()
    assert reply.completion_message.reasoning == "hm"


async def test_what_is_cut_off_says_so() -> None:
    broken = ToolCallDelta(0, STATUS.failed, tool_call=UnparseableToolCall("c", "reply", '{"a"'))
    reply = (await said([STARTED, broken], StopReason.out_of_tokens)).chat_completion()
    assert reply.completion_message.content == '{"a"'
    assert reply.completion_message.stop_reason is StopReason.out_of_tokens


async def test_what_is_said_in_the_place_of_a_call_is_the_reply() -> None:
    pieces = [TextDelta("I "), TextDelta("won't.")]
    message = (await said(pieces, StopReason.end_of_turn)).chat_completion().completion_message
    assert message.content == "I won't."


def test_only_a_json_object_is_asked_for_by_a_call() -> None:
    plain = ChatCompletionRequest("m", (UserMessage("Hi"),))
    schema = structs.replace(plain, response_format=ResponseFormat("json_schema", schema={}))
    assert [with_json_call(each) is each for each in (plain, schema)] == [True, True]
    wanted = structs.replace(plain, response_format=ResponseFormat("json_object"))
    asked = with_json_call(wanted)
    assert (asked.tool_choice, asked.response_format) == (ToolChoice("required", "reply"), None)
    beside = with_json_call(structs.replace(wanted, tools=(ToolDefinition("f"),)))
    assert [tool.tool_name for tool in beside.tools] == ["f", "reply"]
    assert (beside.tool_choice, beside.response_format) == (ToolChoice("required"), None)


@pytest.mark.parametrize("kind", ["json_object", "json_schema", "text"])
async def test_an_api_without_it_gets_no_json_object(kind: Literal["json_object"]) -> None:
    told: list[ChatCompletionRequest] = []

    async def say(request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        told.append(request)
        yield StreamStart(3)
        yield StreamProgress(DONE)
        yield StreamComplete(StopReason.end_of_message)

    request = ChatCompletionRequest(
        "m", (UserMessage("Hi"),), tools=(LOOK,), response_format=ResponseFormat(kind)
    )
    collector = Collector()
    async for event in json_by_call(request, say):
        collector.add(event)
    said = collector.chat_completion().completion_message
    assert (told[0] is request) == (kind != "json_object")
    assert said.content == ('{"a": 1}' if kind == "json_object" else "")


def test_no_thought_is_asked_for_before_a_forced_call() -> None:
    hard = ChatCompletionRequest("m", (UserMessage("Hi"),), reasoning_effort="high")
    tools = structs.replace(hard, tools=(ToolDefinition("f"),))
    forced = structs.replace(tools, tool_choice=ToolChoice("required"))
    as_json = structs.replace(hard, response_format=ResponseFormat("json_object"))
    beside = structs.replace(as_json, tools=tools.tools)
    for asked in (forced, as_json, beside):
        assert thought_before_forced_call(asked).keys() == {"reasoning_effort"}
        for effort in (None, "none"):
            assert not thought_before_forced_call(structs.replace(asked, reasoning_effort=effort))
    for choice in (None, ToolChoice("auto"), ToolChoice("none")):
        assert not thought_before_forced_call(structs.replace(tools, tool_choice=choice))


# Beside other tools -------------------------------------------------------------------------------

LOOK = ToolDefinition("look")
SCHEMA = ResponseFormat("json_schema", "place", {"type": "object", "properties": {"a": {}}})
LOOKED = ToolCall("d", "look", {}, "{}")


async def by_call(
    deltas: Sequence[object], **asked: object
) -> tuple[ChatCompletionRequest, CompletionMessage]:
    """What is asked, and what comes of it."""
    request = ChatCompletionRequest("m", (UserMessage("hi"),), response_format=SCHEMA)
    told: list[ChatCompletionRequest] = []

    async def say(request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        told.append(request)
        yield StreamStart(3)
        for part, delta in enumerate(deltas):
            yield StreamProgress(delta, part=part)  # type: ignore[arg-type]
        yield StreamComplete(StopReason.end_of_message)

    collector = Collector()
    async for event in reply_by_call(structs.replace(request, **asked), say):
        collector.add(event)
    return told[0], collector.chat_completion().completion_message


@pytest.mark.parametrize(
    ("tools", "choice", "names", "told"),
    [
        ((), None, ["reply"], ToolChoice("required", "reply")),
        ((LOOK,), None, ["look", "reply"], ToolChoice("required")),
        ((LOOK,), ToolChoice("none"), ["look", "reply"], ToolChoice("required", "reply")),
        ((LOOK,), ToolChoice("required"), ["look"], ToolChoice("required")),
        ((ToolDefinition("reply"),), None, ["reply", "reply_2"], ToolChoice("required")),
    ],
)
async def test_the_reply_is_one_of_the_tools(
    tools: tuple[ToolDefinition, ...], choice: ToolChoice | None, names: list[str], told: ToolChoice
) -> None:
    asked, _ = await by_call([DONE], tools=tools, tool_choice=choice)
    assert [tool.tool_name for tool in asked.tools] == names
    assert (asked.tool_choice, asked.response_format) == (told, None)


async def test_what_is_to_be_no_json_is_asked_as_it_is() -> None:
    asked, _ = await by_call([TextDelta("x")], response_format=ResponseFormat("text"))
    assert asked.response_format == ResponseFormat("text")
    assert asked.tools == ()


@pytest.mark.parametrize("first", [[STARTED, *PIECES, DONE], [DONE]])
async def test_beside_other_tools_the_reply_is_text(first: list[object]) -> None:
    late = ToolCallDelta(1, STATUS.succeeded, tool_call=LOOKED)
    deltas = [ReasoningDelta("hm"), TextDelta("Well: "), *first, late]
    _, message = await by_call(deltas, tools=(LOOK,))
    assert (message.content, message.tool_calls) == ('{"a": 1}', ())
    assert message.reasoning == "hm"
    assert message.stop_reason is StopReason.end_of_turn


async def test_other_calls_come_first() -> None:
    calls = [
        ToolCallDelta(0, STATUS.succeeded, tool_call=LOOKED),
        structs.replace(STARTED, index=1),
        *(structs.replace(each, index=1) for each in (*PIECES, DONE)),
        ToolCallDelta(2, STATUS.succeeded, tool_call=structs.replace(LOOKED, call_id="e")),
    ]
    _, message = await by_call([TextDelta("Let me look."), *calls], tools=(LOOK,))
    assert message.content == "Let me look."
    assert [call.call_id for call in message.tool_calls] == ["d", "e"]
    assert message.stop_reason is StopReason.end_of_message


async def test_what_is_said_in_the_place_of_a_call_is_all_that_there_is() -> None:
    _, message = await by_call([TextDelta("No.")], tools=(LOOK,))
    assert message.content == "No."
