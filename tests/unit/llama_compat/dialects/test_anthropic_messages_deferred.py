"""Tools that a client of Anthropic's API has its model find first, before models of others."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages import parse_request, parse_token_count
from llama_compat.types import ToolResponseMessage

SEARCH = {"name": "ToolSearch", "input_schema": {"type": "object"}}
FETCH = {"name": "WebFetch", "input_schema": {"type": "object"}, "defer_loading": True}
CLOCK = {"name": "Clock", "input_schema": {"type": "object"}, "defer_loading": True}

ASKED = {"role": "user", "content": "What does the page say?"}
SEARCHED = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "1", "name": "ToolSearch", "input": {}}],
}


def found(*names: str) -> dict[str, Any]:
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": "1", "content": references}
    return {"role": "user", "content": [result]}


def body(*messages: Any, **members: Any) -> dict[str, Any]:
    tools = [SEARCH, FETCH, CLOCK]
    return {"max_tokens": 9, "messages": [ASKED, *messages], "tools": tools, **members}


def offered(asked: dict[str, Any]) -> list[str]:
    chat, count = (
        [tool.tool_name for tool in parse(asked, "theirs").request.tools]
        for parse in (parse_request, parse_token_count)
    )
    assert chat == count
    return chat


def test_a_tool_that_comes_later_is_not_shown_before_it_is_found() -> None:
    assert offered(body()) == ["ToolSearch"]
    assert offered(body(SEARCHED, found("WebFetch"))) == ["ToolSearch", "WebFetch"]
    assert offered(body(SEARCHED, found("Clock", "WebFetch"))) == [
        "ToolSearch",
        "WebFetch",
        "Clock",
    ]


def test_the_model_reads_which_tools_were_found() -> None:
    messages = parse_request(body(SEARCHED, found("WebFetch", "Clock")), "theirs").request.messages
    told = "Found the tool WebFetch.\nFound the tool Clock."
    assert messages[-1] == ToolResponseMessage("1", told)


def test_a_tool_that_is_chosen_is_there() -> None:
    choice = {"type": "tool", "name": "Clock"}
    assert offered(body(tool_choice=choice)) == ["ToolSearch", "Clock"]


@pytest.mark.parametrize("kind", ["regex", "bm25"])
def test_tools_that_only_anthropic_could_find_are_there_from_the_start(kind: str) -> None:
    hosted = {"type": f"tool_search_tool_{kind}_20251119", "name": f"tool_search_tool_{kind}"}
    assert offered(body(tools=[hosted, FETCH, CLOCK])) == ["WebFetch", "Clock"]


def test_a_tool_that_is_not_deferred_stays() -> None:
    assert offered(body(tools=[SEARCH, {**FETCH, "defer_loading": False}])) == [
        "ToolSearch",
        "WebFetch",
    ]
