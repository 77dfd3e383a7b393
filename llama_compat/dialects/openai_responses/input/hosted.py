"""The tools of a Responses request that a server runs, and the items of their calls: wire ->
vocabulary.

https://platform.openai.com/docs/guides/tools-web-search, tools-file-search and
tools-connectors-mcp, 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_compat.dialects.members import (
    as_list,
    as_object,
    optional_text_in,
    text_in,
)
from llama_compat.hosted.asked.common import parse_context_size, parse_location, parse_texts
from llama_compat.hosted.asked.file_search import parse_file_search
from llama_compat.hosted.asked.mcp import parse_server, server_call, server_tool_name
from llama_compat.hosted.vocabulary import (
    HostedTool,
    MCPTool,
    WebFetchTool,
    WebSearchTool,
    free_name,
    kind_of,
)
from llama_compat.types import AnyToolCall, ToolChoice


def parse_hosted(value: Any, taken: set[str]) -> tuple[HostedTool, ...]:
    """The tools among `tools` that the server is to run.

    Args:
        value: the `tools`.
        taken: the names of the client's own.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    return tuple(_parse(as_list(value, "tools"), set(taken)))


def _parse(tools: list[Any], taken: set[str]) -> Iterator[HostedTool]:
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        named = tool.get("type") if isinstance(tool, dict) else None
        kind = kind_of(named) if isinstance(named, str) else None
        if kind == "mcp":
            yield parse_server(tool, path)
        elif kind == "file_search":
            yield parse_file_search(tool, path, taken)
        elif kind is not None:
            filters = as_object(tool.get("filters") or {}, f"{path}.filters")
            allowed, blocked = (
                parse_texts(filters.get(f"{each}_domains"), f"{path}.filters.{each}_domains")
                for each in ("allowed", "blocked")
            )
            name = free_name(kind, taken)
            if kind == "web_fetch":
                yield WebFetchTool(name, allowed, blocked)
            else:
                where = parse_location(tool.get("user_location"), f"{path}.user_location")
                at = f"{path}.search_context_size"
                size = parse_context_size(tool.get("search_context_size"), at)
                yield WebSearchTool(name, allowed, blocked, where, context_size=size)


def hosted_choice(value: Any, hosted: tuple[HostedTool, ...]) -> ToolChoice | None:
    """The `tool_choice` that names a tool of the server's; None for others.

    Raises:
        APIError: 400, it is malformed.
    """
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return None
    kind = kind_of(value["type"])
    if kind == "mcp":
        if not any(isinstance(tool, MCPTool) for tool in hosted):
            return None
        label = text_in(value, "server_label", "tool_choice")
        name = optional_text_in(value, "name", "tool_choice")
        return ToolChoice("required", name and server_tool_name(label, name))
    for tool in hosted:
        if not isinstance(tool, MCPTool) and kind == kind_of_tool(tool):
            return ToolChoice("required", tool.name)
    return None


def kind_of_tool(tool: HostedTool) -> str:
    """The kind of a tool."""
    return str(tool.__struct_config__.tag)


def allowed_hosted(value: Any, hosted: tuple[HostedTool, ...]) -> tuple[HostedTool, ...]:
    """Those of the server's tools that `allowed_tools` of a `tool_choice` leaves."""
    if not isinstance(value, dict) or value.get("type") != "allowed_tools":
        return hosted
    named = [each for each in value.get("tools") or () if isinstance(each, dict)]
    kinds = {kind_of(str(each.get("type"))) for each in named} - {"mcp"}
    labels = {each.get("server_label") for each in named if each.get("type") == "mcp"}
    return tuple(
        tool
        for tool in hosted
        if (tool.label in labels if isinstance(tool, MCPTool) else kind_of_tool(tool) in kinds)
    )


def approved_calls(items: Any) -> tuple[str, ...]:
    """The ids of the requests for approval that the items of an input grant."""
    return tuple(
        item["approval_request_id"]
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict)
        and item.get("type") == "mcp_approval_response"
        and item.get("approve") is True
        and isinstance(item.get("approval_request_id"), str)
    )


BESIDE = "p"
"""How the id of a call ends that the model has made together with the one before it: items don't
say which turn they are of. Other letters of these ids are those of hexadecimal numbers."""


def is_beside(item: Mapping[str, Any]) -> bool:
    """Whether an item is a call of the same turn as the one before it."""
    item_id = item.get("id")
    is_call = item.get("type") in ("mcp_call", "mcp_approval_request")
    return is_call and isinstance(item_id, str) and item_id.endswith(BESIDE)


def parse_server_call(item: Mapping[str, Any], path: str) -> AnyToolCall:
    """The call of an `mcp_call` or of an `mcp_approval_request`.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    return server_call(
        text_in(item, "id", path),
        text_in(item, "server_label", path),
        text_in(item, "name", path),
        text_in(item, "arguments", path),
    )


def call_result(item: Mapping[str, Any]) -> tuple[str, bool]:
    """What an `mcp_call` told the model, and whether that was of a failure."""
    error = item.get("error")
    if error is None:
        return str(item.get("output") or ""), False
    told = error.get("message") or error.get("content") if isinstance(error, dict) else error
    return str(told), True
