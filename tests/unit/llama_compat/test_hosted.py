"""What a client is shown of calls that the server has run is, when it sends it back, what the model
was told before."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from msgspec import structs

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Labels, Operation, Translation
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.events import Collector, reply_events
from llama_compat.fan_out import Events
from llama_compat.hosted.asked.mcp import server_tool_name
from llama_compat.hosted.loop import looped
from llama_compat.hosted.parts import ReplyPart
from llama_compat.hosted.toolbox import Bounds
from llama_compat.hosted.vocabulary import HostedCall
from llama_compat.tools.calls import parse_tool_call
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    Message,
    StopReason,
    StreamEvent,
    TextContent,
    ToolDefinition,
    ToolResponseMessage,
    Usage,
)
from llama_compat.wire import sse

FOUND = {"one": "docs", "two": "docs", "three": "sea"}
NUMBERS = itertools.count()
LABELS = Labels("m", "req_1")


class Servers:
    """Two servers' tools; each says what it was called for, the first one last."""

    def __init__(self) -> None:
        self.kinds = self.known = frozenset({"mcp"})
        self.bounds = Bounds()
        self.parts: list[ReplyPart] = []
        self.listed: Sequence[HostedCall] = ()
        self.definitions = [
            ToolDefinition(server_tool_name(at, name)) for name, at in FOUND.items()
        ]

    def affords(self, usage: Usage) -> bool:
        return True

    @asynccontextmanager
    async def opened(self, request: ChatCompletionRequest) -> AsyncGenerator[Servers, None]:
        yield self

    def name_of(self, label: str, name: str) -> str | None:
        return server_tool_name(label, name)

    def begun(self, call: AnyToolCall) -> HostedCall:
        label, _, name = call.tool_name.partition("__")
        return HostedCall(call.call_id, "mcp", name, call.arguments_json, label)

    async def run(self, call: AnyToolCall) -> HostedCall:
        if call.tool_name.endswith("__one"):
            for _ in range(5):
                await asyncio.sleep(0)
        return structs.replace(
            self.begun(call), status="completed", output=f"{call.tool_name} {call.arguments_json}"
        )


def calls(*names: str) -> list[AnyToolCall]:
    return [
        parse_tool_call(f"c{next(NUMBERS)}", server_tool_name(FOUND[name], name), '{"a":1}')
        for name in names
    ]


SCRIPTS: dict[str, list[list[Any]]] = {
    "side by side": [calls("one", "two", "three"), [TextContent("Done.")]],
    "one after the other": [calls("one"), calls("two"), calls("three"), [TextContent("Done.")]],
    "both": [calls("one", "two"), calls("three"), [TextContent("Done.")]],
    "with words": [
        [TextContent("Well."), *calls("one", "two")],
        calls("three", "two"),
        [TextContent("Done.")],
    ],
}


def meant(message: Message) -> Any:
    """A message without the ids of its calls, which are others for the client."""
    if isinstance(message, CompletionMessage):
        return [
            (each.tool_name, each.arguments_json) if isinstance(each, AnyToolCall) else each
            for each in message.parts
        ]
    assert not isinstance(message, ToolResponseMessage)
    return message


def told(messages: Sequence[Message]) -> list[Any]:
    """What messages say, with each call's result beside it, in the order of the calls."""
    results = {
        each.call_id: each.content for each in messages if isinstance(each, ToolResponseMessage)
    }
    return [
        (meant(each), [results.get(call.call_id) for call in getattr(each, "tool_calls", ())])
        for each in messages
        if not isinstance(each, ToolResponseMessage)
    ]


def output_of(operation: Operation, rendered: bytes, *, streams: bool) -> Any:
    """What a client has of a reply, as it sends it back."""
    if not streams:
        body = json.loads(rendered)
        return body["output" if operation is RESPONSES else "content"]
    events = [json.loads(data) for data in sse.objects_in(rendered)]
    if operation is RESPONSES:
        return events[-1]["response"]["output"]
    blocks = [each["content_block"] for each in events if each["type"] == "content_block_start"]
    texts = iter(
        each["delta"]["text"]
        for each in events
        if each["type"] == "content_block_delta" and each["delta"]["type"] == "text_delta"
    )
    return [{**each, "text": next(texts)} if each["type"] == "text" else each for each in blocks]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("operation", [RESPONSES, MESSAGES])
@pytest.mark.parametrize("script", SCRIPTS)
async def test_what_comes_back_is_what_the_model_was_told(
    script: str, operation: Operation, streams: bool
) -> None:
    said = list(SCRIPTS[script])
    asked: list[ChatCompletionRequest] = []

    async def model(request: ChatCompletionRequest) -> Events:
        asked.append(request)
        parts = tuple(said.pop(0))
        reason = StopReason.end_of_message if said else StopReason.end_of_turn
        reply = ChatCompletionResponse(CompletionMessage(parts, reason), usage=Usage(1, 1))
        for event in reply_events(reply):
            yield event

    begun: dict[str, Any] = {"model": "m"}
    if operation is MESSAGES:
        begun["max_tokens"] = 9
    name = "input" if operation is RESPONSES else "messages"
    begun[name] = [{"role": "user", "content": "Go"}]
    translation = parsed(begun, operation)
    (request,) = translation.requests
    assert isinstance(request, ChatCompletionRequest)
    events: list[StreamEvent] = [each async for each in looped(model, request, Servers())]
    rendered = b""
    if streams:
        renderer = translation.stream_renderer(LABELS)
        rendered = b"".join(renderer.render(0, each) for each in events)
        rendered += renderer.finish(Usage(1, 1))
    else:
        collector = Collector()
        for each in events:
            collector.add(each)
        rendered = translation.render_reply([collector.chat_completion()], Usage(1, 1), LABELS)
    output = output_of(operation, rendered, streams=streams)
    if operation is MESSAGES:
        output = [{"role": "assistant", "content": output}]
    again = {**begun, name: [*begun[name], *output, {"role": "user", "content": "More"}]}
    (second,) = parsed(again, operation).requests
    assert isinstance(second, ChatCompletionRequest)
    *earlier, last, _ = told(second.messages)
    assert earlier == told(asked[-1].messages)
    assert last == ([TextContent("Done.")], [])


def parsed(body: dict[str, Any], operation: Operation) -> Translation:
    return cast(Translation, operation.parse(body, "m"))
