"""A reply that a model gave as the arguments of a call, as the text that its client asked for.

A model that can't be held to a JSON Schema can be made to call a tool whose parameters are that
schema (`llama_compat.fitting.fit`), and one whose API has no `json_object` a tool that takes any;
what it calls it with is the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import structs

from llama_compat.fan_out import Events
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


def as_forced_call(wanted: ResponseFormat) -> dict[str, Any]:
    """What is different in a `ChatCompletionRequest` without tools whose reply, of the form
    `wanted`, is to come as the arguments of a call: `as_text` makes a reply of that again."""
    schema = wanted.schema or {"type": "object"}
    return {
        "tools": (ToolDefinition(REPLY_TOOL, "Give the reply with this.", schema),),
        "tool_choice": ToolChoice("required", REPLY_TOOL),
        "response_format": None,
    }


def with_json_call(request: ChatCompletionRequest) -> ChatCompletionRequest:
    """`request` for an API that has no `json_object`: one that wants it has a call forced in its
    place; the very same, if it does not."""
    wanted = request.response_format
    if wanted is None or wanted.type != "json_object":
        return request
    return structs.replace(request, **as_forced_call(wanted))


def json_by_call(
    request: ChatCompletionRequest, say: Callable[[ChatCompletionRequest], Events]
) -> Events:
    """What `say` gives for `request`, by an API that has no `json_object`."""
    asked = with_json_call(request)
    said = say(asked)
    return said if asked is request else as_text(said)


def json_beside_tools(request: ChatCompletionRequest, vendor: str) -> Mapping[str, str]:
    """What such an API has no form for, by OpenAI's name: why."""
    if with_json_call(request) is request or not request.tools:
        return {}
    return {
        "response_format": (
            f"'json_object' is a forced tool call for {vendor}, so it can't go together with tools;"
            " 'json_schema' can"
        )
    }


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
