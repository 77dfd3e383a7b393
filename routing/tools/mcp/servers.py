"""Servers of the Model Context Protocol: which there are, and what of each a request may use.

A server is connected to, or its process started, for one reply, and let go with it: so no key's
session is ever another's, and what a server has is asked anew each time.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from llama_compat.errors import invalid_parameter, tool_not_allowed, unknown_tool_server
from llama_compat.exchange import Principal
from llama_compat.hosted.asked.mcp import BY_URL, tools_of
from llama_compat.hosted.settings import MCPServerSettings, MCPSettings
from llama_compat.hosted.vocabulary import MCPTool
from providers.remote.http1 import default_tls_context
from routing.tools.mcp.answers import MAX_BYTES
from routing.tools.mcp.http import BoundedTransport, PublicTransport
from routing.tools.mcp.session import MCPSession
from routing.tools.mcp.stdio import StdioServer

# What a server says may be meant for the model alone, and its URL may have a key in it.
for _logger in ("mcp", "client", "httpx2"):
    logging.getLogger(_logger).setLevel(logging.CRITICAL + 1)


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
            if not principal.may_call_below(tools_of(own.label)):
                raise tool_not_allowed(f"{tools_of(own.label)}*")
            if asked.authorization or asked.headers:
                raise invalid_parameter(
                    "tools",
                    f"'{asked.label}' is a server of the template, which has its credentials: send"
                    " no 'authorization' and no 'headers' for it.",
                )
            return MCPServer(own, asked, principal, self._settings, self._seconds, asks_users)
        if not asked.url or not self._settings.from_requests:
            raise unknown_tool_server(asked.label)
        if not principal.may_call(BY_URL):
            raise tool_not_allowed(BY_URL)
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
        self._process: StdioServer | None = None
        if own is not None and own.command:
            self._process = StdioServer(own.command, own.env)

    @property
    def fault(self) -> str:
        """Why its process was ended, for people; empty where it has none, or was not."""
        return "" if self._process is None else self._process.fault

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
        if self._process is not None:
            transport: Any = self._process.streams()
        else:
            # One for all: to make one for each reply would hold the loop up for 50 ms.
            tls = await asyncio.to_thread(default_tls_context)
            http = httpx2.AsyncClient(
                headers=self._headers(),
                timeout=httpx2.Timeout(self._seconds),
                transport=self._transport(tls),
                trust_env=False,
            )
            await running.enter_async_context(http)
            url = self._asked.url if self._own is None else self._own.url or ""
            transport = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_BYTES)
        return await running.enter_async_context(
            Client(transport, read_timeout_seconds=self._seconds, cache=None)
        )

    def _transport(self, tls: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
        guarded = self._own is None and not self._settings.allow_private_addresses
        transport = PublicTransport(tls) if guarded else httpx2.AsyncHTTPTransport(verify=tls)
        return BoundedTransport(transport)

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
        if not self._principal.may_call(f"{tools_of(own.label)}{name}"):
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
