"""The server's tools: those of a template, those that one call may have run, and those of one
reply."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import structs

from llama_compat.errors import invalid_parameter, tool_not_allowed, unknown_tool_server
from llama_compat.exchange import Principal
from llama_compat.hosted.asked.mcp import BY_URL, tools_of
from llama_compat.hosted.parts import ReplyPart
from llama_compat.hosted.settings import ToolsSettings
from llama_compat.hosted.toolbox import Bounds
from llama_compat.hosted.vocabulary import (
    FileSearchTool,
    HostedCall,
    HostedTool,
    MCPTool,
    WebFetchTool,
    WebSearchTool,
    WebSource,
)
from llama_compat.tools.calls import arguments_object
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    CompletionMessage,
    Message,
    ToolDefinition,
    Usage,
    content_text,
)
from providers.remote import http1
from providers.remote.upstream.public_web import refuse_private
from routing.tools.file_search import FileSearch
from routing.tools.queries import Uses
from routing.tools.search_backends import Backend, backend_of
from routing.tools.tool import ServerTool, ToolError
from routing.tools.web_fetch import WebFetch
from routing.tools.web_search import WebSearch

if TYPE_CHECKING:
    from routing.tools.mcp.servers import MCPServers
    from routing.tools.mcp.session import MCPSession
    from routing.vector_stores.service import VectorStores

MAX_SERVERS = 32
"""Of MCP that one request may name: each is connected to, or started as a process."""

MAX_CONNECTIONS = 100
"""Open at a time, to all services and pages."""


class ServerTools:
    """The tools of a template, started and stopped with its runtime.

    Args:
        settings: of the template.
        vector_stores: of the template; None where it has none.

    Attributes:
        settings: they.
        vector_stores: those.
        known: the kinds of tools that there are.
        bounds: how far one reply goes.
        search: who searches; None where nobody does.
        web: connects to pages; there once it has started.
        mcp: the servers whose tools may be called; None for none.
    """

    def __init__(self, settings: ToolsSettings, vector_stores: VectorStores | None = None) -> None:
        self.settings = settings
        self.vector_stores = vector_stores
        kinds = ("web_search", "web_fetch", "file_search", "mcp")
        self.known = frozenset(kind for kind in kinds if getattr(settings, kind) is not None)
        self.bounds = Bounds(
            settings.max_turns,
            settings.max_parallel,
            settings.max_seconds,
            settings.max_result_bytes,
            settings.max_tokens,
        )
        self.search: Backend | None = None
        self.web: http1.Client | None = None
        self.mcp: MCPServers | None = None
        self._running = AsyncExitStack()
        self._listings = asyncio.Semaphore(settings.max_parallel)

    def is_for(self, settings: ToolsSettings, vector_stores: VectorStores | None) -> bool:
        """Whether they are those of such a template."""
        return self.settings == settings and self.vector_stores is vector_stores

    async def start(self) -> None:
        """Make what connects to services, pages and servers; nothing is connected to yet."""
        settings = self.settings
        timeouts = http1.Timeouts(connect=settings.max_seconds, first_byte=settings.max_seconds)
        if settings.web_search is not None:
            services = self._client(timeouts, is_public=False)
            self.search = backend_of(settings.web_search, services)
        if settings.web_fetch is not None:
            is_public = not settings.web_fetch.allow_private_addresses
            self.web = self._client(timeouts, is_public=is_public)
        if settings.mcp is not None:
            # Heavy, and an extra.
            from routing.tools.mcp.servers import MCPServers

            self.mcp = MCPServers(settings.mcp, settings.max_seconds)

    def _client(self, timeouts: http1.Timeouts, *, is_public: bool) -> http1.Client:
        client = http1.Client(
            timeouts=timeouts,
            max_connections=MAX_CONNECTIONS,
            check_address=refuse_private if is_public else None,
        )
        self._running.push_async_callback(client.close)
        return client

    async def stop(self) -> None:
        """Close it all again."""
        await self._running.aclose()

    def offered(self, principal: Principal) -> list[dict[str, Any]]:
        """What a key may have run, in the words of the Responses API; no server is asked."""
        kinds = ("web_search", "web_fetch", "file_search")
        found: list[dict[str, Any]] = [
            {"type": kind} for kind in kinds if kind in self.known and principal.may_call(kind)
        ]
        servers = () if self.settings.mcp is None else self.settings.mcp.servers
        for each in servers:
            if principal.may_call_below(tools_of(each.label)):
                found.append({"type": "mcp", "server_label": each.label})
        return found

    async def list_server(self, principal: Principal, label: str) -> dict[str, Any]:
        """What a server of the template has for a key; it is connected to for that, no more of them
        at a time than one reply has calls.

        Raises:
            APIError: 400, there is no such server; 403, it is not for this key.
        """
        if self.mcp is None:
            raise unknown_tool_server(label)
        server = self.mcp.server(MCPTool(label), principal, asks_users=True)
        async with self._listings, server.connected() as session:
            listed = session.listed
        return {
            "object": "tool.server",
            "server_label": label,
            "tools": [
                {**each, "require_approval": server.asks(each["name"])} for each in listed.tools
            ],
            "error": listed.output if listed.status == "failed" else None,
        }

    def for_call(
        self,
        principal: Principal,
        kinds: frozenset[str],
        servers: Sequence[tuple[str, str]] = (),
        *,
        stays_here: bool = False,
        asks_users: bool,
        affords: Callable[[Usage], bool],
        parts: list[ReplyPart],
    ) -> CallTools:
        """What is run for one call.

        Args:
            principal: who asks.
            kinds: of the tools that it asks for.
            servers: the labels and URLs of the MCP servers that it names.
            stays_here: whether no vendor can run them, as the files are here.
            asks_users: whether its API has a place for the user's word.
            affords: whether the model may be asked again after so much was used.
            parts: where is kept what was done.

        Raises:
            APIError: 403, as `check`.
        """
        others = self.check(principal, kinds, servers)
        if "mcp" in kinds & self.known:
            stays_here = stays_here or others < len(servers)
        kinds = kinds & self.known
        return CallTools(self, principal, kinds, stays_here, asks_users, affords, parts)

    def check(
        self, principal: Principal, kinds: frozenset[str], servers: Sequence[tuple[str, str]]
    ) -> int:
        """See whether a key may have run what it asks for, whoever would run it.

        Args:
            principal, kinds, servers: as for `for_call`.

        Returns:
            how many of the servers are none of the template's.

        Raises:
            APIError: 403, it may not. What it may call of a server of the template is seen to where
                that is connected to.
        """
        mcp = self.settings.mcp
        others = [each for each in servers if mcp is None or mcp.own(*each) is None]
        if "mcp" in kinds and (others or not servers):
            _check(principal, BY_URL)
        for kind in sorted(kinds - {"mcp"}):
            _check(principal, kind)
        return len(others)


class CallTools:
    """The tools that one call may have run: a `llama_compat.hosted.toolbox.HostedToolbox`.

    Args:
        tools: all there are.
        principal, kinds, stays_here, asks_users, affords, parts: as for `ServerTools.for_call`.
    """

    def __init__(
        self,
        tools: ServerTools,
        principal: Principal,
        kinds: frozenset[str],
        stays_here: bool,
        asks_users: bool,
        affords: Callable[[Usage], bool],
        parts: list[ReplyPart],
    ) -> None:
        self._tools = tools
        self._adapted: dict[str, None] = {}
        self.parts = parts
        self._principal = principal
        self.kinds = kinds
        self.stays_here = stays_here
        self.asks_users = asks_users
        self._affords = affords

    @property
    def known(self) -> frozenset[str]:
        """The kinds of tools that there are."""
        return self._tools.known

    @property
    def adapted(self) -> Sequence[str]:
        """Which schemas of servers' tools the models were not told as they are."""
        return [*self._adapted]

    @property
    def bounds(self) -> Bounds:
        """How far one reply goes."""
        return self._tools.bounds

    def affords(self, usage: Usage) -> bool:
        """Whether the model may be asked again after it has used so much."""
        return self._affords(usage)

    @asynccontextmanager
    async def opened(self, request: ChatCompletionRequest) -> AsyncGenerator[ReplyTools, None]:
        """The tools that `request` asks for, for one reply to it.

        Raises:
            APIError: 403, one is not for the key, or no tool of a server; 400, there is no such
                server, or one is named twice, or too many are.
        """
        tools, principal, settings = self._tools, self._principal, self._tools.settings
        opened = ReplyTools({each.tool_name for each in request.tools})
        web, pages, files = (
            Uses(0 if each is None else each.max_uses)
            for each in (settings.web_search, settings.web_fetch, settings.file_search)
        )
        async with AsyncExitStack() as running:
            sessions = await self._connected(request.hosted, running)
            for asked in request.hosted:
                if isinstance(asked, WebSearchTool) and settings.web_search is not None:
                    _check(principal, "web_search")
                    assert tools.search is not None
                    opened.add(WebSearch(asked, settings.web_search, tools.search, web))
                elif isinstance(asked, WebFetchTool) and settings.web_fetch is not None:
                    _check(principal, "web_fetch")
                    assert tools.web is not None
                    is_known = opened.knows_url_of(request.messages)
                    opened.add(WebFetch(asked, settings.web_fetch, tools.web, is_known, pages))
                elif isinstance(asked, FileSearchTool) and settings.file_search is not None:
                    _check(principal, "file_search")
                    assert tools.vector_stores is not None
                    stores = tools.vector_stores
                    search = FileSearch(asked, settings.file_search, stores, principal, files)
                    await search.check()
                    opened.add(search)
                elif isinstance(asked, MCPTool) and settings.mcp is not None:
                    self._add_server(sessions[asked.label, asked.url], opened)
            yield opened

    async def _connected(
        self, hosted: Sequence[HostedTool], running: AsyncExitStack
    ) -> Mapping[tuple[str, str], MCPSession]:
        """Sessions with the servers of a request, for this reply: at once, so that who is slow or
        hangs holds up no other.

        Raises:
            APIError: 403, the key may not; 400, there is no such server, or one is named twice, or
                too many are.
        """
        if self._tools.mcp is None:
            return {}
        asked = [each for each in hosted if isinstance(each, MCPTool)]
        _check_servers(asked)
        servers = [
            self._tools.mcp.server(each, self._principal, asks_users=self.asks_users)
            for each in asked
        ]
        sessions = await asyncio.gather(
            *(running.enter_async_context(each.connected()) for each in servers)
        )
        named = ((each.label, each.url) for each in asked)
        return dict(zip(named, sessions, strict=True))

    def _add_server(self, session: MCPSession, opened: ReplyTools) -> None:
        """Add what a server has."""
        opened.listed.append(session.listed)
        for tool in session.tools(opened.names):
            opened.add(tool)
            if tool.told.is_another:
                self._adapted[f"{tool.definition.tool_name}.input_schema"] = None


def _check_servers(servers: Sequence[MCPTool]) -> None:
    """See to it that a request has no more connected to, or started, than it can use.

    Raises:
        APIError: 400, it names one twice, or too many.
    """
    named: set[tuple[str, str]] = set()
    for each in servers:
        if (each.label, each.url) in named:
            message = f"The MCP server '{each.label[:80]}' is named more than once."
            raise invalid_parameter("tools", message)
        named.add((each.label, each.url))
    if len(servers) > MAX_SERVERS:
        raise invalid_parameter("tools", f"A request may name {MAX_SERVERS} MCP servers at most.")


def _check(principal: Principal, name: str) -> None:
    if not principal.may_call(name):
        raise tool_not_allowed(name)


class ReplyTools:
    """The tools of one reply: `llama_compat.hosted.toolbox.OpenTools`.

    Args:
        taken: the names of the client's own tools.

    Attributes:
        listed: what is shown of where they come from.
    """

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._tools: dict[str, ServerTool] = {}
        self._urls: set[str] = set()
        self.listed: list[HostedCall] = []

    def add(self, tool: ServerTool) -> None:
        """One more; it is called by the name of its definition."""
        self._tools[tool.definition.tool_name] = tool

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """What the model is shown."""
        return [tool.definition for tool in self._tools.values()]

    @property
    def names(self) -> set[str]:
        """All that is taken."""
        return self._taken | self._tools.keys()

    def name_of(self, label: str, name: str) -> str | None:
        """What the model calls the tool `name` of the MCP server `label`; None where there is no
        such tool."""
        for called, tool in self._tools.items():
            if tool.kind == "mcp" and (tool.server, tool.name) == (label, name):
                return called
        return None

    def _shown(self, call: AnyToolCall) -> HostedCall:
        tool = self._tools[call.tool_name]
        return HostedCall(
            call.call_id,
            tool.kind,
            tool.name,
            call.arguments_json or "{}",
            tool.server,
            model_name=call.tool_name,
        )

    def begun(self, call: AnyToolCall) -> HostedCall:
        """The call as it is shown before it runs."""
        shown = self._shown(call)
        if not self._tools[call.tool_name].asks:
            return shown
        return structs.replace(shown, kind="mcp_approval_request", status="completed")

    async def run(self, call: AnyToolCall) -> HostedCall:
        """Run a call; what goes wrong is what it gives."""
        shown = self._shown(call)
        try:
            gave = await self._tools[call.tool_name].run(arguments_object(call))
        except ToolError as error:
            return structs.replace(shown, status="failed", error=error.code, output=error.message)
        self._urls.update(each.url for each in gave.sources if isinstance(each, WebSource))
        return structs.replace(
            shown,
            status="failed" if gave.is_error else "completed",
            output=gave.text,
            sources=tuple(gave.sources),
            images=tuple(gave.images),
        )

    def knows_url_of(self, messages: Sequence[Message]) -> Callable[[str], bool]:
        """Tells whether a URL stands in one of `messages`, or was found since."""

        def is_known(url: str) -> bool:
            if url in self._urls:
                return True
            return any(_is_in(url, text) for text in _texts(messages))

        return is_known


def _texts(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        # What the model says itself is no ground to read it: it may have been told to by a page.
        if not isinstance(message, CompletionMessage):
            yield content_text(message.content)


_GOES_ON = re.compile(r"[\w/?=&%#~+@-]|[.:][\w/?=&%#~+@-]")
"""What follows an address that is none but the beginning of a longer one. A sentence may end with
one."""


def _is_in(url: str, text: str) -> bool:
    """Whether `url` stands in `text`, not as the beginning of a longer one."""
    place = text.find(url)
    while place >= 0:
        if not _GOES_ON.match(text, place + len(url)):
            return True
        place = text.find(url, place + 1)
    return False
