"""What the model's answer stands on: Google's search, its tool and what it has found, and what
clients are told of pages that were read and files that were searched.

https://ai.google.dev/gemini-api/docs/google-search and google-genai 3.4.0 (2026-11-28). Places are
counted in the bytes of all of the text, and what was found is told when the answer has been given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from llama_compat.dialects.counts import members
from llama_compat.hosted.citations import CitedText, SaidParts
from llama_compat.hosted.vocabulary import (
    GOOGLES_STORES,
    WEB_SEARCH,
    Citation,
    FileSource,
    HostedCall,
    Source,
    WebSource,
)
from llama_compat.tools.calls import arguments_text, hosted_arguments, new_call_id
from llama_compat.types import Units, Usage

SEARCH: Mapping[str, Any] = {"googleSearch": {}}
"""The tool."""

_NAME = "google_search"


# --------------------------------------------------------------------------------------------------
# Wire -> vocabulary
# --------------------------------------------------------------------------------------------------


class Grounding:
    """What a search has found for an answer, as its responses tell: each tells all so far."""

    def __init__(self) -> None:
        self._said = SaidParts()
        self._queries: dict[str, None] = {}
        self._sources: dict[str, WebSource] = {}
        self._given: set[tuple[int, int, str]] = set()

    def say(self, part: int, text: str) -> None:
        """More of the answer."""
        self._said.say(part, text)

    def citations(self, metadata: Any) -> Iterator[tuple[int, Citation]]:
        """The places that are new in `metadata`, each in its part."""
        if not isinstance(metadata, dict):
            return
        self._queries |= dict.fromkeys(queries_in(metadata))
        chunks = [_parse_chunk(each) for each in metadata.get("groundingChunks") or ()]
        self._sources |= {each.url: each for each in chunks if each is not None}
        text = self._said.text
        for support in metadata.get("groundingSupports") or ():
            segment = support.get("segment") or {}
            place = place_in(
                text, segment.get("startIndex"), segment.get("endIndex"), segment.get("text")
            )
            if place is None:
                continue
            for index in support.get("groundingChunkIndices") or ():
                source = chunks[index] if 0 <= index < len(chunks) else None
                if source is None or (*place, source.url) in self._given:
                    continue
                self._given.add((*place, source.url))
                yield self._said.placed(Citation(*place, source, text[slice(*place)]))

    @property
    def queries(self) -> Collection[str]:
        """What was searched for so far."""
        return self._queries.keys()

    def searches(self) -> Iterator[HostedCall]:
        """The searches that there were. By which of them something was found is not told."""
        found = tuple(self._sources.values())
        given = [{"query": each} for each in self._queries] or ([{}] if found else [])
        for each in given:
            yield HostedCall(
                new_call_id(),
                WEB_SEARCH,
                _NAME,
                arguments_text(each),
                status="completed",
                sources=found,
                model_name=_NAME,
            )
            found = ()


def queries_in(metadata: Any) -> Iterator[str]:
    """What was searched for, by the `groundingMetadata` of a candidate."""
    queries = members(metadata).get("webSearchQueries")
    for each in queries if isinstance(queries, list) else ():
        if isinstance(each, str):
            yield each


_PAID_BY_REPLY = ("gemini-1", "gemini-2")


def paid_searches(queries: Collection[str], model: Any) -> int:
    """The searches of a reply that are paid for: each query, but with models before Gemini 3 the
    reply that has any (https://ai.google.dev/gemini-api/docs/pricing, 2026-11-23).

    Args:
        queries: what the vendor has searched for.
        model: what it calls the model in its reply.
    """
    is_one = isinstance(model, str) and model.startswith(_PAID_BY_REPLY)
    return min(len(queries), 1) if is_one else len(queries)


def with_searches(usage: Usage, queries: Collection[str], model: Any) -> Usage:
    """The usage of a whole reply, and its searches.

    Args:
        usage: what was counted.
        queries, model: as for `paid_searches`.
    """
    searches = paid_searches(queries, model)
    return structs.replace(usage, units=Units(searches=searches)) if searches else usage


def _parse_chunk(chunk: Mapping[str, Any]) -> WebSource | None:
    web = chunk.get("web") or {}
    return WebSource(web["uri"], web.get("title") or "") if web.get("uri") else None


def place_in(
    said: CitedText, begin: int | None, end: int | None, text: str | None = None
) -> tuple[int, int] | None:
    """Where something is that Google tells in bytes, in characters.

    Args:
        said: the text.
        begin, end: what is told; None is 0.
        text: what the text says there; None where that is not told.

    Returns:
        the place; None where the text does not say that, or there is nothing.
    """
    first, last = (said.characters_before(each or 0) for each in (begin, end))
    if text and said[first:last] != text:
        first = said.whole.find(text)
        last = first + len(text)
    return (first, last) if 0 <= first < last else None


def place_of(said: CitedText, start: int, end: int) -> tuple[int, int]:
    """Where the characters from `start` to `end` are, as Google tells it: in bytes."""
    return said.bytes_before(start), said.bytes_before(end)


# --------------------------------------------------------------------------------------------------
# Vocabulary -> wire
# --------------------------------------------------------------------------------------------------


def query_of(call: HostedCall) -> str | None:
    """What a search was for; None where the model has not said that."""
    return _given(call, "query")


def url_of(call: HostedCall) -> str | None:
    """What page was to be read; None where the model has not said that."""
    return _given(call, "url")


def _given(call: HostedCall, name: str) -> str | None:
    found = hosted_arguments(call).get(name)
    return found if isinstance(found, str) else None


class ShownGrounding:
    """What a client is told of searches, of pages that were read, and of what was found."""

    def __init__(self) -> None:
        self._said = SaidParts()
        self._queries: list[str] = []
        self._pages: list[dict[str, str]] = []
        self._sources: dict[tuple[str, str], Source] = {}
        self._cited: list[tuple[int, Citation]] = []

    def say(self, part: int, text: str) -> None:
        """More of the answer."""
        self._said.say(part, text)

    def add(self, call: HostedCall) -> None:
        """A call, once it has come to its end. What a page that was read says is a source where the
        text cites it."""
        if call.status == "in_progress":
            return
        if call.kind == "web_fetch":
            status = "ERROR" if call.status == "failed" else "SUCCESS"
            self._pages.append(
                {
                    "retrievedUrl": url_of(call) or "",
                    "urlRetrievalStatus": f"URL_RETRIEVAL_STATUS_{status}",
                }
            )
            return
        query = query_of(call) if call.kind == WEB_SEARCH else None
        if query is not None:
            self._queries.append(query)
        for each in call.sources:
            self._sources.setdefault(_key(each), each)

    def cite(self, part: int, citation: Citation) -> None:
        """A place in a part."""
        self._cited.append((part, citation))
        self._sources.setdefault(_key(citation.source), citation.source)

    def rendered(self) -> dict[str, Any]:
        """The members of a candidate, if there is anything to say."""
        pages = {"urlContextMetadata": {"urlMetadata": self._pages}} if self._pages else {}
        if not (self._queries or self._sources):
            return pages
        numbers = {key: number for number, key in enumerate(self._sources)}
        has_web = any(isinstance(each, WebSource) for each in self._sources.values())
        has_web = has_web or bool(self._queries)
        grounding: dict[str, Any] = {"webSearchQueries": self._queries} if has_web else {}
        grounding["groundingChunks"] = [_render_chunk(each) for each in self._sources.values()]
        grounding["groundingSupports"] = self._supports(numbers)
        return {"groundingMetadata": grounding, **pages}

    def _supports(self, numbers: Mapping[tuple[str, str], int]) -> Sequence[dict[str, Any]]:
        supports: dict[tuple[int, int], list[int]] = {}
        for part, citation in self._cited:
            begin = self._said.begin(part)
            place = (begin + citation.start, begin + citation.end)
            supports.setdefault(place, []).append(numbers[_key(citation.source)])
        return [
            {"segment": _segment(self._said.text, *place), "groundingChunkIndices": indices}
            for place, indices in supports.items()
        ]


def _key(source: Source) -> tuple[str, str]:
    """What is one source: of a file, each piece is."""
    return source.link, source.text if isinstance(source, FileSource) else ""


def _render_chunk(source: Source) -> dict[str, Any]:
    if isinstance(source, WebSource):
        return {"web": {"uri": source.url, "title": source.title}}
    told: dict[str, Any] = {"title": source.filename, "text": source.text, "uri": source.file_id}
    if source.attributes:
        told["customMetadata"] = [_render_own(*each) for each in source.attributes.items()]
    if source.store:
        told["fileSearchStore"] = f"{GOOGLES_STORES}{source.store}"
    return {"retrievedContext": told}


def _render_own(name: str, value: str | float | bool) -> dict[str, Any]:
    """A file's attribute; Google has no booleans among them."""
    if isinstance(value, bool):
        value = "true" if value else "false"
    return {"key": name, ("stringValue" if isinstance(value, str) else "numericValue"): value}


def _segment(said: CitedText, start: int, end: int) -> dict[str, Any]:
    begin, behind = place_of(said, start, end)
    return {"startIndex": begin, "endIndex": behind, "text": said[start:end]}
