"""`/v1/tools`: what this server runs for models, as far as the asking key may have it run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import Request

from llama_compat.errors import unknown_tool_server
from llama_compat.exchange import Principal
from routing.runtime import runtime_of

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = "/tools"


def add_offered_tools_routes(router: APIRouter, prefixes: Sequence[str]) -> None:
    """Add them to `router`, below each of `prefixes`."""
    for prefix in prefixes:
        router.add_api_route(f"{prefix}{PATH}", list_tools, tags=["tools"])
        router.add_api_route(f"{prefix}{PATH}/{{label}}", list_server, tags=["tools"])


async def list_tools(request: Request) -> dict[str, Any]:
    """The tools that this server runs for the key that asks, each as the Responses API takes it
    in `tools`; `vector_store_ids` of a `file_search` are to be added. MCP servers are named, and
    not connected to."""
    tools = runtime_of(request).tools
    principal: Principal = request.scope["principal"]
    return {"object": "list", "data": [] if tools is None else tools.offered(principal)}


async def list_server(request: Request, label: str) -> dict[str, Any]:
    """The tools of an MCP server of the template, as far as the key may have them called, asked of
    it now. `require_approval` says of each whether the user's word is needed whatever a request
    says; `error` why there are none."""
    tools = runtime_of(request).tools
    if tools is None:
        raise unknown_tool_server(label)
    return await tools.list_server(request.scope["principal"], label)
