"""What two APIs say of the server's tools in the same way: domains, and where the user is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_compat.dialects.members import as_list, as_object, optional_text_in, wrong_type

_PLACES = ("city", "region", "country", "timezone")


def parse_texts(value: Any, path: str) -> tuple[str, ...]:
    """A list of texts, which may be missing.

    Raises:
        APIError: 400, it is none.
    """
    texts = as_list(value, path)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise wrong_type(f"{path}[{index}]", "a string")
    return tuple(texts)


def servers_named(tools: Any, servers: Any) -> Iterator[tuple[str, str]]:
    """The labels and URLs of the MCP servers that a request names, malformed ones aside.

    Args:
        tools: its `tools`, of which those of the type `mcp` name one in the Responses API.
        servers: its `mcp_servers`, as the Messages API has them.
    """
    named = [
        (each.get("server_label"), each.get("server_url"))
        for each in (tools if isinstance(tools, list) else ())
        if isinstance(each, dict) and each.get("type") == "mcp"
    ]
    named += [
        (each.get("name"), each.get("url"))
        for each in (servers if isinstance(servers, list) else ())
        if isinstance(each, dict)
    ]
    for label, url in named:
        if isinstance(label, str):
            yield label, url if isinstance(url, str) else ""


def parse_location(value: Any, path: str) -> str | None:
    """Where the user is (`{"type": "approximate", "city": ...}`), in words; chat completions have
    the members one level further in.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    if value is None:
        return None
    location: Mapping[str, Any] = as_object(value, path)
    if isinstance(location.get("approximate"), dict):
        location, path = location["approximate"], f"{path}.approximate"
    told = [optional_text_in(location, name, path) for name in _PLACES]
    return ", ".join(filter(None, told)) or None
