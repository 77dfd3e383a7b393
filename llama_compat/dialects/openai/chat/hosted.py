"""The tools that a chat request asks a server for, and what searches have found: wire <->
vocabulary.

https://platform.openai.com/docs/guides/tools-web-search?api-mode=chat, 2026-11-23. OpenAI has no
search in files and no MCP servers there; where others have them, they are among the tools as in the
Responses API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_compat.dialects.counts import members
from llama_compat.dialects.members import as_object
from llama_compat.hosted.asked.common import parse_context_size, parse_location, unread_settings
from llama_compat.hosted.asked.file_search import parse_file_search
from llama_compat.hosted.asked.mcp import parse_server
from llama_compat.hosted.citations import Sliced, cited_place
from llama_compat.hosted.vocabulary import (
    WEB_SEARCH,
    Citation,
    FileSource,
    HostedTool,
    WebSearchTool,
    free_name,
)
from llama_compat.types import MessagePart, TextContent


def parse_hosted(body: Mapping[str, Any], taken: set[str]) -> tuple[HostedTool, ...]:
    """The tools of a request that the server is to run.

    Args:
        body: the request.
        taken: the names of the client's own tools.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    taken = set(taken)
    hosted: list[HostedTool] = []
    path = "web_search_options"
    if body.get(path) is not None:
        options = as_object(body[path], path)
        where = parse_location(options.get("user_location"), f"{path}.user_location")
        size = parse_context_size(options.get("search_context_size"), f"{path}.search_context_size")
        name = free_name(WEB_SEARCH, taken)
        hosted.append(WebSearchTool(name, location=where, context_size=size))
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind == "file_search":
            hosted.append(parse_file_search(tool, f"tools[{index}]", taken))
        elif kind == "mcp":
            hosted.append(parse_server(tool, f"tools[{index}]"))
    return tuple(hosted)


def unread_hosted(body: Mapping[str, Any]) -> Iterator[str]:
    """The paths of settings of such tools that are not known here."""
    options, tools = body.get("web_search_options"), body.get("tools")
    if isinstance(options, dict):
        yield from unread_settings({**options, "type": "web_search"}, "web_search_options")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict):
            yield from unread_settings(tool, f"tools[{index}]")


def render_search(tool: WebSearchTool) -> dict[str, Any]:
    """The `web_search_options` of a search that the vendor runs."""
    options: dict[str, Any] = {"search_context_size": tool.context_size}
    if tool.location is not None:
        options["user_location"] = {"type": "approximate", "approximate": tool.location.members}
    return options


def parse_citations(message: Mapping[str, Any], text: Sliced) -> Iterator[Citation]:
    """What a message, or the delta of one, names in the web, whose text so far is `text`."""
    for each in message.get("annotations") or ():
        cited = cited_place(members(each.get("url_citation")), text)
        if cited is not None:
            yield cited


def render_citation(citation: Citation, before: int = 0) -> dict[str, Any]:
    """An annotation of a message, whose text has `before` characters before the part."""
    if isinstance(citation.source, FileSource):
        return {
            "type": "file_citation",
            "file_citation": {
                "index": citation.end + before,
                "file_id": citation.source.file_id,
                "filename": citation.source.filename,
            },
        }
    return {
        "type": "url_citation",
        "url_citation": {
            "start_index": citation.start + before,
            "end_index": citation.end + before,
            "url": citation.source.url,
            "title": citation.source.title,
        },
    }


def render_citations(parts: Sequence[MessagePart]) -> Iterator[dict[str, Any]]:
    """Those of all the texts among the parts of a message, which are one text there."""
    before = 0
    for part in parts:
        if isinstance(part, TextContent):
            for citation in part.citations:
                yield render_citation(citation, before)
            before += len(part.text)
