"""Members of arguments under the names that an API takes, and their own again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from llama_compat.tools.members import (
    ANTHROPIC_MEMBERS,
    with_fitting_members,
    with_own_members,
)
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    StreamEvent,
    StreamProgress,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    ToolDefinition,
    ToolResponseMessage,
    UnparseableToolCall,
    UserMessage,
)

LONG = "settings__" + "approved__" * 6
TOP, FILTER, SHORT = (ANTHROPIC_MEMBERS.fitted(each) for each in ("$top", "filter[name]", LONG))
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "$top": {"type": "integer"},
        "in": {
            "type": "array",
            "items": {"$ref": "#/$defs/one"},
        },
    },
    "required": ["$top", "in"],
    "$defs": {
        "one": {
            "type": "object",
            "properties": {"filter[name]": {"type": "string"}, LONG: {"enum": ["$top"]}},
            "required": [LONG],
        }
    },
}
OWN: dict[str, Any] = {"$top": 5, "in": [{"filter[name]": "$top", LONG: "a"}]}
TOLD: dict[str, Any] = {TOP: 5, "in": [{FILTER: "$top", SHORT: "a"}]}


def called(name: str, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall("c1", name, arguments, json.dumps(arguments, separators=(",", ":")))


def asked(*tools: ToolDefinition) -> ChatCompletionRequest:
    said = CompletionMessage.of("", (called("f", OWN), called("g", {"$top": 1})))
    messages = (UserMessage("$top"), said, ToolResponseMessage("c1", "$top"))
    return ChatCompletionRequest("m", messages, tools=tools)


ODD = ToolDefinition("f", parameters=SCHEMA)
EVEN = ToolDefinition("g", parameters={"type": "object", "properties": {"a.b-c": {}}})


def test_names_that_fit_are_no_matter() -> None:
    for request in (asked(), asked(EVEN), asked(ToolDefinition("h"))):
        assert with_fitting_members(request, ANTHROPIC_MEMBERS) is request


def test_schemas_and_calls_have_names_that_fit() -> None:
    told = with_fitting_members(asked(ODD, EVEN), ANTHROPIC_MEMBERS)
    first, second = told.tools
    assert second is EVEN
    parameters = first.parameters or {}
    assert list(parameters["properties"]) == [TOP, "in"]
    assert parameters["required"] == [TOP, "in"]
    one = parameters["$defs"]["one"]
    assert (list(one["properties"]), one["required"]) == ([FILTER, SHORT], [SHORT])
    assert one["properties"][SHORT] == {"enum": ["$top"]}
    assert all(ANTHROPIC_MEMBERS.takes(name) for name in (TOP, FILTER, SHORT))
    said = told.messages[1]
    assert isinstance(said, CompletionMessage)
    # The other tool is one of which nobody knows what it takes.
    assert said.tool_calls == (called("f", TOLD), called("g", {"$top": 1}))
    assert told.messages[2] == asked().messages[2]


def heard(said: Sequence[StreamEvent]) -> list[StreamEvent]:
    async def events() -> AsyncGenerator[StreamEvent, None]:
        for each in said:
            yield each

    async def all_of_it() -> list[StreamEvent]:
        request = asked(ODD, EVEN)
        return [each async for each in with_own_members(events(), request, ANTHROPIC_MEMBERS)]

    return asyncio.run(all_of_it())


def news(index: int, status: str, **members: Any) -> StreamProgress:
    return StreamProgress(ToolCallDelta(index, ToolCallParseStatus(status), **members))


def test_what_a_model_calls_has_the_clients_names_again() -> None:
    text = json.dumps(TOLD)
    said = [
        StreamProgress(TextDelta(TOP)),
        news(0, "started", call_id="c1", tool_name="f"),
        news(1, "started", call_id="c2", tool_name="g"),
        news(0, "in_progress", arguments=text[:9]),
        news(1, "in_progress", arguments="{"),
        news(0, "in_progress", arguments=text[9:]),
        news(0, "succeeded", tool_call=called("f", TOLD)),
    ]
    own = called("f", OWN)
    assert heard(said) == [
        *said[:3],
        said[4],
        news(0, "in_progress", arguments=own.arguments_json),
        news(0, "succeeded", tool_call=own),
    ]


def test_a_call_that_comes_whole_stays_whole() -> None:
    [event] = heard([news(0, "succeeded", tool_call=called("f", TOLD))])
    assert event == news(0, "succeeded", tool_call=called("f", OWN))


def test_what_is_no_object_comes_as_it_was_written() -> None:
    broken = UnparseableToolCall("c1", "f", "{")
    begun = news(0, "started", call_id="c1", tool_name="f")
    said = [begun, news(0, "in_progress", arguments="{"), news(0, "failed", tool_call=broken)]
    assert heard(said) == said
