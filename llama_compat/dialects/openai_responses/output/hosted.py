"""Items of calls that the server runs: vocabulary -> wire.

https://platform.openai.com/docs/api-reference/responses-streaming, 2026-11-23.
"""

from __future__ import annotations

from typing import Any

from llama_compat.dialects.openai_responses.input.hosted import BESIDE
from llama_compat.dialects.openai_responses.output.items import Item, Place
from llama_compat.hosted.vocabulary import Citation, FileSource, HostedCall, WebSource
from llama_compat.tools.calls import hosted_arguments


class HostedItem(Item):
    """A call that the server runs, or a list of what it could.

    Args:
        place: where it is.
        call: as it is shown first.
        with_sources: whether a search says what it has found.
    """

    def __init__(self, place: Place, call: HostedCall, *, with_sources: bool) -> None:
        self.prefix, kind = _KINDS[call.kind]
        self._kind = kind
        self._with_sources = with_sources
        super().__init__(place, {"type": kind, **self._members(call)})
        if call.beside:
            self.item["id"] += BESIDE

    def begin_with(self, call: HostedCall) -> bytes:
        """The events that it is there, and what it is about to do."""
        begun = self.begin()
        if call.kind == "mcp_approval_request":
            return begun
        begun += self._news("in_progress")
        if call.kind == "mcp":
            at = self._at()
            name = "response.mcp_call_arguments"
            begun += self._writer.event(f"{name}.delta", {**at, "delta": call.arguments_json})
            begun += self._writer.event(f"{name}.done", {**at, "arguments": call.arguments_json})
        elif self._is_search:
            begun += self._news("searching")
        return begun

    def end_with(self, call: HostedCall) -> bytes:
        """The events of its end."""
        self.item.update(self._members(call))
        ended = b""
        if call.kind != "mcp_approval_request":
            # A search that failed has no event of its own.
            ended = self._news("completed" if self._is_search else call.status)
        return ended + self.end(call.status)

    @property
    def _is_search(self) -> bool:
        return self._kind in ("web_search_call", "file_search_call")

    def _news(self, what: str) -> bytes:
        return self._writer.event(f"response.{self._kind}.{what}", self._at())

    def _members(self, call: HostedCall) -> dict[str, Any]:
        match call.kind:
            case "mcp_list_tools":
                failed = call.status == "failed"
                return {
                    "server_label": call.server,
                    "tools": [{"annotations": None, **tool} for tool in call.tools],
                    "error": call.output if failed else None,
                }
            case "mcp_approval_request":
                return {
                    "server_label": call.server,
                    "name": call.name,
                    "arguments": call.arguments_json,
                }
            case "mcp":
                return {
                    "status": call.status,
                    "server_label": call.server,
                    "name": call.name,
                    "arguments": call.arguments_json,
                    "approval_request_id": call.approval_id,
                    "output": call.output if call.status == "completed" else None,
                    "error": call.output if call.status == "failed" else None,
                }
            case "file_search":
                query = hosted_arguments(call).get("query")
                results = [_result(each) for each in call.sources if isinstance(each, FileSource)]
                shows = self._with_sources and call.status != "in_progress"
                return {
                    "status": call.status,
                    "queries": [query] if isinstance(query, str) else [],
                    "results": results if shows else None,
                }
            case _:
                return {"status": call.status, "action": self._action(call)}

    def _action(self, call: HostedCall) -> dict[str, Any]:
        given = hosted_arguments(call)
        if call.kind == "web_fetch":
            return {"type": "open_page", "url": str(given.get("url") or "")}
        action: dict[str, Any] = {"type": "search", "query": str(given.get("query") or "")}
        if self._with_sources:
            found = (each.url for each in call.sources if isinstance(each, WebSource))
            action["sources"] = [{"type": "url", "url": each} for each in found]
        return action


def _result(source: FileSource) -> dict[str, Any]:
    """A piece of a file."""
    return {
        "file_id": source.file_id,
        "filename": source.filename,
        "score": source.score,
        "text": source.text,
        "attributes": source.attributes,
        "vector_store_id": source.store,
    }


_KINDS = {
    "web_search": ("ws", "web_search_call"),
    "web_fetch": ("ws", "web_search_call"),
    "file_search": ("fs", "file_search_call"),
    "mcp": ("mcp", "mcp_call"),
    "mcp_list_tools": ("mcpl", "mcp_list_tools"),
    "mcp_approval_request": ("mcpr", "mcp_approval_request"),
}


def render_citation(citation: Citation) -> dict[str, Any]:
    """An annotation of a text."""
    if isinstance(citation.source, FileSource):
        return {
            "type": "file_citation",
            "index": citation.end,
            "file_id": citation.source.file_id,
            "filename": citation.source.filename,
        }
    return {
        "type": "url_citation",
        "start_index": citation.start,
        "end_index": citation.end,
        "url": citation.source.url,
        "title": citation.source.title,
    }
