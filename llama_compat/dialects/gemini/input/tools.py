"""The tools of a client's request: wire -> vocabulary (https://ai.google.dev/api/caching#Tool)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_compat.dialects.base import CHECKED_ARGUMENTS, HOSTED_SETTING, HOSTED_TOOLS
from llama_compat.dialects.gemini.members import list_in, member, object_in, spelling, text_in
from llama_compat.dialects.gemini.schema import parse_schema
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.hosted.asked.common import parse_texts
from llama_compat.hosted.asked.file_search import parse_googles_file_search
from llama_compat.hosted.asked.mcp import GOOGLES_TRANSPORT, parse_googles_server
from llama_compat.hosted.vocabulary import (
    GOOGLES_TOOLS,
    WEB_SEARCH,
    HostedTool,
    WebFetchTool,
    WebSearchTool,
    free_name,
)
from llama_compat.types import ToolChoice, ToolDefinition

_DECLARATIONS = "functionDeclarations"

_EXCLUDED = "excludeDomains"

_SHOWN = "includeServerSideToolInvocations"
"""Asks for the vendor's calls as parts, and lets some models have its tools beside functions."""

_READ: Mapping[str, Sequence[str]] = {
    WEB_SEARCH: (_EXCLUDED,),
    "web_fetch": (),
    "file_search": ("fileSearchStoreNames", "topK", "metadataFilter"),
    "mcp": ("name", GOOGLES_TRANSPORT),
    GOOGLES_TRANSPORT: ("url", "headers"),
}
"""What is read of what a client says of each kind of tool, and of how a server is reached."""

_MODES = ("AUTO", "ANY", "NONE")

_CHOICE = "toolConfig.functionCallingConfig"


def tools_asked(body: Mapping[str, Any]) -> dict[str, str]:
    """The tools and the choice among them, by the path that the client wrote, and OpenAI's name
    for each."""
    tools = member(body, "tools")
    tools = [tools] if isinstance(tools, dict) else tools
    listed = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    asked = {
        f"tools.{name}": HOSTED_TOOLS
        for tool in listed
        for name in tool
        if name != spelling(tool, _DECLARATIONS)
    }
    for tool in listed:
        asked |= dict.fromkeys(_unread(tool), HOSTED_SETTING)
    if any(member(tool, _DECLARATIONS) for tool in listed):
        asked["tools"] = "tools"
        asked |= _choice_asked(body)
    config = member(body, "toolConfig")
    if isinstance(config, dict) and member(config, _SHOWN):
        path = f"{spelling(body, 'toolConfig')}.{spelling(config, _SHOWN)}"
        asked[path] = HOSTED_SETTING
    return asked


def _unread(tool: Mapping[str, Any]) -> Iterator[str]:
    """The paths of what a tool says of those that a server runs, and nobody reads."""
    for name, kind in GOOGLES_TOOLS.items():
        for said in _listed(tool.get(name)):
            yield from _others(said, _READ[kind], f"tools.{name}")
            if kind == "mcp":
                at = spelling(said, GOOGLES_TRANSPORT)
                for transport in _listed(said.get(at)):
                    yield from _others(transport, _READ[GOOGLES_TRANSPORT], f"tools.{name}.{at}")


def _listed(value: Any) -> list[dict[str, Any]]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, dict)]


def _others(said: Mapping[str, Any], read: Sequence[str], path: str) -> Iterator[str]:
    known = {spelling(said, name) for name in read}
    yield from (f"{path}.{name}" for name, value in said.items() if value and name not in known)


def _choice_asked(body: Mapping[str, Any]) -> dict[str, str]:
    config = member(body, "toolConfig")
    if not isinstance(config, dict):
        return {}
    at, calling = spelling(body, "toolConfig"), member(config, "functionCallingConfig")
    name = spelling(config, "functionCallingConfig")
    asked = {f"{at}.{other}": other for other in config if other != name}
    if not isinstance(calling, dict):
        return asked
    mode = calling.get("mode")
    if mode == "VALIDATED":
        asked[f"{at}.{name}.mode"] = CHECKED_ARGUMENTS
    elif mode in ("ANY", "NONE"):
        asked[at] = "tool_choice"
    return asked


def parse_hosted(body: Mapping[str, Any], taken: set[str]) -> tuple[HostedTool, ...]:
    """The tools that the server is to run.

    Args:
        body: the request.
        taken: the names of the client's own tools.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    hosted = list(_parse_hosted(list_in(member(body, "tools"), "tools"), set(taken)))
    # A search that is asked for twice is one.
    searches = [tool for tool in hosted if isinstance(tool, WebSearchTool)]
    return tuple(tool for tool in hosted if tool not in searches[1:])


def _parse_hosted(tools: Sequence[Any], taken: set[str]) -> Iterator[HostedTool]:
    for index, tool in enumerate(tools):
        named = object_in(tool, f"tools[{index}]")
        for name, kind in GOOGLES_TOOLS.items():
            if named.get(name) is None:
                continue
            path = f"tools[{index}].{name}"
            if kind == "mcp":
                for number, server in enumerate(list_in(named[name], path)):
                    at = f"{path}[{number}]"
                    yield parse_googles_server(object_in(server, at), at)
                continue
            said = object_in(named[name], path)
            match kind:
                case "web_search":
                    excluded = member(said, _EXCLUDED)
                    blocked = parse_texts(excluded, f"{path}.{_EXCLUDED}")
                    yield WebSearchTool(free_name(WEB_SEARCH, taken), blocked_domains=blocked)
                case "web_fetch":
                    yield WebFetchTool(free_name("web_fetch", taken))
                case "file_search":
                    yield parse_googles_file_search(said, path, taken)


def parse_tools(
    body: Mapping[str, Any],
) -> tuple[tuple[ToolDefinition, ...], ToolChoice | None]:
    """The functions of a request that may be called, and whether one must be.

    Of functions that are not among the allowed ones the model is told nothing. What Google itself
    runs must have been refused or dropped.

    Raises:
        APIError: 400 naming what is malformed.
    """
    tools = tuple(
        _parse_declaration(declaration, f"tools[{index}].{_DECLARATIONS}[{inner}]")
        for index, tool in enumerate(list_in(member(body, "tools"), "tools"))
        for inner, declaration in enumerate(_declarations(tool, f"tools[{index}]"))
    )
    if not tools:
        return (), None
    config = object_in(member(body, "toolConfig") or {}, "toolConfig")
    calling = object_in(member(config, "functionCallingConfig") or {}, _CHOICE)
    mode = calling.get("mode") or "AUTO"
    if mode in ("MODE_UNSPECIFIED", "VALIDATED"):
        mode = "AUTO"
    if mode not in _MODES:
        raise invalid_parameter(
            f"{_CHOICE}.mode",
            f"Invalid value: {mode!r}. Supported values are: {', '.join(_MODES)}.",
        )
    allowed = _allowed(calling, tools)
    if allowed is not None:
        tools = tuple(tool for tool in tools if tool.tool_name in allowed)
    if mode == "AUTO":
        return tools, None
    if mode == "NONE":
        return tools, ToolChoice("none")
    is_one = allowed is not None and len(tools) == 1
    return tools, ToolChoice("required", tools[0].tool_name if is_one else None)


def _declarations(tool: Any, path: str) -> list[Any]:
    return list_in(member(object_in(tool, path), _DECLARATIONS), f"{path}.{_DECLARATIONS}")


def _parse_declaration(value: Any, path: str) -> ToolDefinition:
    declaration = object_in(value, path)
    name = text_in(declaration, "name", path)
    if not name:
        raise missing_parameter(f"{path}.name")
    parameters = member(declaration, "parametersJsonSchema")
    if parameters is not None:
        parameters = object_in(parameters, f"{path}.parametersJsonSchema")
    elif (schema := member(declaration, "parameters")) is not None:
        parameters = parse_schema(schema, f"{path}.parameters")
    return ToolDefinition(name, text_in(declaration, "description", path), parameters)


def _allowed(calling: Mapping[str, Any], tools: Sequence[ToolDefinition]) -> frozenset[str] | None:
    names, path = member(calling, "allowedFunctionNames"), f"{_CHOICE}.allowedFunctionNames"
    if not names:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise invalid_parameter(path, f"'{path}' must be an array of strings.", "invalid_type")
    known = {tool.tool_name for tool in tools}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise invalid_parameter(path, f"'{path}' names '{unknown[0]}', which no tool declares.")
    return frozenset(names)
