"""The tools of one reply: how often they may be used, and how many there may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_compat.errors import APIError
from llama_compat.exchange import Principal
from llama_compat.hosted.settings import ToolsSettings
from llama_compat.hosted.vocabulary import HostedTool, MCPTool, WebSearchTool
from llama_compat.tools.calls import parse_tool_call
from llama_compat.types import ChatCompletionRequest, UserMessage
from routing.tools.toolbox import MAX_SERVERS, ServerTools


def settings(folder: Path, **more: Any) -> ToolsSettings:
    search = {"backend": "files", "folder": str(folder), "max_uses": 3}
    return ToolsSettings.model_validate({"web_search": search, **more})


async def outputs(tools: ServerTools, *hosted: HostedTool, called: tuple[str, ...]) -> list[str]:
    """Words for what went wrong with each of some searches, or none."""
    toolbox = tools.for_call(
        Principal("k"),
        frozenset({"web_search", "mcp"}),
        asks_users=False,
        affords=lambda usage: True,
        parts=[],
    )
    request = ChatCompletionRequest("m", (UserMessage("Hi"),), hosted=hosted)
    async with toolbox.opened(request) as opened:
        calls = [parse_tool_call("c", name, '{"query":"x"}') for name in called]
        return [(await opened.run(each)).error or "" for each in calls]


async def test_a_search_that_is_named_twice_is_made_no_more_often(tmp_path: Path) -> None:
    tools = ServerTools(settings(tmp_path))
    await tools.start()
    names = ("a", "b", "b", "a", "b")
    hosted = (WebSearchTool("a"), WebSearchTool("b"))
    used_up = "max_uses_exceeded"
    assert await outputs(tools, *hosted, called=names) == ["", "", "", used_up, used_up]
    # Each reply has its own, and each tool what the request says of it.
    hosted = (WebSearchTool("a", max_uses=1), WebSearchTool("b", max_uses=9))
    found = await outputs(tools, *hosted, called=("a", "a", "b", "b", "b"))
    assert found == ["", used_up, "", "", used_up]
    await tools.stop()


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        ([("docs", ""), ("docs", "")], "named more than once"),
        ([("d", "https://x"), ("d", "https://x")], "named more than once"),
        ([("d", f"https://x{n}") for n in range(MAX_SERVERS + 1)], "at most"),
    ],
)
async def test_a_request_has_no_crowd_of_servers_started(
    tmp_path: Path, servers: list[tuple[str, str]], says: str
) -> None:
    mcp = {"servers": [{"label": "docs", "command": ["never-started"]}]}
    tools = ServerTools(settings(tmp_path, mcp=mcp))
    with pytest.raises(APIError, match=says) as refused:
        await outputs(tools, *(MCPTool(*each) for each in servers), called=())
    assert (refused.value.status, refused.value.param) == (400, "tools")
