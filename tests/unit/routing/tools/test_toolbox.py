"""The tools of one reply: how often they may be used, and how many there may be."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llama_compat.errors import APIError
from llama_compat.exchange import Principal
from llama_compat.hosted.settings import ToolsSettings
from llama_compat.hosted.vocabulary import HostedCall, HostedTool, MCPTool, WebSearchTool
from llama_compat.tools.calls import parse_tool_call
from llama_compat.types import ChatCompletionRequest, UserMessage
from routing.tools.toolbox import MAX_SERVERS, ServerTools


def settings(folder: Path, **more: Any) -> ToolsSettings:
    search = {"backend": "files", "folder": str(folder), "max_uses": 3}
    return ToolsSettings.model_validate({"web_search": search, **more})


KEY = Principal("k")


async def outputs(
    tools: ServerTools,
    *hosted: HostedTool,
    called: tuple[str, ...],
    key: Principal = KEY,
    kinds: tuple[str, ...] = ("web_search", "mcp"),
) -> list[str]:
    """Words for what went wrong with each of some searches, or none."""
    toolbox = tools.for_call(
        key,
        frozenset(kinds),
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
    pytest.importorskip("mcp", reason="pip install 'llama-compat[mcp]'")
    mcp = {"servers": [{"label": "docs", "command": ["never-started"]}], "from_requests": True}
    tools = ServerTools(settings(tmp_path, mcp=mcp))
    await tools.start()
    with pytest.raises(APIError, match=says) as refused:
        await outputs(tools, *(MCPTool(*each) for each in servers), called=())
    assert (refused.value.status, refused.value.param) == (400, "tools")
    await tools.stop()


async def test_a_key_opens_no_tool_that_it_may_not(tmp_path: Path) -> None:
    """Whatever was seen of it before."""
    tools = ServerTools(settings(tmp_path))
    await tools.start()
    key = Principal("k", tools=("web_fetch",))
    with pytest.raises(APIError) as refused:
        await outputs(tools, WebSearchTool("a"), called=(), key=key, kinds=())
    assert (refused.value.status, refused.value.code) == (403, "tool_not_allowed")
    await tools.stop()


async def test_a_key_connects_to_no_server_by_url_that_may_not(tmp_path: Path) -> None:
    """Whatever was seen of it before."""
    pytest.importorskip("mcp", reason="pip install 'llama-compat[mcp]'")
    tools = ServerTools(settings(tmp_path, mcp={"from_requests": True}))
    await tools.start()
    assert tools.mcp is not None
    asked = MCPTool("d", "https://d.example")
    with pytest.raises(APIError) as refused:
        tools.mcp.server(asked, Principal("k", tools=("mcp.*",)), asks_users=False)
    assert (refused.value.status, refused.value.code) == (403, "tool_not_allowed")
    tools.mcp.server(asked, Principal("k", tools=("mcp_url",)), asks_users=False)
    await tools.stop()


async def test_servers_are_connected_to_at_once(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    class Servers:
        """Servers each of which is there when the other is asked for, too."""

        def server(self, asked: MCPTool, principal: Principal, *, asks_users: bool) -> Servers:
            return self

        @asynccontextmanager
        async def connected(self) -> AsyncGenerator[SimpleNamespace, None]:
            async with both:
                pass
            yield SimpleNamespace(listed=HostedCall("", "mcp_list_tools", ""), tools=lambda _: ())

    tools = ServerTools(settings(tmp_path, mcp={}))
    await tools.start()
    tools.mcp = cast(Any, Servers())
    async with asyncio.timeout(60):
        assert await outputs(tools, MCPTool("a"), MCPTool("b"), called=()) == []
    await tools.stop()


async def test_who_leaves_while_servers_are_connected_to_leaves_none(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="pip install 'llama-compat[mcp]'")
    begun = tmp_path / "begun"
    hangs = ["sh", "-c", f"echo $$ >> {begun}; exec sleep 600"]
    servers = [{"label": each, "command": hangs} for each in "ab"]
    tools = ServerTools(settings(tmp_path, mcp={"servers": servers}, max_seconds=600))
    await tools.start()
    asked = asyncio.create_task(outputs(tools, MCPTool("a"), MCPTool("b"), called=()))
    for _ in range(6000):
        if begun.exists() and len(begun.read_text().split()) == 2:
            break
        await asyncio.sleep(0.01)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    for pid in begun.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    await tools.stop()
