"""Tools of an interaction that a server runs, and what their calls are shown as: steps, both ways,
and places in a text.

google-genai 3.4.0, types/interactions (2026-11-28). Of what a search has found there is no more in
them than a web page to show; addresses and titles, which stood there before the revision of
2026-05, are beside it, as are pieces of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import structs

from llama_compat.dialects.base import HOSTED_SETTING, HOSTED_TOOLS
from llama_compat.dialects.counts import count, members
from llama_compat.dialects.gemini.grounding import place_in, place_of, query_of, url_of
from llama_compat.dialects.members import as_list, as_object, optional_flag_in, text_in
from llama_compat.hosted.asked.file_search import parse_googles_file_search
from llama_compat.hosted.asked.mcp import parse_googles_server, server_call
from llama_compat.hosted.citations import CitedText
from llama_compat.hosted.vocabulary import (
    WEB_SEARCH,
    Citation,
    FileSource,
    HostedCall,
    HostedTool,
    MCPTool,
    WebFetchTool,
    WebSearchTool,
    WebSource,
    free_name,
    kind_of,
)
from llama_compat.tools.calls import (
    arguments_text,
    hosted_arguments,
)
from llama_compat.types import AnyToolCall

SEARCH: Mapping[str, Any] = {"type": "google_search"}
"""Google's search, as a tool."""

SEARCH_CALL = "google_search_call"
SEARCH_RESULT = "google_search_result"

MCP_CALL = "mcp_server_tool_call"
MCP_RESULT = "mcp_server_tool_result"

SAID_ELSEWHERE = frozenset(
    {
        SEARCH_CALL,
        SEARCH_RESULT,
        "url_context_call",
        "url_context_result",
        "file_search_call",
        "file_search_result",
    }
)
"""Steps that another model is told nothing of: what was found is in what the model said of it."""

OWN_IDS = "hosted_"
"""How the ids of calls begin that this server has run, and not Google."""

HostedStep = dict[str, Any]

_WEB = ["web_search"]
"""The only kind of search that is run here."""

# --------------------------------------------------------------------------------------------------
# What a request asks for
# --------------------------------------------------------------------------------------------------


def asked_by_hosted(tools: list[Any]) -> Iterator[tuple[str, str]]:
    """The tools of a request that are no functions, and what of their settings nobody reads, with
    OpenAI's name for each."""
    for tool in tools:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind is None or kind == "function":
            continue
        yield f"tools.{kind}", HOSTED_TOOLS
        if tool.get("search_types") not in (None, [], _WEB):
            yield f"tools.{kind}.search_types", HOSTED_SETTING


def parse_hosted(body: Mapping[str, Any], taken: set[str]) -> tuple[HostedTool, ...]:
    """The tools of a request that the server is to run.

    Args:
        body: the request.
        taken: the names of the client's own tools.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    return tuple(_parse(as_list(body.get("tools"), "tools"), set(taken)))


def _parse(tools: list[Any], taken: set[str]) -> Iterator[HostedTool]:
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        match kind_of(text_in(as_object(tool, path), "type", path)):
            case "web_search":
                yield WebSearchTool(free_name(WEB_SEARCH, taken))
            case "web_fetch":
                yield WebFetchTool(free_name("web_fetch", taken))
            case "file_search":
                yield parse_googles_file_search(tool, path, taken)
            case "mcp":
                yield parse_googles_server(tool, path)


_TYPES: Mapping[type[HostedTool], str] = {
    WebSearchTool: "google_search",
    WebFetchTool: "url_context",
}


def name_of(tool: HostedTool) -> str:
    """By what the choice among the tools may name one."""
    return tool.label if isinstance(tool, MCPTool) else _TYPES.get(type(tool), "file_search")


# --------------------------------------------------------------------------------------------------
# Steps: vocabulary -> wire
# --------------------------------------------------------------------------------------------------

_STEPS: Mapping[str, str] = {
    "web_search": "google_search",
    "web_fetch": "url_context",
    "file_search": "file_search",
    "mcp": "mcp_server_tool",
}
"""How the types of steps begin, by the kind of the call."""


def shows(call: HostedCall) -> bool:
    """Whether there are steps for it."""
    return call.kind in _STEPS


def render_call(call: HostedCall, step_id: str) -> tuple[HostedStep, HostedStep]:
    """The step of a call as it begins, and what there is to be told of it."""
    kind = f"{_STEPS[call.kind]}_call"
    told: HostedStep = {"type": kind}
    if call.kind == "mcp":
        told |= {"name": call.name, "server_name": call.server, "arguments": hosted_arguments(call)}
    elif call.kind == "web_search":
        query = query_of(call)
        told["arguments"] = {"queries": [] if query is None else [query]}
    elif call.kind == "web_fetch":
        url = url_of(call)
        told["arguments"] = {"urls": [] if url is None else [url]}
    begun = {**told, "id": step_id, **({"arguments": {}} if "arguments" in told else {})}
    return begun, told


def render_result(call: HostedCall, step_id: str) -> tuple[HostedStep, HostedStep]:
    """The step of what a call gave as it begins, and what there is to be told of it."""
    told: HostedStep = {"type": f"{_STEPS[call.kind]}_result", "result": _result(call)}
    if call.kind == "mcp":
        told |= {"name": call.name, "server_name": call.server}
    begun = {**told, "call_id": step_id, "result": "" if call.kind == "mcp" else []}
    if call.status == "failed":
        told["is_error"] = True
    return begun, told


def _result(call: HostedCall) -> Any:
    match call.kind:
        case "mcp":
            return call.output
        case "web_fetch":
            status = "error" if call.status == "failed" else "success"
            return [{"url": url_of(call) or "", "status": status}]
        case "web_search":
            found = (each for each in call.sources if isinstance(each, WebSource))
            return [{"url": each.url, "title": each.title} for each in found]
        case _:
            pieces = (each for each in call.sources if isinstance(each, FileSource))
            return [
                {"title": each.filename, "text": each.text, "file_search_store": each.store}
                for each in pieces
            ]


def render_citation(citation: Citation, said: CitedText) -> dict[str, Any]:
    """An annotation of a text, which is `said`."""
    start, end = place_of(said, citation.start, citation.end)
    place = {"start_index": start, "end_index": end}
    source = citation.source
    if isinstance(source, WebSource):
        return {"type": "url_citation", "url": source.url, "title": source.title, **place}
    cited = {"type": "file_citation", "file_name": source.filename, "document_uri": source.file_id}
    own = {"custom_metadata": dict(source.attributes)} if source.attributes else {}
    return {**cited, **own, **place}


# --------------------------------------------------------------------------------------------------
# Steps: wire -> vocabulary
# --------------------------------------------------------------------------------------------------


def is_own(step: Mapping[str, Any]) -> bool:
    """Whether a step is of a call that this server has run: Google has not said it."""
    return any(
        isinstance(step.get(name), str) and step[name].startswith(OWN_IDS)
        for name in ("id", "call_id")
    )


def parse_mcp_call(step: Mapping[str, Any], path: str) -> AnyToolCall:
    """The call of a `mcp_server_tool_call`.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    given = step.get("arguments")
    return server_call(
        text_in(step, "id", path),
        text_in(step, "server_name", path),
        text_in(step, "name", path),
        arguments_text({} if given is None else as_object(given, f"{path}.arguments")),
    )


def failed(step: Mapping[str, Any], path: str) -> bool:
    """Whether a result is of a call that failed.

    Raises:
        APIError: 400, it does not say so in a word that is known.
    """
    return optional_flag_in(step, "is_error", path) or False


class SearchSteps:
    """The searches that Google tells of in its steps: a call with all queries, and then what they
    have found together."""

    def __init__(self) -> None:
        self._told: dict[int, dict[str, Any]] = {}
        self._running: dict[str, list[HostedCall]] = {}

    def begin(self, index: int, step: Mapping[str, Any]) -> None:
        """A step begins."""
        if step.get("type") in (SEARCH_CALL, SEARCH_RESULT):
            self._told[index] = dict(step)

    def tell(self, index: int, delta: Mapping[str, Any]) -> None:
        """More of the step `index`, where that is of a search."""
        if index in self._told:
            self._told[index].update(delta)

    def end(self, index: int) -> list[HostedCall]:
        """The searches that begin or end with the step `index`, where that is of one."""
        step = self._told.pop(index, None)
        if step is None:
            return []
        if step["type"] == SEARCH_CALL:
            calls = list(_searches(step))
            self._running[str(step.get("id"))] = calls
            return calls
        ended = self._running.pop(str(step.get("call_id")), [])
        return [_found(call, step, is_first=call is ended[0]) for call in ended]

    def rest(self) -> list[HostedCall]:
        """Those of which nothing more was told."""
        return [_found(call, {}) for calls in self._running.values() for call in calls]


def queries_in(step: Mapping[str, Any]) -> Iterator[str]:
    """What a step or a delta of it says that was searched for."""
    queries = members(step.get("arguments")).get("queries")
    if step.get("type") == SEARCH_CALL and isinstance(queries, list):
        yield from (each for each in queries if isinstance(each, str))


def _searches(step: Mapping[str, Any]) -> Iterator[HostedCall]:
    given = [{"query": each} for each in queries_in(step)] or [{}]
    for number, each in enumerate(given):
        name = SEARCH["type"]
        yield HostedCall(
            f"{step.get('id')}_{number}", WEB_SEARCH, name, arguments_text(each), model_name=name
        )


def _found(call: HostedCall, step: Mapping[str, Any], *, is_first: bool = True) -> HostedCall:
    if step.get("is_error"):
        return structs.replace(call, status="failed", error="unavailable", output="It failed.")
    results = step.get("result")
    told = map(members, results if isinstance(results, list) and is_first else ())
    found = tuple(
        WebSource(each["url"], str(each.get("title") or ""))
        for each in told
        if isinstance(each.get("url"), str)
    )
    return structs.replace(call, status="completed", sources=found)


def parse_citation(annotation: Any, said: CitedText) -> Citation | None:
    """The place that an annotation names in a text, as far as that goes; None for what is about
    something else than the web."""
    told = members(annotation)
    url, title = told.get("url"), told.get("title")
    if told.get("type") != "url_citation" or not isinstance(url, str):
        return None
    place = place_in(said, count(told.get("start_index")), count(told.get("end_index")))
    if place is None:
        return None
    return Citation(*place, WebSource(url, str(title or "")), said[slice(*place)])
