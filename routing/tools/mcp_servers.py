"""Tools of servers of the Model Context Protocol, by the official SDK.

A server is connected to, or its process started, for one reply, and let go with it: so no key's
session is ever another's, and what a server has is asked anew each time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, ResourceLink, TextContent, Tool
from msgspec import Struct

from llama_compat.errors import invalid_parameter, tool_not_allowed, unknown_tool_server
from llama_compat.exchange import Principal
from llama_compat.hosted.settings import MCPServerSettings, MCPSettings
from llama_compat.hosted.vocabulary import HostedCall, MCPTool, free_name, server_tool_name
from llama_compat.tools.python_types import parameters_schema
from llama_compat.types import ToolDefinition
from llama_compat.wire.json_depth import MAX_DEPTH, is_deeper
from llama_compat.wire.json_fields import encode_json
from routing.tools.public_http import BoundedTransport, PublicTransport
from routing.tools.tool import Gave, ToolError

# What a server says may be meant for the model alone, and its URL may have a key in it.
for _logger in ("mcp", "client", "httpx2"):
    logging.getLogger(_logger).setLevel(logging.CRITICAL + 1)

MAX_PAGES = 20
MAX_SCHEMA_BYTES = 64 * 1024
MAX_DESCRIPTION = 8000
MAX_TITLE = 1000
MAX_IMAGES_BYTES = 4 << 20

MAX_ANSWER_BYTES = 16 << 20
"""Of one answer over HTTP: a list of tools with all their schemas, or a result with its images."""

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What vendors take, where a resource is one."""

CLOSE_SECONDS = 10.0
"""How long the end of a session may take before it is cancelled."""


class MCPServers:
    """The servers that a template lets models call.

    Args:
        settings: of the template.
        seconds: for connecting, and for a list of tools.
    """

    def __init__(self, settings: MCPSettings, seconds: float) -> None:
        self._settings = settings
        self._seconds = seconds

    def server(self, asked: MCPTool, principal: Principal, *, asks_users: bool) -> MCPServer:
        """The server that a request asks for.

        Args:
            asked: what the request says of it.
            principal: who asks.
            asks_users: whether the user's word can be asked for.

        Raises:
            APIError: 400, there is no such server; 403, it is not for this key.
        """
        own = self._settings.own(asked.label, asked.url)
        if own is not None:
            if principal.tools == ():
                raise tool_not_allowed(f"mcp.{asked.label}")
            if asked.authorization or asked.headers:
                raise invalid_parameter(
                    "tools",
                    f"'{asked.label}' is a server of the template, which has its credentials: send"
                    " no 'authorization' and no 'headers' for it.",
                )
            return MCPServer(own, asked, principal, self._settings, self._seconds, asks_users)
        if not asked.url or not self._settings.from_requests:
            raise unknown_tool_server(asked.label)
        if not asked.url.startswith(("http://", "https://")):
            raise invalid_parameter("tools", "An MCP server's URL begins with https:// or http://.")
        return MCPServer(None, asked, principal, self._settings, self._seconds, asks_users)


class MCPServer:
    """One server, as one request may use it.

    Args:
        own: the template's settings of it; None for one that the request brings.
        asked: what the request says of it.
        principal: who asks.
        settings: of all servers.
        seconds: for connecting, and for its list of tools.
        asks_users: whether the user's word can be asked for.
    """

    def __init__(
        self,
        own: MCPServerSettings | None,
        asked: MCPTool,
        principal: Principal,
        settings: MCPSettings,
        seconds: float,
        asks_users: bool,
    ) -> None:
        self._own = own
        self._asked = asked
        self._principal = principal
        self._settings = settings
        self._seconds = seconds
        self._asks_users = asks_users

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[MCPSession, None]:
        """A session with it, which has its list of tools, or says why not."""
        session = MCPSession(self, self._asked.label)
        try:
            await session.start(self._seconds, self._settings.max_tools)
            yield session
        finally:
            await session.stop()

    async def open(self, running: AsyncExitStack) -> Client:
        """Connect, as what `running` holds."""
        own = self._own
        if own is not None and own.command:
            program, *arguments = own.command
            env = {name: value.get_secret_value() for name, value in own.env.items()}
            # Opening it does not block.
            nothing = running.enter_context(open(os.devnull, "w"))  # noqa: ASYNC230, SIM115
            transport: Any = stdio_client(
                StdioServerParameters(command=program, args=arguments, env=env), errlog=nothing
            )
        else:
            http = httpx2.AsyncClient(
                headers=self._headers(),
                timeout=httpx2.Timeout(self._seconds),
                transport=self._transport(),
                trust_env=False,
            )
            await running.enter_async_context(http)
            url = self._asked.url if own is None else own.url or ""
            transport = streamable_http_client(
                url, http_client=http, max_sse_event_size=MAX_ANSWER_BYTES
            )
        return await running.enter_async_context(
            Client(transport, read_timeout_seconds=self._seconds, cache=None)
        )

    def _transport(self) -> httpx2.AsyncBaseTransport:
        guarded = self._own is None and not self._settings.allow_private_addresses
        transport = PublicTransport() if guarded else httpx2.AsyncHTTPTransport()
        return BoundedTransport(transport, MAX_ANSWER_BYTES)

    def _headers(self) -> dict[str, str]:
        if self._own is not None:
            return {name: each.get_secret_value() for name, each in self._own.headers.items()}
        headers = dict(self._asked.headers)
        if self._asked.authorization:
            headers["authorization"] = f"Bearer {self._asked.authorization}"
        return headers

    def offers(self, name: str) -> bool:
        """Whether the request, the template and the key all let a tool be called."""
        own, asked = self._own, self._asked
        if asked.allowed_tools is not None and name not in asked.allowed_tools:
            return False
        if own is None:
            return self._asks_users or not self.asks(name)
        if own.allowed_tools is not None and name not in own.allowed_tools:
            return False
        if not self._principal.may_call(f"mcp.{own.label}.{name}"):
            return False
        return self._asks_users or not self.asks(name)

    def asks(self, name: str) -> bool:
        """Whether the user has to let a tool be called each time."""
        wanted = self._asked.asks_before
        if self._own is None:
            # As OpenAI has it where a request does not say.
            return _asks("always" if wanted is None and self._asks_users else wanted, name)
        return _asks(self._own.require_approval, name) or _asks(wanted, name)


def _asks(rule: Any, name: str) -> bool:
    return rule == "always" or (isinstance(rule, list | tuple) and name in rule)


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
        except Exception:  # Whatever a server makes of the SDK is the server's.
            pass
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
                    "description": each.description,
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
            definition = ToolDefinition(
                free_name(server_tool_name(self._label, tool.name), taken),
                (tool.description or "")[:MAX_DESCRIPTION] or None,
                _schema(tool.input_schema),
            )
            yield MCPServerTool(
                name=tool.name,
                server=self._label,
                definition=definition,
                asks=self._server.asks(tool.name),
                session=self,
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
        except MCPError as error:
            message = error.error.message[:MAX_DESCRIPTION]
            raise ToolError("unavailable", f"The tool's server failed: {message}") from None
        except Exception:
            raise ToolError("unavailable", "The tool's server failed.") from None
        return _gave(result)


class MCPServerTool(Struct, frozen=True):
    """One tool of a server's: a `ServerTool`."""

    name: str
    server: str
    definition: ToolDefinition
    asks: bool
    session: MCPSession
    kind: Literal["mcp"] = "mcp"

    async def run(self, arguments: Mapping[str, Any]) -> Gave:
        """Call it.

        Raises:
            ToolError: the server is gone, or fails.
        """
        return await self.session.call(self.name, arguments)


async def _listed(client: Client, server: MCPServer, most: int) -> list[Tool]:
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [
            each
            for each in page.tools
            if server.offers(each.name) and _is_fit(each.input_schema) and not _is_task(each)
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


def _annotations(tool: Tool) -> dict[str, Any] | None:
    """What a server says of a tool beside its description, such as that it only reads."""
    said = tool.annotations
    if said is None:
        return None
    known = said.model_dump(include=set(type(said).model_fields), by_alias=True, exclude_none=True)
    return {
        name: each[:MAX_TITLE] if isinstance(each, str) else each for name, each in known.items()
    }


def _is_fit(schema: Any) -> bool:
    """Whether a schema can be given to a model: no larger and no deeper than makes sense."""
    try:
        encoded = encode_json(schema)
    except (ValueError, TypeError, RecursionError):
        return False
    return len(encoded) <= MAX_SCHEMA_BYTES and not is_deeper(encoded, MAX_DEPTH)


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's schema as vendors take it: an object's, which names no dialect of JSON Schema."""
    known = {name: value for name, value in schema.items() if name not in ("$schema", "$id")}
    try:
        return parameters_schema({"properties": {}, **known, "type": "object"})
    except (ValueError, RecursionError):
        return {"type": "object", "properties": {}}


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
        data = getattr(shown, "blob" if resource else "data", None)
        media_type = getattr(shown, "mime_type", None) or ""
        is_image = block.type == "image" or media_type in _IMAGES
        if is_image and isinstance(data, str) and media_type:
            size += len(data)
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
