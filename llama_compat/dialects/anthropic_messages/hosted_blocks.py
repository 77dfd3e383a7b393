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
from llama_compat.hosted.vocabulary import (
    Citation,
    FileSource,
    HostedCall,
    WebSource,
    server_tool_name,
)
from llama_compat.tools.calls import arguments_object_text, parse_tool_call
from llama_compat.types import AnyToolCall

CALLS = ("server_tool_use", "mcp_tool_use")
RESULTS = (
    "web_search_tool_result",
    "web_fetch_tool_result",
    "file_search_tool_result",
    "mcp_tool_result",
)

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
