"""Tools that the server runs: which requests ask for some, and what they may come to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Raw
from msgspec.structs import replace

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.exchange import Call, Reply
from llama_compat.hosted.asked.named import NAMING, NamedTools, tools_named
from llama_compat.hosted.parts import ReplyPart
from llama_compat.off_loop import off_loop
from llama_compat.types import Usage
from routing.models import Route
from routing.request import Handler, Request
from routing.tools.toolbox import ServerTools

WIRES = frozenset({"chat", "responses", "messages", "gemini_generate", "interactions"})
"""The calls of client APIs that have words for such tools."""

_NOTHING = Raw(b"")

MostCost = Callable[[Route, Usage], int | None]
"""What a usage costs at most, in billionths of a dollar; None where nobody knows."""


class ServerToolsLayer:
    """Gives calls the tools that the server runs for them, if they ask for any.

    Args:
        next: answers requests.
        tools: what there is.
        most_cost: what replies cost.
    """

    def __init__(self, next: Handler, tools: ServerTools, most_cost: MostCost | None) -> None:
        self._next = next
        self._tools = tools
        self._most_cost = most_cost

    def __call__(self, request: Request) -> Awaitable[Reply]:
        """Answer a request.

        Raises:
            APIError: what the next layer raises.
        """
        call = request.call
        if call is None:
            return self._next(request)
        if call.operation.name in WIRES:
            return self._answer(request, call)
        if call.principal.tools is None:
            return self._next(request)
        return self._checked(request, call)

    async def _checked(self, request: Request, call: Call) -> Reply:
        """Answer one of an API whose tools a vendor alone runs.

        Raises:
            APIError: 403, the key may not have one run; what the next layer raises.
        """
        asked = await self._named(call)
        self._tools.check(call.principal, asked.kinds, asked.servers)
        return await self._next(request)

    async def _answer(self, request: Request, call: Call) -> Reply:
        parts: list[ReplyPart] = []
        request.parts = parts
        request.call = await self._with_tools(call, request.route, parts)
        return await self._next(request)

    async def equipped(self, call: Call, route: Route | None, parts: list[ReplyPart]) -> Call:
        """A call with the tools that the server runs for it.

        Args:
            call: that.
            route: where it goes.
            parts: where is kept what was done.

        Raises:
            APIError: 403, the key may not have one run.
        """
        if call.operation.name not in WIRES:
            return call
        return await self._with_tools(call, route, parts)

    async def _with_tools(self, call: Call, route: Route | None, parts: list[ReplyPart]) -> Call:
        asked = await self._named(call)
        stays_here = False
        if asked.stores and "file_search" in self._tools.known:
            # A store that the key has not here may be the vendor's own.
            assert self._tools.vector_stores is not None
            owned = await self._tools.vector_stores.stores.owned(call.principal.id, asked.stores)
            stays_here = bool(owned)
        toolbox = self._tools.for_call(
            call.principal,
            asked.kinds,
            asked.servers,
            stays_here=stays_here,
            asks_users=call.operation.dialect.name == "responses",
            affords=partial(self._affords, route),
            parts=parts,
        )
        return replace(call, toolbox=toolbox)

    async def _named(self, call: Call) -> NamedTools:
        naming = (call.fields.get(name, _NOTHING) for name in NAMING)
        size = sum(memoryview(raw).nbytes for raw in naming)
        return await off_loop(size, tools_named, call.fields)

    def _affords(self, route: Route | None, usage: Usage) -> bool:
        most = self._tools.settings.max_cost
        if most is None or self._most_cost is None or route is None:
            return True
        cost = self._most_cost(route, usage)
        return cost is None or cost < most * NANO_DOLLARS
