"""What a model calls the tools of servers."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.hosted.asked.mcp import (
    named_server,
    parse_googles_server,
    server_call,
    server_tool_name,
)
from llama_compat.tools.names import OPENAI_NAMES


@pytest.mark.parametrize(("label", "name"), [("my docs", "a.b"), ("docs", "x" * 80), ("d", "é")])
def test_a_name_that_vendors_refuse_is_another_by_the_rule_of_all_tools(
    label: str, name: str
) -> None:
    given = server_tool_name(label, name)
    assert OPENAI_NAMES.takes(given)
    assert given == OPENAI_NAMES.fitted(f"{label}__{name}")
    assert given != server_tool_name(label, name + "_")


def test_others_stay_as_they_are() -> None:
    assert server_tool_name("docs", "find") == "docs__find"
    call = server_call("c", "docs", "find", "{}")
    assert (call.tool_name, call.server_tool) == ("docs__find", ("docs", "find"))


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "d", "url": "https://d.example"},
        {"name": "d", "streamableHttpTransport": {"url": "https://d.example"}},
        {"name": "d", "streamable_http_transport": {"url": "https://d.example"}},
        {"name": "d", "streamableHttpTransport": None, "url": "https://d.example"},
        {"type": "mcp_server", "name": "d", "url": "https://d.example"},
        {"server_label": "d", "server_url": "https://d.example", "name": "e", "url": "https://e"},
    ],
)
def test_a_server_of_googles_is_the_one_that_was_looked_at(tool: dict[str, Any]) -> None:
    server = parse_googles_server(tool, "tools[0]")
    assert (server.label, server.url) == named_server(tool) == ("d", "https://d.example")
