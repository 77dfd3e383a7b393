"""Tools that a server runs, in interactions: what asks for them, and the steps of their calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from llama_compat.dialects.base import Labels
from llama_compat.dialects.gemini_interactions import StreamParser, parse_reply, render_request
from llama_compat.dialects.gemini_interactions.input import parse_input
from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS
from llama_compat.errors import APIError
from llama_compat.events import Collector, ReplyParts
from llama_compat.hosted.vocabulary import (
    Citation,
    CitationDelta,
    Comparison,
    FileSearchTool,
    FileSource,
    HostedCall,
    HostedCallDelta,
    MCPTool,
    WebFetchTool,
    WebSearchTool,
    WebSource,
)
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    StopReason,
    StreamComplete,
    StreamEvent,
    TextContent,
    TextDelta,
    ToolCall,
    ToolChoice,
    ToolResponseMessage,
    Usage,
    UserMessage,
)
from llama_compat.wire import sse
from tests import sdk_interactions as sdk

LABELS = Labels("public", "req_1", unique="abc", created=1_790_000_000)
NILE = WebSource("https://rivers.example/nile", "The Nile", "It is long.")
PIECE = FileSource("file-1", "rivers.txt", "The Nile is long.", 0.5, {"year": 2020.0}, "vs_1")
FUNCTION = {"type": "function", "name": "f"}

EXTRAS = (
    ".result",
    ".url",
    ".title",
    ".text",
    ".file_search_store",
    ".is_error",
)
"""What is in results beside what the SDK's types have."""


def parse(*tools: Any, **body: Any) -> ChatCompletionRequest:
    call: Any = INTERACTIONS.parse({"model": "m", "input": "Hi", "tools": list(tools), **body}, "m")
    request: ChatCompletionRequest = call.request
    return request


# What is asked for --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ({"type": "google_search"}, WebSearchTool("web_search")),
        ({"type": "google_search", "search_types": ["web_search"]}, WebSearchTool("web_search")),
        ({"type": "url_context"}, WebFetchTool("web_fetch")),
        (
            {"type": "file_search", "file_search_store_names": ["fileSearchStores/vs_1", "vs_2"]},
            FileSearchTool("file_search", ("vs_1", "vs_2")),
        ),
        (
            {"type": "file_search", "file_search_store_names": ["vs_1"], "top_k": 3},
            FileSearchTool("file_search", ("vs_1",), 3),
        ),
        ({"type": "mcp_server", "name": "docs"}, MCPTool("docs")),
        ({"type": "mcp_server", "url": "https://x"}, MCPTool("mcp", "https://x")),
        (
            {
                "type": "mcp_server",
                "name": "docs",
                "url": "https://x",
                "headers": {"authorization": "Bearer y"},
                "allowed_tools": [{"tools": ["a", "b"]}, {"mode": "auto", "tools": ["c"]}],
            },
            MCPTool(
                "docs",
                "https://x",
                headers={"authorization": "Bearer y"},
                allowed_tools=("a", "b", "c"),
            ),
        ),
        (
            {"type": "mcp_server", "name": "docs", "allowed_tools": [{"mode": "none"}]},
            MCPTool("docs", allowed_tools=()),
        ),
        (
            {"type": "mcp_server", "name": "docs", "allowed_tools": [{"mode": "any"}]},
            MCPTool("docs"),
        ),
    ],
)
def test_a_tool_that_is_asked_for(tool: dict[str, Any], expected: Any) -> None:
    assert sdk.unknown_in_request({"model": "m", "input": "Hi", "tools": [tool]}) == []
    assert parse(tool).hosted == (expected,)


def test_a_tool_of_the_clients_keeps_its_name() -> None:
    request = parse({"type": "function", "name": "web_search"}, {"type": "google_search"})
    assert [each.tool_name for each in request.tools] == ["web_search"]
    assert request.hosted == (WebSearchTool("web_search_2"),)


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "file_search"}, "tools[0].file_search_store_names"),
        (
            {"type": "file_search", "file_search_store_names": []},
            "tools[0].file_search_store_names",
        ),
        (
            {"type": "file_search", "file_search_store_names": [1]},
            "tools[0].file_search_store_names[0]",
        ),
        (
            {"type": "file_search", "file_search_store_names": ["vs_1"], "top_k": 0},
            "tools[0].top_k",
        ),
        (
            {
                "type": "file_search",
                "file_search_store_names": ["vs_1"],
                "metadata_filter": "author:x",
            },
            "tools[0].metadata_filter",
        ),
        ({"type": "mcp_server", "name": 1}, "tools[0].name"),
        ({"type": "mcp_server", "name": "d", "headers": {"a": 1}}, "tools[0].headers.a"),
        ({"type": "mcp_server", "name": "d", "allowed_tools": ["a"]}, "tools[0].allowed_tools[0]"),
        (
            {"type": "mcp_server", "name": "d", "allowed_tools": [{"tools": [1]}]},
            "tools[0].allowed_tools[0].tools[0]",
        ),
    ],
)
def test_what_is_malformed_is_named(tool: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        parse(tool)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize(
    ("choice", "functions", "hosted", "expected"),
    [
        ("any", ["f"], 1, ToolChoice("required")),
        ("none", ["f"], 1, ToolChoice("none")),
        ({"allowed_tools": {"mode": "any", "tools": ["f"]}}, ["f"], 0, ToolChoice("required", "f")),
        ({"allowed_tools": {"tools": ["google_search"]}}, [], 1, None),
    ],
)
def test_the_choice_among_them(
    choice: Any, functions: list[str], hosted: int, expected: ToolChoice | None
) -> None:
    config = {"generation_config": {"tool_choice": choice}}
    request = parse(FUNCTION, {"type": "google_search"}, **config)
    assert [each.tool_name for each in request.tools] == functions
    assert (len(request.hosted), request.tool_choice) == (hosted, expected)


def test_a_filter_is_never_passed_over() -> None:
    tool = {
        "type": "file_search",
        "file_search_store_names": ["vs_1"],
        "metadata_filter": 'author = "x"',
    }
    body = {"model": "m", "input": "Hi", "tools": [tool, {"type": "google_search"}]}
    assert INTERACTIONS.parameters(body) == {
        "tools.file_search": "hosted_tools",
        "tools.google_search": "hosted_tools",
    }
    (asked,) = parse(tool).hosted
    assert asked == FileSearchTool("file_search", ("vs_1",), None, Comparison("eq", "author", "x"))
    images = {"type": "google_search", "search_types": ["image_search"]}
    assert INTERACTIONS.parameters({**body, "tools": [images]}) == {
        "tools.google_search": "hosted_tools",
        "tools.google_search.search_types": "hosted_setting",
    }


# What is shown ------------------------------------------------------------------------------------


def call(kind: Any, arguments: str, **members: Any) -> HostedCall:
    name = members.pop("name", kind)
    return HostedCall("c1", kind, name, arguments, model_name=name, **members)


def new_renderer() -> Any:
    call: Any = INTERACTIONS.parse({"model": "m", "input": "Hi"}, "m")
    return call.stream_renderer(LABELS)


def shown(*deltas: Any) -> tuple[dict[str, Any], list[Any]]:
    """The whole interaction of a stream, and the SDK's events of that."""
    parts = ReplyParts()
    events: list[StreamEvent] = [parts.progress(each) for each in deltas]
    renderer = new_renderer()
    sent = b"".join(
        renderer.render(0, each) for each in (*events, StreamComplete(StopReason.end_of_turn))
    )
    sent += renderer.finish(Usage(1, 2))
    read = [
        sdk.check_event(each.data, *EXTRAS)
        for each in sse.EventDecoder().feed(sent)
        if each.data is not None
    ]
    sdk.check_interaction(renderer.whole, *EXTRAS)
    return renderer.whole, read


def told(events: list[Any]) -> list[dict[str, Any]]:
    """The steps that a client puts together of a stream."""
    steps: list[dict[str, Any]] = []
    for event in events:
        if event.event_type == "step.start":
            steps.append(event.step.model_dump(exclude_none=True))
        elif event.event_type == "step.delta":
            delta = event.delta.model_dump(exclude_none=True)
            if delta["type"] != "text":
                steps[event.index].update(delta)
    return steps


@pytest.mark.parametrize(
    ("begun", "ended", "expected"),
    [
        (
            call("web_search", '{"query":"nile"}'),
            {"sources": (NILE,)},
            [
                {"type": "google_search_call", "arguments": {"queries": ["nile"]}},
                {
                    "type": "google_search_result",
                    "result": [{"url": NILE.url, "title": NILE.title}],
                },
            ],
        ),
        (
            call("web_search", "no JSON"),
            {"status": "failed"},
            [
                {"type": "google_search_call", "arguments": {"queries": []}},
                {"type": "google_search_result", "result": [], "is_error": True},
            ],
        ),
        (
            call("web_fetch", '{"url":"https://x"}'),
            {},
            [
                {"type": "url_context_call", "arguments": {"urls": ["https://x"]}},
                {
                    "type": "url_context_result",
                    "result": [{"url": "https://x", "status": "success"}],
                },
            ],
        ),
        (
            call("web_fetch", '{"url":"https://x"}'),
            {"status": "failed"},
            [
                {"type": "url_context_call", "arguments": {"urls": ["https://x"]}},
                {
                    "type": "url_context_result",
                    "result": [{"url": "https://x", "status": "error"}],
                    "is_error": True,
                },
            ],
        ),
        (
            call("file_search", '{"query":"nile"}'),
            {"sources": (PIECE,)},
            [
                {"type": "file_search_call"},
                {
                    "type": "file_search_result",
                    "result": [
                        {
                            "title": "rivers.txt",
                            "text": "The Nile is long.",
                            "file_search_store": "vs_1",
                        }
                    ],
                },
            ],
        ),
        (
            call("mcp", '{"a":1}', name="echo", server="docs"),
            {"output": "Echo: 1"},
            [
                {
                    "type": "mcp_server_tool_call",
                    "name": "echo",
                    "server_name": "docs",
                    "arguments": {"a": 1},
                },
                {
                    "type": "mcp_server_tool_result",
                    "name": "echo",
                    "server_name": "docs",
                    "result": "Echo: 1",
                },
            ],
        ),
    ],
)
def test_a_call_is_a_step_and_what_it_gave_another(
    begun: HostedCall, ended: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    done = structs.replace(begun, **{"status": "completed", **ended})
    whole, events = shown(HostedCallDelta(begun), HostedCallDelta(done))
    steps = whole["steps"]
    assert steps[0]["id"] == steps[1]["call_id"]
    named = [{name: each[name] for name in each if name not in ("id", "call_id")} for each in steps]
    assert named == expected
    streamed = told(events)
    assert streamed == steps
    # Who knows it in full when it begins is shown the same.
    assert shown(HostedCallDelta(done))[0]["steps"] == steps


def test_what_there_are_no_steps_for_is_not_shown() -> None:
    listed = call("mcp_list_tools", "{}", status="completed")
    assert shown(HostedCallDelta(listed), TextDelta("Hi"))[0]["steps"] == [
        sdk.output(sdk.text("Hi"))
    ]


def test_searches_are_counted_as_google_counts_them() -> None:
    search = call("web_search", '{"query":"nile"}', status="completed")
    failed = HostedCall("c2", "web_search", "s", status="failed")
    whole, _ = shown(HostedCallDelta(search), HostedCallDelta(failed))
    assert whole["usage"]["grounding_tool_count"] == [{"type": "google_search", "count": 1}]
    assert "grounding_tool_count" not in shown(TextDelta("Hi"))[0]["usage"]


def test_places_are_in_bytes_of_their_text() -> None:
    cited = [Citation(0, 2, NILE, "Öl"), Citation(3, 8, PIECE, "fließ"), Citation(1, 2, NILE, "l")]
    whole, events = shown(TextDelta("Öl fl"), TextDelta("ießt."), *map(CitationDelta, cited))
    (step,) = whole["steps"]
    (content,) = step["content"]
    at_nile = {"type": "url_citation", "url": NILE.url, "title": NILE.title}
    assert content["annotations"] == [
        {**at_nile, "start_index": 0, "end_index": 3},
        {
            "type": "file_citation",
            "file_name": "rivers.txt",
            "document_uri": "file-1",
            "custom_metadata": {"year": 2020.0},
            "start_index": 4,
            "end_index": 10,
        },
        {**at_nile, "start_index": 2, "end_index": 3},
    ]
    deltas = [each.delta for each in events if each.event_type == "step.delta"]
    streamed = [
        one.model_dump(exclude_none=True)
        for each in deltas
        if each.type == "text_annotation_delta"
        for one in each.annotations
    ]
    assert streamed == content["annotations"]


def test_a_place_in_a_text_that_has_ended_is_in_the_whole() -> None:
    parts = ReplyParts()
    said = parts.progress(TextDelta("long"))
    search = parts.progress(
        HostedCallDelta(call("web_search", '{"query":"nile"}', status="completed"))
    )
    place = structs.replace(said, delta=CitationDelta(Citation(0, 4, NILE, "long")))
    renderer = new_renderer()
    sent = [renderer.render(0, each) for each in (said, search, place)]
    assert sent[2] == b""
    renderer.finish(Usage())
    (annotation,) = renderer.whole["steps"][0]["content"][0]["annotations"]
    assert (annotation["start_index"], annotation["end_index"]) == (0, 4)


# What comes back ----------------------------------------------------------------------------------


def mcp_call(call_id: str, **arguments: Any) -> dict[str, Any]:
    named = {"name": "echo", "server_name": "docs"}
    return {"type": "mcp_server_tool_call", "id": call_id, **named, "arguments": arguments}


def mcp_result(call_id: str, result: Any, **members: Any) -> dict[str, Any]:
    return {"type": "mcp_server_tool_result", "call_id": call_id, "result": result, **members}


def server_call(call_id: str, arguments: dict[str, Any]) -> ToolCall:
    written = json.dumps(arguments, separators=(",", ":"))
    return ToolCall(call_id, "docs__echo", arguments, written, server_tool=("docs", "echo"))


def test_the_model_is_told_of_calls_that_were_made() -> None:
    user = {"type": "user_input", "content": "Hi"}
    steps = [
        user,
        mcp_call("a", x=1),
        mcp_call("b"),
        mcp_result("a", "1"),
        mcp_result("b", [sdk.text("no")], is_error=True),
        {"type": "google_search_call", "id": "s", "arguments": {"queries": ["x"]}},
        {"type": "google_search_result", "call_id": "s", "result": []},
        mcp_call("broken off"),
        mcp_result("of nothing", "x"),
        sdk.output(sdk.text("So.")),
    ]
    expected = (
        UserMessage("Hi"),
        CompletionMessage((server_call("a", {"x": 1}), server_call("b", {}))),
        ToolResponseMessage("a", "1"),
        ToolResponseMessage("b", "no", is_error=True),
        CompletionMessage((TextContent("So."),)),
    )
    assert parse_input(steps) == expected
    assert parse_input([sdk.output(sdk.text("Well?"))], steps) == (
        *expected[:-1],
        CompletionMessage((TextContent("So."), TextContent("Well?"))),
    )


@pytest.mark.parametrize("odd", [None, 1, [], {}, ["a"]])
def test_ids_that_are_none_are_named(odd: Any) -> None:
    user = {"type": "user_input", "content": "Hi"}
    call, result = mcp_call("a"), mcp_result("a", "1")
    # A call that nothing answers is passed over, whatever it says.
    assert parse_input([user, {**call, "id": odd}]) == (UserMessage("Hi"),)
    with pytest.raises(APIError) as refused:
        parse_input([user, call, {**result, "call_id": odd}])
    assert refused.value.param == "input[2].call_id"


def test_what_is_shown_comes_back() -> None:
    done = call("mcp", '{"x":1}', name="echo", server="docs", status="completed", output="1")
    whole, _ = shown(HostedCallDelta(done), TextDelta("So."))
    own = whole["steps"][0]["id"]
    assert parse_input([{"type": "user_input", "content": "Hi"}, *whole["steps"]]) == (
        UserMessage("Hi"),
        CompletionMessage((server_call(own, {"x": 1}),)),
        ToolResponseMessage(own, "1"),
        CompletionMessage((TextContent("So."),)),
    )


# Google's own search ------------------------------------------------------------------------------

CITED = {
    "type": "url_citation",
    "url": NILE.url,
    "title": NILE.title,
    "start_index": 4,
    "end_index": 10,
}
FOUND = sdk.interaction(
    [
        {"type": "google_search_call", "id": "g1", "arguments": {"queries": ["q1", "q2"]}},
        {
            "type": "google_search_result",
            "call_id": "g1",
            "result": [{"search_suggestions": "<p>"}],
        },
        {"type": "google_search_call", "id": "g2", "arguments": {"queries": ["q3"]}},
        {"type": "google_search_result", "call_id": "g2", "result": [], "is_error": True},
        sdk.output({**sdk.text("Öl fließt."), "annotations": [CITED, {"type": "place_citation"}]}),
        {"type": "google_search_call", "id": "g3", "arguments": {"queries": []}},
    ]
)


def searched(number: str, query: str, status: Any = "completed") -> HostedCall:
    failed: Any = {"error": "unavailable", "output": "It failed."} if status == "failed" else {}
    arguments = f'{{"query":"{query}"}}' if query else "{}"
    return HostedCall(
        number,
        "web_search",
        "google_search",
        arguments,
        model_name="google_search",
        status=status,
        **failed,
    )


EXPECTED = (
    searched("g1_0", "q1"),
    searched("g1_1", "q2"),
    searched("g2_0", "q3", "failed"),
    TextContent("Öl fließt.", (Citation(3, 8, WebSource(NILE.url, NILE.title), "fließ"),)),
    searched("g3_0", ""),
)


def read_stream(*events: dict[str, Any]) -> ChatCompletionResponse:
    parser, collector = StreamParser(), Collector()
    for event in events:
        for each in parser.push(event):
            collector.add(each)
    for each in parser.finish():
        collector.add(each)
    return collector.chat_completion()


def test_its_steps_are_read() -> None:
    sdk.check_interaction(FOUND)
    assert parse_reply(FOUND).completion_message.parts == EXPECTED
    streamed = read_stream(*sdk.stream_events(FOUND))
    assert streamed.completion_message.parts == EXPECTED


def test_it_is_asked_for() -> None:
    request = ChatCompletionRequest(
        "m", (UserMessage("Hi"),), vendor_search=WebSearchTool("web_search")
    )
    body = render_request(request)
    assert body["tools"] == [{"type": "google_search"}]
    assert sdk.unknown_in_request(body) == []
