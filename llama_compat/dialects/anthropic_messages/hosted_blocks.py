"""Calls that the server runs, as blocks of a message: vocabulary <-> wire.

What a search has found is opaque to clients (`encrypted_content`) and comes back in the next
request; here it is its text, in base64 behind a mark.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Raw, structs

from llama_compat.dialects.moments import utc_text
from llama_compat.hosted.asked.mcp import server_tool_name
from llama_compat.hosted.vocabulary import (
    WEB_SEARCH,
    Citation,
    FileSource,
    HostedCall,
    WebSearchTool,
    WebSource,
)
from llama_compat.tools.calls import arguments_object_text, arguments_text, parse_tool_call
from llama_compat.types import AnyToolCall

CALLS = ("server_tool_use", "mcp_tool_use")
RESULTS = (
    "web_search_tool_result",
    "web_fetch_tool_result",
    "file_search_tool_result",
    "mcp_tool_result",
)

SEARCH_NAME = "web_search"
"""By which Anthropic's own search is called, whatever else the tools are called."""

_SEARCH_TYPE = "web_search_20250305"
"""The version that all models have that search; later ones have the model write code, too."""

SEARCH_RESULT = "web_search_tool_result"

_MARK = "llama_compat:"
_MOST_CITED = 150

Block = dict[str, Any]


class HostedUses:
    """Counts what a message is to say of in `usage.server_tool_use`."""

    def __init__(self) -> None:
        self._searches = 0
        self._fetches = 0

    def add(self, call: HostedCall) -> None:
        """A call has ended."""
        if call.status == "completed":
            self._searches += call.kind == "web_search"
            self._fetches += call.kind == "web_fetch"

    def rendered(self) -> Block:
        """The member of `usage`, if there is anything to say."""
        if not (self._searches or self._fetches):
            return {}
        counts = {
            "web_search_requests": self._searches,
            "web_fetch_requests": self._fetches,
        }
        return {"server_tool_use": counts}


def call_id(call: HostedCall, unique: str, part: int) -> str:
    """The id of the block of the call that is the part `part` of the message `unique`."""
    return f"{'mcptoolu' if call.kind == 'mcp' else 'srvtoolu'}_{unique}{part:04x}"


def shows(call: HostedCall) -> bool:
    """Whether the Messages API has a block for it."""
    return call.kind in ("web_search", "web_fetch", "file_search", "mcp")


def render_use(call: HostedCall, block_id: str) -> tuple[Block, str]:
    """The block of the call, and its input as JSON."""
    whole = parse_tool_call(call.call_id, call.model_name or call.name, call.arguments_json)
    block: Block = {"type": "server_tool_use", "id": block_id, "name": call.kind}
    if call.kind == "mcp":
        block = {**block, "type": "mcp_tool_use", "name": call.name, "server_name": call.server}
    return block, arguments_object_text(whole)


def render_whole_use(call: HostedCall, block_id: str) -> Block:
    """The block of the call with its input."""
    block, given = render_use(call, block_id)
    return {**block, "input": Raw(given.encode())}


def render_result(call: HostedCall, block_id: str) -> Block:
    """The block of what it gave."""
    if call.kind == "mcp":
        return {
            "type": "mcp_tool_result",
            "tool_use_id": block_id,
            "is_error": call.status == "failed",
            "content": [{"type": "text", "text": call.output}],
        }
    kind = f"{call.kind}_tool_result"
    content: Any
    if call.status == "failed":
        content = {"type": f"{kind}_error", "error_code": call.error or "unavailable"}
    elif call.kind == "web_search":
        content = [_render_source(each) for each in call.sources if isinstance(each, WebSource)]
    elif call.kind == "file_search":
        content = [_render_file(each) for each in call.sources if isinstance(each, FileSource)]
    else:
        content = _render_page(call)
    return {"type": kind, "tool_use_id": block_id, "content": content}


def _render_source(source: WebSource) -> Block:
    return {
        "type": "web_search_result",
        "url": source.url,
        "title": source.title,
        "encrypted_content": _hide(source.text),
        "page_age": source.age,
    }


def _render_file(source: FileSource) -> Block:
    """A piece of a file, as clients send what they have found themselves."""
    return {
        "type": "search_result",
        "source": source.file_id,
        "title": source.filename,
        "content": [{"type": "text", "text": source.text}],
        "citations": {"enabled": True},
    }


def _render_page(call: HostedCall) -> Block:
    pages = (each for each in call.sources if isinstance(each, WebSource))
    page = next(pages, WebSource(""))
    return {
        "type": "web_fetch_result",
        "url": page.url,
        "content": {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": call.output},
            "title": page.title or None,
            "citations": {"enabled": True},
        },
        "retrieved_at": utc_text(time.time()),
    }


def render_citation(citation: Citation) -> Block:
    """A place in a text block."""
    source = citation.source
    if isinstance(source, FileSource):
        return {
            "type": "search_result_location",
            "source": source.file_id,
            "title": source.filename,
            "cited_text": source.text[:_MOST_CITED],
            # Which of all that was found is not known: the file is.
            "search_result_index": 0,
            "start_block_index": 0,
            "end_block_index": 1,
        }
    return {
        "type": "web_search_result_location",
        "url": source.url,
        "title": source.title,
        "encrypted_index": _hide(source.url),
        "cited_text": source.text[:_MOST_CITED],
    }


# --------------------------------------------------------------------------------------------------
# Wire -> vocabulary
# --------------------------------------------------------------------------------------------------


def parse_use(block: Mapping[str, Any], call: AnyToolCall) -> AnyToolCall:
    """The call of a block of `CALLS`, which was read like one of a tool of the client's."""
    server = block.get("server_name")
    if not isinstance(server, str):
        return call
    name = server_tool_name(server, call.tool_name)
    return structs.replace(call, tool_name=name, server_tool=(server, call.tool_name))


def result_text(block: Mapping[str, Any]) -> tuple[str, bool]:
    """What a block of `RESULTS` told the model, and whether that was of a failure."""
    content = block.get("content")
    match content:
        case {"error_code": str(code)}:
            return f"It failed: {code}.", True
        case {"content": {"source": {"data": str(text)}}}:
            return text, False
        case str():
            return content, block.get("is_error") is True
        case list():
            texts = [_item_text(each) for each in content if isinstance(each, dict)]
            return "\n\n".join(filter(None, texts)), block.get("is_error") is True
    return "", False


def _item_text(item: Mapping[str, Any]) -> str:
    if item.get("type") == "text":
        return str(item.get("text") or "")
    if item.get("type") == "search_result":
        parts = item.get("content")
        texts = [_item_text(each) for each in parts if isinstance(each, dict)] if parts else []
        named = f"File: {item.get('title')}\nID: {item.get('source')}"
        return "\n".join([named, *texts])
    told = [str(item.get("title") or ""), str(item.get("url") or ""), _shown(item)]
    return "\n".join(filter(None, told))


def _hide(text: str) -> str:
    return _MARK + base64.b64encode(text.encode("utf-8", "replace")).decode()


def _shown(item: Mapping[str, Any]) -> str:
    hidden = item.get("encrypted_content")
    if not isinstance(hidden, str) or not hidden.startswith(_MARK):
        return ""  # Another server's, which nobody else can read.
    try:
        return base64.b64decode(hidden.removeprefix(_MARK), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


# --------------------------------------------------------------------------------------------------
# Anthropic's own search: https://platform.claude.com/docs/en/agents-and-tools/tool-use/
# web-search-tool, and anthropic 2.11.0 (2026-11-23)
# --------------------------------------------------------------------------------------------------


def render_search(tool: WebSearchTool, most: int | None) -> Block:
    """The tool, for Anthropic to run no more than `most` times; None for as often as it says."""
    uses = [each for each in (tool.max_uses, most) if each is not None]
    where = None if tool.location is None else {"type": "approximate", **tool.location.members}
    wanted = {
        "max_uses": min(uses) if uses else None,
        "allowed_domains": list(tool.allowed_domains) or None,
        "blocked_domains": list(tool.blocked_domains) or None,
        "user_location": where,
    }
    said = {name: value for name, value in wanted.items() if value is not None}
    return {"type": _SEARCH_TYPE, "name": SEARCH_NAME, **said}


def is_search(block: Mapping[str, Any]) -> bool:
    """Whether a block is a search of Anthropic's own."""
    return block.get("type") == "server_tool_use" and block.get("name") == SEARCH_NAME


def parse_search(block: Mapping[str, Any], given: Any) -> HostedCall:
    """The search of a block, which was told `given`; what it gave is not known yet."""
    return HostedCall(
        str(block["id"]), WEB_SEARCH, SEARCH_NAME, arguments_text(given), model_name=SEARCH_NAME
    )


def has_found(block: Mapping[str, Any]) -> bool:
    """Whether a block is what a search has found, which is paid for; one that failed is not."""
    return block.get("type") == SEARCH_RESULT and isinstance(block.get("content"), list)


def parse_found(call: HostedCall, result: Mapping[str, Any] | None) -> HostedCall:
    """A search that has come to its end, with the block of what it found; None for one that the
    message has nothing more of."""
    content = None if result is None else result.get("content")
    if not isinstance(content, list):
        code = content.get("error_code") if isinstance(content, dict) else None
        error = code if isinstance(code, str) else "unavailable"
        return structs.replace(call, status="failed", error=error, output=f"It failed: {error}.")
    found = tuple(_parse_source(each) for each in content if isinstance(each, dict))
    return structs.replace(call, status="completed", sources=found)


def _parse_source(item: Mapping[str, Any], text: Any = "") -> WebSource:
    title, age = item.get("title"), item.get("page_age")
    return WebSource(
        str(item.get("url") or ""),
        title if isinstance(title, str) else "",
        text if isinstance(text, str) else "",
        age if isinstance(age, str) else None,
    )


def parse_citations(cited: Any, text: str) -> tuple[Citation, ...]:
    """What a text block, which says `text`, has found in the web: all of it is what is cited for
    there."""
    return tuple(
        Citation(0, len(text), _parse_source(each, each.get("cited_text")), text)
        for each in (cited if isinstance(cited, list) else ())
        if isinstance(each, dict) and each.get("type") == "web_search_result_location"
    )


class StreamedSearches:
    """The searches of a stream: their input comes in pieces, and what they found at once."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[Mapping[str, Any], list[str]]] = {}
        self._running: dict[str, HostedCall] = {}

    def begin(self, index: int, block: Mapping[str, Any]) -> None:
        """The block of a search begins."""
        self._written[index] = (block, [])

    def write(self, index: int, piece: str) -> None:
        """More of the input of the block `index`, where that is a search."""
        if index in self._written:
            self._written[index][1].append(piece)

    def end(self, index: int) -> list[HostedCall]:
        """The search whose block has come to its end, where `index` is one."""
        if index not in self._written:
            return []
        block, pieces = self._written.pop(index)
        call = parse_search(block, "".join(pieces) or block.get("input") or {})
        self._running[call.call_id] = call
        return [call]

    def found(self, result: Mapping[str, Any]) -> list[HostedCall]:
        """The search that a result is of, with what it found."""
        call = self._running.pop(str(result.get("tool_use_id")), None)
        return [] if call is None else [parse_found(call, result)]

    def rest(self) -> list[HostedCall]:
        """Those of which the message says nothing more."""
        running, self._running = self._running, {}
        return [parse_found(each, None) for each in running.values()]
