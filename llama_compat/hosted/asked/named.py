"""Which of the tools that a server runs a request asks for, told from its members before anybody
has parsed them: who may have them run goes by that, where they are run, and what may be kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Raw, Struct

from llama_compat.errors import nested_too_deeply
from llama_compat.hosted.asked.file_search import MAX_STORES, named_stores
from llama_compat.hosted.asked.mcp import named_server
from llama_compat.hosted.vocabulary import GOOGLES_TOOLS, NAMES, kind_of
from llama_compat.wire.json_depth import MAX_DEPTH
from llama_compat.wire.json_fields import from_raw

_SEARCH_OPTIONS = "web_search_options"

MEMBERS: Mapping[str, str] = {_SEARCH_OPTIONS: "web_search", "mcp_servers": "mcp"}
"""The members of requests, besides `tools`, that ask for one, and its kind."""

_NAMED = re.compile(b'"(%b)|\\\\u00' % "|".join(NAMES).encode())
"""One of these is in the JSON of `tools` where one is the server's: its name, or a letter of that
written as an escape."""

_ACTS = frozenset({"file_search", "mcp"})


NAMING = frozenset({"tools", *MEMBERS})
"""All members of requests that ask for one: without these `act` need not be asked."""


class NamedTools(Struct, frozen=True):
    """What a request asks a server for.

    Attributes:
        kinds: of tools, as `kind_of` has them.
        stores: the ids of the vector stores that it names; one more than it may at the most.
        servers: the labels and URLs of the MCP servers that it names.
    """

    kinds: frozenset[str] = frozenset()
    stores: tuple[str, ...] = ()
    servers: tuple[tuple[str, str], ...] = ()


_NONE = NamedTools()


def tools_named(fields: Mapping[str, Raw]) -> NamedTools:
    """What is asked for by the members of a request, malformed ones aside.

    Raises:
        APIError: 400, they are nested too deeply.
    """
    found = {kind for name, kind in MEMBERS.items() if _is_there(fields, name)}
    tools: Any = None
    if "tools" in fields and _NAMED.search(bytes(fields["tools"])):
        tools = _read(fields, "tools")
    if not found and tools is None:
        return _NONE
    servers = _read(fields, "mcp_servers") if "mcp" in found else None
    hosted = list(_hosted(tools))
    found |= {kind for kind, _ in hosted}
    stores = dict.fromkeys(_stores(hosted))
    return NamedTools(
        frozenset(found), tuple(stores)[: MAX_STORES + 1], tuple(_servers(hosted, servers))
    )


def act(fields: Mapping[str, Raw]) -> bool:
    """Whether files are searched for a request, or servers may be told to do something: what was
    said to it once is no reply to the same another time.

    Raises:
        APIError: 400, its members are nested too deeply.
    """
    return not _ACTS.isdisjoint(tools_named(fields).kinds)


def has_search_options(fields: Mapping[str, Raw]) -> bool:
    """Whether a request asks for a search of the web in the way of chats."""
    return _is_there(fields, _SEARCH_OPTIONS)


def _is_there(fields: Mapping[str, Raw], name: str) -> bool:
    return name in fields and bytes(fields[name]) not in (b"null", b"[]")


def _read(fields: Mapping[str, Raw], name: str) -> Any:
    try:
        return from_raw(fields[name])
    except ValueError:
        raise nested_too_deeply(name, MAX_DEPTH) from None


def _hosted(tools: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # Google takes one tool in place of a list.
    for tool in tools if isinstance(tools, list) else (tools,):
        if not isinstance(tool, dict):
            continue
        named = tool.get("type")
        kind = kind_of(named) if isinstance(named, str) else None
        if kind is not None:
            yield kind, tool
        # Google's API reads these of a tool with a type as well.
        yield from _members(tool)


def _members(tool: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What Google's generateContent has as members of a tool."""
    for name, kind in GOOGLES_TOOLS.items():
        said = tool.get(name)
        # It takes one in place of a list here, too.
        for each in said if isinstance(said, list) and kind == "mcp" else (said,):
            if isinstance(each, dict):
                yield kind, each


def _stores(hosted: list[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    for kind, tool in hosted:
        ids = named_stores(tool)
        if kind == "file_search" and isinstance(ids, list):
            yield from (each for each in ids if isinstance(each, str))


def _servers(
    hosted: list[tuple[str, Mapping[str, Any]]], servers: Any
) -> Iterator[tuple[str, str]]:
    """Those of tools, as the Responses API and Google's have them, and those of `mcp_servers`, as
    the Messages API does."""
    named = [named_server(tool) for kind, tool in hosted if kind == "mcp"]
    named += [
        (each.get("name"), each.get("url"))
        for each in (servers if isinstance(servers, list) else ())
        if isinstance(each, dict)
    ]
    for label, url in named:
        if isinstance(label, str):
            yield label, url if isinstance(url, str) else ""
