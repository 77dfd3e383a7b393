"""The loop with a model that follows a script, and tools that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from llama_compat.errors import APIError, upstream_error
from llama_compat.events import Collector, reply_events
from llama_compat.fan_out import Events
from llama_compat.hosted.asked.mcp import server_call, server_tool_name
from llama_compat.hosted.loop import looped
from llama_compat.hosted.parts import ReplyPart
from llama_compat.hosted.toolbox import Bounds
from llama_compat.hosted.vocabulary import (
    HostedCall,
    HostedCallDelta,
    WebSource,
)
from llama_compat.tools.calls import parse_tool_call
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    ImageContent,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextContent,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    Usage,
    UserMessage,
)

USAGE = Usage(prompt_tokens=10, completion_tokens=3)
REQUEST = ChatCompletionRequest("m", (UserMessage("Go"),), tools=(ToolDefinition("own"),))


def call(name: str, call_id: str = "c1", arguments: str = "{}") -> AnyToolCall:
    return parse_tool_call(call_id, name, arguments)


def says(*parts: Any, reason: StopReason | None = None) -> ChatCompletionResponse:
    calls = any(isinstance(part, ToolCall) for part in parts)
    usual = StopReason.end_of_message if calls else StopReason.end_of_turn
    return ChatCompletionResponse(CompletionMessage(tuple(parts), reason or usual), usage=USAGE)


class Model:
    """Says one thing after the other, and notes what it is asked."""

    def __init__(self, *script: ChatCompletionResponse | APIError) -> None:
        self.script = list(script)
        self.asked: list[ChatCompletionRequest] = []

    async def __call__(self, request: ChatCompletionRequest) -> Events:
        self.asked.append(request)
        said = self.script.pop(0)
        if isinstance(said, APIError):
            raise said
        for event in reply_events(said):
            yield event


class Tools:
    """Tools of the server's that answer with what they were asked."""

    def __init__(self, run: Callable[[AnyToolCall], Any] | None = None, asks: bool = False) -> None:
        self.kinds = self.known = frozenset({"web_search"})
        self.bounds = Bounds(turns=4)
        self.definitions: Sequence[ToolDefinition] = [ToolDefinition("search")]
        self.listed: Sequence[HostedCall] = []
        self.closed = False
        self.parts: list[ReplyPart] = []
        self.asks = asks
        self.most = 10**9
        self._run = run

    def affords(self, usage: Usage) -> bool:
        return usage.prompt_tokens < self.most

    @asynccontextmanager
    async def opened(self, request: ChatCompletionRequest) -> AsyncGenerator[Tools, None]:
        try:
            yield self
        finally:
            self.closed = True

    def name_of(self, label: str, name: str) -> str | None:
        return "search" if (label, name) == ("docs", "find") else None

    def begun(self, call: AnyToolCall) -> HostedCall:
        if self.asks:
            kind: Any = "mcp_approval_request"
            return HostedCall(call.call_id, kind, "search", status="completed")
        return HostedCall(call.call_id, "web_search", "search", call.arguments_json)

    async def run(self, call: AnyToolCall) -> HostedCall:
        if self._run is not None:
            await self._run(call)
        shown = HostedCall(call.call_id, "web_search", "search", call.arguments_json)
        source = WebSource("https://a.example/x", "A")
        return structs.replace(
            shown, status="completed", output=f"result of {call.call_id}", sources=(source,)
        )


async def ran(
    model: Model, tools: Tools, request: ChatCompletionRequest = REQUEST
) -> list[StreamEvent]:
    return [event async for event in looped(model, request, tools)]


def whole(events: Sequence[StreamEvent]) -> ChatCompletionResponse:
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector.chat_completion()


async def test_results_are_given_back_and_usage_is_summed() -> None:
    model = Model(says(TextContent("Let me see."), call("search")), says(TextContent("Done.")))
    tools = Tools()
    reply = whole(await ran(model, tools))
    kinds = [type(part).__name__ for part in reply.completion_message.parts]
    assert kinds == ["TextContent", "HostedCall", "TextContent"]
    assert reply.usage == Usage(prompt_tokens=20, completion_tokens=6)
    assert reply.completion_message.stop_reason is StopReason.end_of_turn
    *_, said, result = model.asked[1].messages
    assert isinstance(said, CompletionMessage)
    assert said.tool_calls == (call("search"),)
    assert result == ToolResponseMessage("c1", "result of c1")
    assert [tool.tool_name for tool in model.asked[0].tools] == ["own", "search"]
    assert tools.closed


async def test_turns_and_calls_are_told_as_they_go() -> None:
    tools = Tools()
    tools.bounds = Bounds(turns=4, seconds=0.01)

    async def run(call: AnyToolCall) -> None:
        if call.call_id == "c2":
            await asyncio.Event().wait()

    tools._run = run
    model = Model(
        says(call("search", "c1"), call("search", "c2")), says(call("search", "c3", arguments="["))
    )
    model.script.append(APIError(503, "Full."))
    with pytest.raises(APIError):
        await ran(model, tools)
    assert [(each.kind, each.name, each.tool, each.error) for each in tools.parts] == [
        ("turn", "", "", ""),
        ("tool", "search", "web_search", ""),
        ("tool", "search", "web_search", "unavailable"),
        ("turn", "", "", ""),
        ("tool", "search", "web_search", "invalid_tool_input"),
        ("turn", "", "", "overloaded"),
    ]
    assert tools.parts[0].usage == Usage(prompt_tokens=10, completion_tokens=3)
    assert all(0 < each.begun <= each.ended for each in tools.parts)


async def test_a_call_of_the_clients_ends_it_when_the_servers_have_run() -> None:
    model = Model(says(call("own", "c1"), call("search", "c2")))
    reply = whole(await ran(model, Tools()))
    assert reply.completion_message.stop_reason is StopReason.end_of_message
    assert [each.tool_name for each in reply.completion_message.tool_calls] == ["own"]
    hosted = [part for part in reply.completion_message.parts if isinstance(part, HostedCall)]
    assert [each.output for each in hosted] == ["result of c2"]


async def test_calls_run_side_by_side_up_to_the_bound() -> None:
    running, most = 0, 0
    both = asyncio.Event()

    async def run(call: AnyToolCall) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            both.set()
        await both.wait()
        running -= 1

    tools = Tools(run)
    tools.bounds = Bounds(parallel=2)
    calls = [call("search", f"c{number}") for number in range(5)]
    model = Model(says(*calls), says(TextContent("Done.")))
    await ran(model, tools)
    assert most == 2
    results = [each for each in model.asked[1].messages if isinstance(each, ToolResponseMessage)]
    assert [each.call_id for each in results] == [each.call_id for each in calls]


async def test_the_last_turn_has_no_calls_of_the_servers() -> None:
    model = Model(*[says(call("search", f"c{number}")) for number in range(4)])
    reply = whole(await ran(model, Tools()))
    assert [each.tool_choice for each in model.asked] == [None, None, None, ToolChoice("none")]
    assert reply.completion_message.stop_reason is StopReason.end_of_turn


async def test_what_must_be_called_is_called_once() -> None:
    forced = structs.replace(REQUEST, tool_choice=ToolChoice("required", "search"))
    model = Model(says(call("search")), says(TextContent("Done.")))
    await ran(model, Tools(), forced)
    assert [each.tool_choice for each in model.asked] == [ToolChoice("required", "search"), None]


@pytest.mark.parametrize("bound", ["tokens", "cost", "max_tokens"])
async def test_what_is_used_up_ends_it(bound: str) -> None:
    tools, request = Tools(), REQUEST
    if bound == "tokens":
        tools.bounds = Bounds(tokens=13)
    elif bound == "cost":
        tools.most = 10
    else:
        request = structs.replace(REQUEST, sampling=SamplingParams(max_tokens=3))
    model = Model(says(call("search")))
    reply = whole(await ran(model, tools, request))
    assert reply.completion_message.stop_reason is StopReason.out_of_tokens


async def test_max_tokens_are_those_of_all_turns() -> None:
    request = structs.replace(REQUEST, sampling=SamplingParams(max_tokens=5))
    model = Model(says(call("search")), says(TextContent("Done.")))
    await ran(model, Tools(), request)
    assert [each.sampling.max_tokens for each in model.asked] == [5, 2]


async def test_a_call_that_hangs_fails_and_the_model_is_told() -> None:
    async def run(call: AnyToolCall) -> None:
        await asyncio.Event().wait()

    tools = Tools(run)
    tools.bounds = Bounds(seconds=0.01)
    model = Model(says(call("search")), says(TextContent("Done.")))
    await ran(model, tools)
    result = model.asked[1].messages[-1]
    assert isinstance(result, ToolResponseMessage)
    assert result.is_error


async def test_a_long_result_is_cut() -> None:
    tools = Tools()
    tools.bounds = Bounds(result_bytes=6)
    model = Model(says(call("search")), says(TextContent("Done.")))
    await ran(model, tools)
    result = model.asked[1].messages[-1]
    assert isinstance(result, ToolResponseMessage)
    assert result.content == "result\n[The rest is cut off.]"


async def test_a_model_that_sees_nothing_is_told_of_an_image() -> None:
    class Showing(Tools):
        async def run(self, call: AnyToolCall) -> HostedCall:
            image = "data:image/png;base64,AA=="
            return structs.replace(await super().run(call), images=(image,))

    contents = []
    for sees in (True, False):
        model = Model(says(call("search")), says(TextContent("Done.")))
        async for _ in looped(model, REQUEST, Showing(), sees=sees):
            pass
        answer = model.asked[1].messages[-1]
        assert isinstance(answer, ToolResponseMessage)
        contents.append(answer.content)
    assert contents == [
        (TextContent("result of c1"), ImageContent("data:image/png;base64,AA==")),
        "result of c1\n[It shows an image, which you can't see.]",
    ]


async def test_arguments_that_are_no_object_are_not_run() -> None:
    model = Model(says(call("search", arguments="[")), says(TextContent("Done.")))
    events = await ran(model, Tools())
    shown = [
        event.delta.call
        for event in events
        if isinstance(event, StreamProgress) and isinstance(event.delta, HostedCallDelta)
    ]
    assert [(each.status, each.error) for each in shown] == [
        ("in_progress", None),
        ("failed", "invalid_tool_input"),
    ]


async def test_whoever_leaves_ends_the_tool() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def run(call: AnyToolCall) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    tools = Tools(run)

    async def read() -> None:
        async with aclosing(looped(Model(says(call("search"))), REQUEST, tools)) as events:
            async for _ in events:
                pass

    reading = asyncio.create_task(read())
    await begun.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert ended.is_set()
    assert tools.closed


async def test_what_fails_after_a_tool_has_run_is_not_tried_elsewhere() -> None:
    first = upstream_error("v", "is gone.")
    with pytest.raises(APIError):
        await ran(Model(first), Tools())
    assert not first.is_last
    later = upstream_error("v", "is gone.")
    with pytest.raises(APIError):
        await ran(Model(says(call("search")), later), Tools())
    assert later.is_last


async def test_what_waits_for_the_user_ends_it() -> None:
    model = Model(says(call("search", "c1")))
    events = await ran(model, Tools(asks=True))
    assert len(model.asked) == 1
    last = events[-1]
    assert isinstance(last, StreamComplete)
    assert last.stop_reason is StopReason.end_of_turn


async def test_what_the_user_lets_run_is_run_first() -> None:
    request = approving("docs", "find")
    model = Model(says(TextContent("Done.")))
    reply = whole(await ran(model, Tools(asks=True), request))
    (hosted, _) = reply.completion_message.parts
    assert isinstance(hosted, HostedCall)
    assert (hosted.status, hosted.approval_id) == ("completed", "c1")
    *_, said, answer = model.asked[0].messages
    assert isinstance(said, CompletionMessage)
    assert [each.tool_name for each in said.tool_calls] == ["search"]
    assert answer == ToolResponseMessage("c1", "result of c1")


def approving(label: str, name: str) -> ChatCompletionRequest:
    waiting = CompletionMessage((server_call("c1", label, name, "{}"),))
    return structs.replace(REQUEST, messages=(*REQUEST.messages, waiting), approved=("c1",))


@pytest.mark.parametrize(("label", "name"), [("sea", "rch"), ("docs", "find_2"), ("own", "find")])
async def test_what_the_user_lets_run_is_that_tool_or_none(label: str, name: str) -> None:
    ran_here = []

    async def run(call: AnyToolCall) -> None:
        ran_here.append(call)

    tools = Tools(run, asks=True)
    # Whoever goes by the names that models know would run that one.
    tools.definitions = [ToolDefinition("search"), ToolDefinition(server_tool_name(label, name))]
    model = Model(says(TextContent("Done.")))
    await ran(model, tools, approving(label, name))
    assert ran_here == []
    answer = model.asked[0].messages[-1]
    assert isinstance(answer, ToolResponseMessage)
    assert answer.is_error


async def test_a_citation_is_at_its_place_in_its_part() -> None:
    text = "See [A](https://a.example/x)."
    model = Model(says(call("search")), says(TextContent(text)))
    reply = whole(await ran(model, Tools()))
    said = reply.completion_message.parts[-1]
    assert isinstance(said, TextContent)
    (citation,) = said.citations
    assert text[citation.start : citation.end] == "[A](https://a.example/x)"
