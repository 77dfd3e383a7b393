"""Anthropic's own search: how it is asked for, and what it shows, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import types

from llama_compat.dialects.anthropic_messages import StreamParser, parse_reply, render_request
from llama_compat.events import Collector
from llama_compat.hosted.vocabulary import (
    Citation,
    HostedCall,
    UserLocation,
    WebSearchTool,
    WebSource,
)
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    TextContent,
    ToolCall,
    ToolDefinition,
    UserMessage,
)
from tests import sdk_anthropic as sdk

USE = types.ServerToolUseBlock(
    type="server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "nile"}
)
FOUND = types.WebSearchToolResultBlock(
    type="web_search_tool_result",
    tool_use_id="srvtoolu_1",
    content=[
        types.WebSearchResultBlock(
            type="web_search_result",
            url="https://rivers.example",
            title="Rivers",
            encrypted_content="c",
            page_age="May",
        )
    ],
)
FAILED = types.WebSearchToolResultBlock(
    type="web_search_tool_result",
    tool_use_id="srvtoolu_1",
    content=types.WebSearchToolResultError(
        type="web_search_tool_result_error", error_code="max_uses_exceeded"
    ),
)
CITED = types.TextBlock(
    type="text",
    text="6,650 km",
    citations=[
        types.CitationsWebSearchResultLocation(
            type="web_search_result_location",
            url="https://rivers.example",
            title="Rivers",
            encrypted_index="i",
            cited_text="It is 6,650 km long.",
        )
    ],
)


def streamed(whole: types.Message) -> CompletionMessage:
    parser, collector = StreamParser(), Collector()
    for event in sdk.stream_events(whole, arguments={"toolu_1": '{"a":1}'}):
        for each in parser.push(event):
            collector.add(each)
    return collector.chat_completion().completion_message


def read(*blocks: Any) -> tuple[Any, ...]:
    whole = sdk.message(blocks)
    message = parse_reply(sdk.dump(whole)).completion_message
    assert streamed(whole) == message
    return message.parts


def test_a_search_is_one_part_and_a_text_cites_with_all_of_it() -> None:
    source = WebSource("https://rivers.example", "Rivers", age="May")
    seen = WebSource("https://rivers.example", "Rivers", "It is 6,650 km long.")
    assert read(sdk.text("So:"), USE, FOUND, CITED) == (
        TextContent("So:"),
        HostedCall(
            "srvtoolu_1",
            "web_search",
            "web_search",
            '{"query":"nile"}',
            status="completed",
            sources=(source,),
            model_name="web_search",
        ),
        TextContent("6,650 km", (Citation(0, 8, seen, "6,650 km"),)),
    )


def test_one_that_failed_says_so() -> None:
    (call,) = read(USE, FAILED)
    assert (call.status, call.error) == ("failed", "max_uses_exceeded")


def test_one_that_waits_for_the_clients_tool_has_come_to_its_end() -> None:
    """Anthropic runs it when the client has answered; it is not in the next request here."""
    search, call = read(USE, sdk.tool_use("toolu_1", "f", {"a": 1}))
    assert (search.status, search.error) == ("failed", "unavailable")
    assert isinstance(call, ToolCall)


@pytest.mark.parametrize(
    ("tool", "most", "expected"),
    [
        (WebSearchTool("web_search"), None, {}),
        (WebSearchTool("web_search", max_uses=5), 3, {"max_uses": 3}),
        (WebSearchTool("web_search", max_uses=2), None, {"max_uses": 2}),
        (WebSearchTool("web_search", ("a.example",)), None, {"allowed_domains": ["a.example"]}),
        (
            WebSearchTool("web_search", blocked_domains=("a.example",)),
            None,
            {"blocked_domains": ["a.example"]},
        ),
        (
            WebSearchTool("web_search", location=UserLocation("Cairo", country="EG")),
            None,
            {"user_location": {"type": "approximate", "city": "Cairo", "country": "EG"}},
        ),
    ],
)
def test_it_is_asked_for_beside_the_clients_tools(
    tool: WebSearchTool, most: int | None, expected: dict[str, Any]
) -> None:
    request = ChatCompletionRequest(
        "claude",
        (UserMessage("Hi"),),
        tools=(ToolDefinition("f"),),
        vendor_search=tool,
        max_hosted_calls=most,
    )
    body = render_request(request, default_max_tokens=100)
    sdk.check_request(body)
    own, search = body["tools"]
    assert own["name"] == "f"
    assert search == {"type": "web_search_20250305", "name": "web_search", **expected}
