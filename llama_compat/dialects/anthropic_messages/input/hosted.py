"""The tools of a Messages request that a server runs: wire -> vocabulary.

https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool, web-fetch-tool and
https://platform.claude.com/docs/en/agents-and-tools/mcp-connector, 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_compat.dialects.members import (
    as_list,
    as_object,
    optional_integer_in,
    optional_text_in,
    text_in,
)
from llama_compat.errors import invalid_parameter
from llama_compat.hosted.asked.common import parse_location, parse_texts
from llama_compat.hosted.asked.file_search import parse_file_search
from llama_compat.hosted.vocabulary import (
    HostedTool,
    MCPTool,
    WebFetchTool,
    WebSearchTool,
    free_name,
    kind_of,
)


def parse_hosted(body: Mapping[str, Any], taken: set[str]) -> tuple[HostedTool, ...]:
    """The tools of a request that the server is to run.

    Args:
        body: the request.
        taken: the names of the client's own tools.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    tools = body.get("tools")
    return (
        *_parse_tools(tools if isinstance(tools, list) else [], set(taken)),
        *_parse_servers(body),
    )


def _parse_tools(tools: list[Any], taken: set[str]) -> Iterator[HostedTool]:
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        kind = kind_of(tool["type"]) if isinstance(tool, dict) and _has_type(tool) else None
        if kind == "file_search":
            # Anthropic has none: its members are those of OpenAI's.
            yield parse_file_search(tool, path, taken)
        if kind not in ("web_search", "web_fetch"):
            continue
        name = free_name(optional_text_in(tool, "name", path) or kind, taken)
        allowed = parse_texts(tool.get("allowed_domains"), f"{path}.allowed_domains")
        blocked = parse_texts(tool.get("blocked_domains"), f"{path}.blocked_domains")
        if allowed and blocked:
            raise invalid_parameter(
                f"{path}.blocked_domains",
                f"'{path}' has 'allowed_domains' and 'blocked_domains': give one of the two.",
            )
        most = optional_integer_in(tool, "max_uses", path, 1)
        if kind == "web_fetch":
            tokens = optional_integer_in(tool, "max_content_tokens", path, 1)
            yield WebFetchTool(name, allowed, blocked, most, tokens)
        else:
            where = parse_location(tool.get("user_location"), f"{path}.user_location")
            yield WebSearchTool(name, allowed, blocked, where, most)


def _has_type(tool: Mapping[str, Any]) -> bool:
    return isinstance(tool.get("type"), str)


def _parse_servers(body: Mapping[str, Any]) -> Iterator[MCPTool]:
    """The servers of `mcp_servers`, with what older betas say of their tools there, and newer ones
    in a tool of the type `mcp_toolset`."""
    toolsets = {
        tool.get("mcp_server_name"): (tool, f"tools[{index}]")
        for index, tool in enumerate(body.get("tools") or ())
        if isinstance(tool, dict) and tool.get("type") == "mcp_toolset"
    }
    for index, each in enumerate(as_list(body.get("mcp_servers"), "mcp_servers")):
        path = f"mcp_servers[{index}]"
        server = as_object(each, path)
        label = text_in(server, "name", path)
        allowed: tuple[str, ...] | None = None
        if label in toolsets:
            tool, at = toolsets[label]
            allowed = _allowed_of_toolset(tool, at)
        elif server.get("tool_configuration") is not None:
            at = f"{path}.tool_configuration"
            chosen = as_object(server["tool_configuration"], at)
            if chosen.get("enabled") is False:
                continue
            if chosen.get("allowed_tools") is not None:
                allowed = parse_texts(chosen["allowed_tools"], f"{at}.allowed_tools")
        yield MCPTool(
            label,
            optional_text_in(server, "url", path) or "",
            optional_text_in(server, "authorization_token", path) or "",
            allowed_tools=allowed,
        )


def _allowed_of_toolset(tool: Mapping[str, Any], path: str) -> tuple[str, ...] | None:
    configs = as_object(tool.get("configs") or {}, f"{path}.configs")
    default = as_object(tool.get("default_config") or {}, f"{path}.default_config")
    chosen = {name: as_object(each, f"{path}.configs.{name}") for name, each in configs.items()}
    if default.get("enabled") is False:
        return tuple(name for name, each in chosen.items() if each.get("enabled") is True)
    if any(each.get("enabled") is False for each in chosen.values()):
        raise invalid_parameter(
            f"{path}.configs",
            f"'{path}.configs' turns single tools off, which can't be done here: set"
            " 'default_config.enabled' to false, and turn on those that are wanted.",
        )
    return None
