"""What a request says of servers of the Model Context Protocol, in the words of OpenAI's tool or of
Google's, and the calls of their tools in what it has of earlier turns.

https://platform.openai.com/docs/guides/tools-connectors-mcp, 2026-11-23; google-genai 3.4.0,
types/interactions/mcpserver.py and `McpServer` in types.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import structs

from llama_compat.dialects.members import as_list, as_object, optional_text_in, text_in
from llama_compat.errors import invalid_parameter
from llama_compat.hosted.asked.common import googles_spelling, parse_texts
from llama_compat.hosted.vocabulary import MCPTool
from llama_compat.tools.calls import parse_tool_call
from llama_compat.tools.names import OPENAI_NAMES
from llama_compat.types import AnyToolCall

_Asks = Literal["always", "never"] | tuple[str, ...] | None


def parse_server(tool: Mapping[str, Any], path: str) -> MCPTool:
    """A tool of the type `mcp`.

    Args:
        tool: it.
        path: where it is.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    if tool.get("connector_id") is not None:
        raise invalid_parameter(
            f"{path}.connector_id",
            "Connectors are OpenAI's own. Name a server by 'server_url', or one of this server's"
            " template by 'server_label' alone.",
        )
    return MCPTool(
        text_in(tool, "server_label", path),
        optional_text_in(tool, "server_url", path) or "",
        optional_text_in(tool, "authorization", path) or "",
        _parse_headers(tool, path),
        _parse_allowed(tool.get("allowed_tools"), f"{path}.allowed_tools"),
        _parse_approval(tool.get("require_approval"), f"{path}.require_approval"),
    )


GOOGLES_SERVER = "mcp_server"
"""The type of the tool in Google's Interactions, whose name is the label; it may have none."""

_NAMELESS = "mcp"

GOOGLES_TRANSPORT = "streamableHttpTransport"
"""The member of a server among Gemini's tools that says where it is."""


def named_server(tool: Mapping[str, Any]) -> tuple[Any, Any]:
    """The label and the URL by which a tool names its server, whether they are texts or not."""
    if "server_label" in tool or tool.get("type", GOOGLES_SERVER) != GOOGLES_SERVER:
        return tool.get("server_label"), tool.get("server_url")
    name, (reached, _) = tool.get("name"), _transport(tool)
    url = reached.get("url") if isinstance(reached, dict) else None
    return _NAMELESS if name is None else name, url


def _transport(tool: Mapping[str, Any]) -> tuple[Any, str]:
    """Where a tool of Google's says how its server is reached, whatever that is, and the path of
    that in it: generateContent has an object for it, and Interactions the tool itself."""
    name = googles_spelling(tool, GOOGLES_TRANSPORT)
    said = tool.get(name)
    return (tool, "") if said is None else (said, f".{name}")


def parse_googles_server(tool: Mapping[str, Any], path: str) -> MCPTool:
    """A tool of the type `mcp_server` of Interactions, or a server of generateContent's, as
    `parse_server`. There is no place for the user's word.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    label, url = named_server(tool)
    said, place = _transport(tool)
    way = f"{path}{place}"
    reached = as_object(said, way)
    at = f"{path}.allowed_tools"
    allowed: tuple[str, ...] | None = None
    for index, each in enumerate(as_list(tool.get("allowed_tools"), at)):
        choice = as_object(each, f"{at}[{index}]")
        if choice.get("mode") == "none":
            allowed = allowed or ()
        elif choice.get("tools"):
            names = parse_texts(choice["tools"], f"{at}[{index}].tools")
            allowed = (*(allowed or ()), *names)
    return MCPTool(
        text_in({"name": label}, "name", path),
        optional_text_in({"url": url}, "url", way) or "",
        headers=_parse_headers(reached, way),
        allowed_tools=allowed,
    )


def _parse_headers(tool: Mapping[str, Any], path: str) -> Mapping[str, str]:
    headers = as_object(tool.get("headers") or {}, f"{path}.headers")
    for name, value in headers.items():
        if not isinstance(value, str):
            raise invalid_parameter(f"{path}.headers.{name}", "A header's value must be a string.")
    return headers


def without_secrets(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as a reply repeats it, and a store keeps it: OpenAI shows no credentials there."""
    return {name: each for name, each in tool.items() if name not in ("authorization", "headers")}


def _parse_allowed(value: Any, path: str) -> tuple[str, ...] | None:
    match value:
        case None:
            return None
        case list():
            return parse_texts(value, path)
        case {"tool_names": list(names), **others} if not others:
            return parse_texts(names, f"{path}.tool_names")
    raise invalid_parameter(path, f"'{path}' must be a list of names, or have 'tool_names' alone.")


def _parse_approval(value: Any, path: str) -> _Asks:
    match value:
        case None | "always" | "never":
            return value
        case {"always": {"tool_names": list(names)}, **others} if not others:
            return parse_texts(names, f"{path}.always.tool_names")
    raise invalid_parameter(
        path,
        f"'{path}' must be 'always', 'never', or name the tools that need it in"
        " 'always.tool_names'.",
    )


BY_URL = "mcp_url"
"""What a key's `tools` have where it may name servers by URL."""


def tools_of(label: str) -> str:
    """How the names of a server's tools begin in a key's `tools`."""
    return f"mcp.{label}."


def server_tool_name(label: str, name: str) -> str:
    """What a model calls the tool `name` of the server `label`: a name that most vendors take."""
    return OPENAI_NAMES.fitted(f"{label}__{name}")


def server_call(call_id: str, label: str, name: str, arguments_json: str) -> AnyToolCall:
    """A call of the tool `name` of the server `label`. What the model is to know the tool by is
    settled when it is known which tools there are."""
    call = parse_tool_call(call_id, server_tool_name(label, name), arguments_json)
    return structs.replace(call, server_tool=(label, name))
