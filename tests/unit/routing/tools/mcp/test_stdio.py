"""A server that is a process: what it may say, and that it ends."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'llama-compat[mcp]'")

from llama_compat.exchange import Principal
from llama_compat.hosted.settings import MCPSettings
from llama_compat.hosted.vocabulary import MCPTool
from routing.tools.mcp.servers import MCPServer, MCPServers
from routing.tools.tool import ToolError

HOSTILE = Path(__file__).parents[4] / "abuse" / "hostile_mcp.py"


def server(behaviour: str, **settings: Any) -> MCPServer:
    own = {"label": "x", "command": [sys.executable, str(HOSTILE), behaviour], **settings}
    servers = MCPServers(MCPSettings.model_validate({"servers": [own]}), 30)
    return servers.server(MCPTool("x"), Principal("k"), asks_users=True)


def running(behaviour: str) -> list[Path]:
    """The processes of this group of a server's, itself and what it has started."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if f"{HOSTILE}\0{behaviour}".encode() in each.joinpath("cmdline").read_bytes():
                found.append(each)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("behaviour", "fault"),
    [
        ("floods", "larger than 16 MB"),
        ("babbles", "larger than 16 MB"),
        ("drones", "more than 32,768 values"),
        ("taps", "more than 32,768 values"),
        ("counts", "more than 32,768 values"),
    ],
)
@pytest.mark.program
async def test_one_that_says_too_much_is_ended_and_the_call_fails(
    behaviour: str, fault: str
) -> None:
    async with asyncio.timeout(60), server(behaviour).connected() as session:
        assert [each["name"] for each in session.listed.tools] == ["good"]
        with pytest.raises(ToolError) as failed:
            await session.call("good", {})
        assert fault in failed.value.message
        with pytest.raises(ToolError) as again:
            await session.call("good", {})
        assert fault in again.value.message
    assert running(behaviour) == []


async def test_one_that_says_too_much_of_its_tools_has_none() -> None:
    async with asyncio.timeout(60), server("many").connected() as session:
        assert session.listed.tools == ()
        assert "more than 32,768 values" in session.listed.output
    assert running("many") == []


async def test_what_goes_to_its_error_output_is_not_read() -> None:
    async with asyncio.timeout(60), server("moans").connected() as session:
        assert (await session.call("good", {})).text == "fine"


async def test_what_it_has_started_ends_with_it() -> None:
    async with asyncio.timeout(60), server("leaves").connected() as session:
        (process,) = running("leaves")
        (child,) = process.joinpath(f"task/{process.name}/children").read_text().split()
        assert (await session.call("good", {})).text == "fine"
    assert running("leaves") == []
    for _ in range(6000):
        if has_ended(child):
            return
        await asyncio.sleep(0.01)
    raise AssertionError


def has_ended(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z")


async def test_arguments_that_are_no_text_fail_the_call() -> None:
    async with asyncio.timeout(60), server("plain").connected() as session:
        with pytest.raises(ToolError):
            await session.call("good", {"x": "\ud800"})
