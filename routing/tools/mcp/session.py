"""A session with a server: its list of tools, and calls of them."""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal

from mcp import Client, MCPError
from mcp.types import CallToolResult, ResourceLink, TextContent, Tool
from msgspec import Struct

from llama_compat.hosted.asked.mcp import server_tool_name
from llama_compat.hosted.vocabulary import HostedCall, free_name
from llama_compat.types import ToolDefinition
from llama_compat.wire.json_fields import encode_json
from routing.tools.mcp.schemas import ModelSchema, as_vendors_take_it, is_fit
from routing.tools.tool import Gave, ToolError

if TYPE_CHECKING:
    from routing.tools.mcp.servers import MCPServer

MAX_PAGES = 20
MAX_DESCRIPTION = 8000
MAX_TITLE = 1000
MAX_IMAGES_BYTES = 4 << 20

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What vendors take: with another the whole request would be refused."""

CLOSE_SECONDS = 10.0
"""How long the end of a session may take before it is cancelled."""


class MCPSession:
    """A session with one server, held by a task of its own: it is opened and closed there, whoever
    waits for it.

    Args:
        server: that.
        label: what the request calls it.

    Attributes:
        listed: what is shown of its list of tools.
    """

    def __init__(self, server: MCPServer, label: str) -> None:
        self._server = server
        self._label = label
        self._tools: list[Tool] = []
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._held: asyncio.Task[None] | None = None
        self.listed = HostedCall("", "mcp_list_tools", "", server=label, status="failed")

    async def start(self, seconds: float, most: int) -> None:
        """Connect, and get the list of tools; where that fails there are none."""
        why = "It can't be connected to."
        try:
            async with asyncio.timeout(seconds):
                self._held = asyncio.create_task(self._hold())
                await self._ready.wait()
                if self._client is not None:
                    why = "It does not tell its tools."
                    self._tools = await _listed(self._client, self._server, most)
                    why = ""
        except TimeoutError:
            why = f"It did not tell its tools within {seconds:g} seconds."
        except MCPError as error:
            why = f"{why} {error.error.message[:MAX_DESCRIPTION]}"
        except Exception:  # Whatever a server makes of the SDK is the server's.
            pass
        if why and self._server.fault:
            why = _ended(self._server)
        self.listed = HostedCall(
            "",
            "mcp_list_tools",
            "",
            server=self._label,
            status="failed" if why else "completed",
            output=why,
            tools=tuple(
                {
                    "name": each.name,
                    "description": _description(each),
                    "input_schema": each.input_schema,
                    "annotations": _annotations(each),
                }
                for each in self._tools
            ),
        )

    async def stop(self) -> None:
        """Let go of the server; a process of its ends."""
        self._over.set()
        held = self._held
        if held is None:
            return
        try:
            await asyncio.wait([held], timeout=CLOSE_SECONDS if self._client else 0)
        finally:
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)

    async def _hold(self) -> None:
        try:
            async with AsyncExitStack() as running:
                self._client = await self._server.open(running)
                self._ready.set()
                await self._over.wait()
        finally:
            self._client = None
            self._ready.set()

    def tools(self, taken: set[str]) -> Iterator[MCPServerTool]:
        """Its tools, under names that are not in `taken`, where they are from then on."""
        for tool in self._tools:
            told = as_vendors_take_it(tool.input_schema)
            definition = ToolDefinition(
                free_name(server_tool_name(self._label, tool.name), taken),
                _description(tool),
                told.schema,
            )
            yield MCPServerTool(
                name=tool.name,
                server=self._label,
                definition=definition,
                asks=self._server.asks(tool.name),
                session=self,
                told=told,
            )

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Gave:
        """Call a tool.

        Raises:
            ToolError: the server is gone, or fails.
        """
        client = self._client
        if client is None:
            raise ToolError("unavailable", "The tool's server is gone.")
        try:
            result = await client.call_tool(name, dict(arguments))
        except Exception as error:
            if self._server.fault:
                raise ToolError("unavailable", _ended(self._server)) from None
            raise ToolError("unavailable", _failed(error)) from None
        return _gave(result)


class MCPServerTool(Struct, frozen=True):
    """One tool of a server's: a `ServerTool`."""

    name: str
    server: str
    definition: ToolDefinition
    asks: bool
    session: MCPSession
    told: ModelSchema
    kind: Literal["mcp"] = "mcp"

    async def run(self, arguments: Mapping[str, Any]) -> Gave:
        """Call it.

        Raises:
            ToolError: the server is gone, or fails.
        """
        return await self.session.call(self.name, self.told.told_server(arguments))


def _ended(server: MCPServer) -> str:
    return f"The server's process was ended. {server.fault}"


def _failed(error: Exception) -> str:
    if isinstance(error, MCPError):
        return f"The tool's server failed: {error.error.message[:MAX_DESCRIPTION]}"
    return "The tool's server failed."


async def _listed(client: Client, server: MCPServer, most: int) -> list[Tool]:
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [
            each
            for each in page.tools
            if server.offers(each.name) and is_fit(each.input_schema) and not _is_task(each)
        ]
        cursor = page.next_cursor
        if not cursor or len(tools) >= most:
            break
    return tools[:most]


def _is_task(tool: Tool) -> bool:
    """Whether a tool can only be called as a task, which goes on when the reply has ended
    (https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks)."""
    execution: Any = getattr(tool, "execution", None)
    return getattr(execution, "task_support", None) == "required"


def _description(tool: Tool) -> str | None:
    return (tool.description or "")[:MAX_DESCRIPTION] or None


def _annotations(tool: Tool) -> dict[str, Any] | None:
    """What a server says of a tool beside its description, such as that it only reads."""
    said = tool.annotations
    if said is None:
        return None
    known = said.model_dump(include=set(type(said).model_fields), by_alias=True, exclude_none=True)
    return {
        name: each[:MAX_TITLE] if isinstance(each, str) else each for name, each in known.items()
    }


def _is_base64(data: str) -> bool:
    try:
        return bool(binascii.a2b_base64(data.encode(), strict_mode=True))
    except ValueError:
        return False


def _gave(result: CallToolResult) -> Gave:
    texts: list[str] = []
    images: list[str] = []
    size = 0
    for block in result.content:
        if isinstance(block, TextContent):
            texts.append(block.text)
            continue
        resource = getattr(block, "resource", None)
        shown: Any = block if resource is None else resource
        data: Any = getattr(shown, "blob" if resource else "data", None)
        media_type = getattr(shown, "mime_type", None) or ""
        is_image = media_type in _IMAGES and isinstance(data, str)
        size += len(data) if is_image else 0
        if is_image and (size > MAX_IMAGES_BYTES or _is_base64(data)):
            if size <= MAX_IMAGES_BYTES:
                images.append(f"data:{media_type};base64,{data}")
            else:
                texts.append("[An image that is too large was left out.]")
        elif isinstance(getattr(resource, "text", None), str):
            texts.append(str(getattr(resource, "text", "")))
        elif isinstance(block, ResourceLink):
            told = ", ".join(filter(None, (block.name, block.description, block.mime_type)))
            texts.append(f"[A link to {block.uri}: {told}]")
        else:
            named = getattr(shown, "uri", None) or media_type
            texts.append(f"[{block.type}: {named or 'it'} can't be shown here.]")
    if not result.content and result.structured_content is not None:
        texts.append(encode_json(result.structured_content).decode())
    return Gave("\n".join(texts), is_error=bool(result.is_error), images=images)
