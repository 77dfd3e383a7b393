"""A reply that a model gave as the arguments of a call, as the text that its client asked for.

A model that can't be held to a JSON Schema can be made to call a tool whose parameters are that
schema (`llama_compat.fitting.fit`), and one whose API has no `json_object` a tool that takes any;
what it calls it with is the reply. Where it has other tools, it is made to call any of them all, so
that it says what it says in that form and calls the others before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing

from msgspec import structs

from llama_compat.fan_out import Events
from llama_compat.hosted.vocabulary import free_name
from llama_compat.types import (
    ChatCompletionRequest,
    ResponseFormat,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextDelta,
    ToolCallDelta,
    ToolCallParseStatus,
    ToolChoice,
    ToolDefinition,
)

REPLY_TOOL = "reply"
"""The tool whose arguments are the reply, where a model can't be held to a schema otherwise."""


def reply_by_call(
    request: ChatCompletionRequest, say: Callable[[ChatCompletionRequest], Events]
) -> Events:
    """What `say` gives for `request`, whose reply comes as the arguments of a call where it is to
    be JSON. A call that the request demands comes first: the reply waits for what that gives."""
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return say(request)
    asked, name = _with_reply_call(request, wanted)
    if name is None:
        return say(asked)
    said = say(asked)
    return _as_text_or_calls(said, name) if request.tools else as_text(said)


def _with_reply_call(
    request: ChatCompletionRequest, wanted: ResponseFormat
) -> tuple[ChatCompletionRequest, str | None]:
    """`request` whose reply, of the form `wanted`, is to come as the arguments of a call, and of
    which tool: `as_text` makes a reply of that again. None where another call is demanded."""
    choice = request.tool_choice or ToolChoice()
    if request.tools and choice.mode == "required":
        return structs.replace(request, response_format=None), None
    name = free_name(REPLY_TOOL, {tool.tool_name for tool in request.tools})
    may_call_others = bool(request.tools) and choice.mode != "none"
    asked = structs.replace(
        request,
        tools=(*request.tools, _reply_tool(wanted, name)),
        tool_choice=ToolChoice("required", None if may_call_others else name),
        response_format=None,
    )
    return asked, name


def _reply_tool(wanted: ResponseFormat, name: str) -> ToolDefinition:
    schema = wanted.told_schema or {"type": "object"}
    return ToolDefinition(name, "Give the reply with this.", schema)


def with_json_call(request: ChatCompletionRequest) -> ChatCompletionRequest:
    """`request` for an API that has no `json_object`: one that wants it has a call forced in its
    place; the very same, if it does not."""
    wanted = request.response_format
    if wanted is None or wanted.type != "json_object":
        return request
    return _with_reply_call(request, wanted)[0]


def json_by_call(
    request: ChatCompletionRequest, say: Callable[[ChatCompletionRequest], Events]
) -> Events:
    """What `say` gives for `request`, by an API that has no `json_object`."""
    wanted = request.response_format
    if wanted is None or wanted.type != "json_object":
        return say(request)
    return reply_by_call(request, say)


def thought_before_forced_call(request: ChatCompletionRequest) -> Mapping[str, str]:
    """What Claude takes in no API, by OpenAI's name: why. Its word for it is `Thinking may not be
    enabled when tool_choice forces tool use`
    (https://platform.claude.com/docs/en/build-with-claude/extended-thinking), which is so too where
    the call is forced for the sake of a reply's form."""
    asked = with_json_call(request)
    forced = bool(asked.tools) and (asked.tool_choice or ToolChoice()).mode == "required"
    if not forced or request.reasoning_effort in (None, "none"):
        return {}
    return {"reasoning_effort": "Claude does not think before a tool call that it is forced to"}


async def as_text(events: Events) -> Events:
    """`events`, in which the first call's arguments are text.

    What the model says besides, and further calls, are left out: the text has to be what the schema
    says, and nothing more. What it says in the place of a call is all that there is.
    """
    part: int | None = None
    given = False
    beside: list[StreamEvent] = []
    async with aclosing(events) as stream:
        async for event in stream:
            if isinstance(event, StreamComplete):
                for each in beside:
                    yield each
                called = event.stop_reason is StopReason.end_of_message
                yield (
                    structs.replace(event, stop_reason=StopReason.end_of_turn) if called else event
                )
                continue
            if not isinstance(event, StreamProgress):
                yield event
                continue
            delta = event.delta
            if isinstance(delta, TextDelta):
                if part is None:
                    beside.append(event)
                continue
            if not isinstance(delta, ToolCallDelta):
                yield event
                continue
            if delta.index != 0:
                continue
            beside.clear()
            part = event.part if part is None else part
            text = delta.arguments
            is_whole = delta.parse_status in (
                ToolCallParseStatus.succeeded,
                ToolCallParseStatus.failed,
            )
            if not text and is_whole and not given and delta.tool_call is not None:
                text = delta.tool_call.arguments_json
            if text:
                given = True
                yield structs.replace(event, delta=TextDelta(text), part=part)


async def _as_text_or_calls(events: Events, tool: str) -> Events:
    """`events`, in which the arguments of the tool's call are text where it is the first call.

    Where another is, the model does not know yet what that gives: calls of the tool are left out.
    What it says besides is told as far as it calls no tool, or others.
    """
    beside: list[StreamEvent] = []
    async with aclosing(events) as stream:
        async for event in stream:
            delta = event.delta if isinstance(event, StreamProgress) else None
            if isinstance(delta, TextDelta):
                beside.append(event)
                continue
            if not isinstance(delta, ToolCallDelta):
                for each in beside if isinstance(event, StreamComplete) else ():
                    yield each
                yield event
                continue
            is_reply = _tool_name(delta) == tool
            for each in () if is_reply else beside:
                yield each
            rest = _and_then(event, stream)
            async with aclosing(as_text(rest) if is_reply else _without(rest, tool)) as said:
                async for each in said:
                    yield each


async def _and_then(event: StreamEvent, events: Events) -> Events:
    yield event
    async for each in events:
        yield each


async def _without(events: Events, tool: str) -> Events:
    """`events` without the tool's calls."""
    left_out: set[int] = set()
    async with aclosing(events) as stream:
        async for event in stream:
            delta = event.delta if isinstance(event, StreamProgress) else None
            if not isinstance(delta, ToolCallDelta):
                yield event
                continue
            if _tool_name(delta) == tool:
                left_out.add(delta.index)
            if delta.index not in left_out:
                index = delta.index - sum(each < delta.index for each in left_out)
                yield structs.replace(event, delta=structs.replace(delta, index=index))


def _tool_name(delta: ToolCallDelta) -> str:
    return delta.tool_name if delta.tool_call is None else delta.tool_call.tool_name
