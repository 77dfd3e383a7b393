"""What a model calls the tools of servers."""

from __future__ import annotations

import pytest

from llama_compat.hosted.asked.mcp import server_call, server_tool_name
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
