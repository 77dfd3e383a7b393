"""What Google's search has found: places in bytes, told again and again while an answer comes."""

from __future__ import annotations

from typing import Any

import pytest
from google.genai import types

from llama_compat.dialects.gemini import StreamParser, searches
from llama_compat.dialects.gemini.grounding import ShownGrounding
from llama_compat.events import Collector
from llama_compat.hosted.vocabulary import Citation, FileSource, HostedCall, WebSource
from llama_compat.types import StreamComplete, TextContent, Units, Usage

SOURCES = [WebSource("https://a.example", "A"), WebSource("https://b.example", "B")]
CHUNKS = [{"web": {"uri": each.url, "title": each.title}} for each in SOURCES]


def support(start: int, end: int, *indices: int, text: str = "") -> dict[str, Any]:
    segment = {"startIndex": start, "endIndex": end, **({"text": text} if text else {})}
    return {"segment": segment, "groundingChunkIndices": list(indices)}


def response(parts: list[dict[str, Any]], **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": parts}, **candidate}]}


def read(*responses: dict[str, Any]) -> tuple[Any, ...]:
    parser, collector = StreamParser(), Collector()
    for each in responses:
        for event in parser.push(each):
            collector.add(event)
    for event in parser.finish():
        collector.add(event)
    return collector.chat_completion().completion_message.parts


def test_places_are_in_bytes_of_all_of_the_text() -> None:
    metadata = {
        "webSearchQueries": ["q1", "q2"],
        "groundingChunks": CHUNKS,
        "groundingSupports": [support(0, 3, 0, text="Öl"), support(4, 9, 0, 1, text="fließ")],
    }
    text, first, second = read(
        response([{"text": "Öl fl"}]),
        response([{"text": "ießt."}], groundingMetadata=metadata),
        response([{"text": ""}], groundingMetadata=metadata, finishReason="STOP"),
    )
    assert text == TextContent(
        "Öl fließt.",
        (
            Citation(0, 2, SOURCES[0], "Öl"),
            Citation(3, 8, SOURCES[0], "fließ"),
            Citation(3, 8, SOURCES[1], "fließ"),
        ),
    )
    assert [each.arguments_json for each in (first, second)] == ['{"query":"q1"}', '{"query":"q2"}']
    assert (first.sources, second.sources) == (tuple(SOURCES), ())


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        (support(0, 2, 0, text="bc"), [(1, 3)]),
        (support(0, 2, 0, text="xy"), []),
        (support(0, 99, 0), [(0, 4)]),
        (support(2, 2, 0), []),
        (support(0, 2, 7), []),
        ({"groundingChunkIndices": [0]}, []),
    ],
)
def test_a_place_is_where_its_text_is(segment: Any, expected: list[tuple[int, int]]) -> None:
    metadata = {"groundingChunks": CHUNKS, "groundingSupports": [segment]}
    text, _ = read(response([{"text": "abcd"}], groundingMetadata=metadata, finishReason="STOP"))
    assert [(each.start, each.end) for each in text.citations] == expected


def test_a_place_before_the_texts_seal_is_in_its_part() -> None:
    metadata = {"groundingChunks": CHUNKS, "groundingSupports": [support(0, 4, 1)]}
    sealed = {"text": "", "thoughtSignature": "c2VhbA=="}
    parser = StreamParser()
    parser.push(response([{"text": "abcd"}]))
    events = parser.push(response([sealed], groundingMetadata=metadata, finishReason="STOP"))
    assert [type(event.delta).__name__ for event in events] == ["CitationDelta", "ReasoningDelta"]
    assert [event.part for event in events] == [0, 1]


def test_without_a_search_there_is_nothing() -> None:
    assert read(response([{"text": "Hi"}], finishReason="STOP", groundingMetadata={})) == (
        TextContent("Hi"),
    )
    assert ShownGrounding().rendered() == {}


def test_what_is_shown_is_read_as_the_same() -> None:
    shown = ShownGrounding()
    call = HostedCall("1", "web_search", "s", '{"query":"q"}', status="completed")
    shown.add(call)
    shown.say(0, "Über ")
    shown.say(2, "Öl")
    shown.cite(2, Citation(0, 2, SOURCES[1], "Öl"))
    told = shown.rendered()
    text, search = read(response([{"text": "Über Öl"}], **told, finishReason="STOP"))
    assert text.citations == (Citation(5, 7, SOURCES[1], "Öl"),)
    assert (search.arguments_json, search.sources) == ('{"query":"q"}', (SOURCES[1],))


def fetched(url: str | None, status: Any) -> HostedCall:
    given = "{}" if url is None else f'{{"url":"{url}"}}'
    return HostedCall("c", "web_fetch", "web_fetch", given, status=status, sources=(SOURCES[0],))


def test_pages_that_were_read_are_named_and_whether_they_could_be() -> None:
    shown = ShownGrounding()
    shown.say(0, "Öl, says A.")
    shown.add(fetched("https://a.example", "in_progress"))
    shown.add(fetched("https://a.example", "completed"))
    shown.add(fetched("https://none.example", "failed"))
    shown.add(fetched(None, "failed"))
    pages = {
        "urlContextMetadata": {
            "urlMetadata": [
                {
                    "retrievedUrl": "https://a.example",
                    "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS",
                },
                {
                    "retrievedUrl": "https://none.example",
                    "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_ERROR",
                },
                {"retrievedUrl": "", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_ERROR"},
            ]
        }
    }
    assert shown.rendered() == pages
    shown.cite(0, Citation(0, 2, SOURCES[0]))
    grounding = {
        "webSearchQueries": [],
        "groundingChunks": CHUNKS[:1],
        "groundingSupports": [support(0, 3, 0, text="Öl")],
    }
    assert shown.rendered() == {"groundingMetadata": grounding, **pages}
    types.Candidate.model_validate(shown.rendered())


def test_each_piece_of_a_file_that_was_found_is_a_chunk() -> None:
    pieces = (
        FileSource("file-1", "a.txt", "One.", 0.5, {"by": "x", "year": 1.5, "new": True}, "vs_1"),
        FileSource("file-1", "a.txt", "Two."),
    )
    call = HostedCall("c", "file_search", "file_search", status="completed", sources=pieces)
    shown = ShownGrounding()
    shown.say(0, "Two.")
    shown.add(call)
    shown.cite(0, Citation(0, 3, pieces[1]))
    own = [
        {"key": "by", "stringValue": "x"},
        {"key": "year", "numericValue": 1.5},
        {"key": "new", "stringValue": "true"},
    ]
    first = {"title": "a.txt", "text": "One.", "uri": "file-1", "customMetadata": own}
    first["fileSearchStore"] = "fileSearchStores/vs_1"
    rendered = shown.rendered()
    assert rendered["groundingMetadata"] == {
        "groundingChunks": [
            {"retrievedContext": first},
            {"retrievedContext": {"title": "a.txt", "text": "Two.", "uri": "file-1"}},
        ],
        "groundingSupports": [support(0, 3, 1, text="Two")],
    }
    types.Candidate.model_validate(rendered)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gemini-2.5-flash", True),
        ("models/gemini-3-pro-preview", True),
        ("gemini-1.5-pro", False),
        ("gemini-2.5-flash-image", False),
        ("gemma-3-27b-it", False),
    ],
)
def test_the_models_that_search(model: str, expected: bool) -> None:
    assert searches(model) is expected


@pytest.mark.parametrize(
    ("model", "searches"), [("gemini-3.5-pro", 3), ("gemini-2.5-flash", 1), (None, 3)]
)
def test_what_was_searched_for_is_counted_once(model: str | None, searches: int) -> None:
    """Google is paid for each query, and before Gemini 3 for each reply that has any."""
    told = [["q1"], ["q1", "q2"], ["q2", "q3", 4]]
    parser = StreamParser()
    for place, queries in enumerate(told):
        reason = {"finishReason": "STOP"} if place == 2 else {}
        each = response([{"text": "a"}], groundingMetadata={"webSearchQueries": queries}, **reason)
        counted = {"promptTokenCount": 7, "candidatesTokenCount": place}
        parser.push({**each, "usageMetadata": counted, "modelVersion": model})
    usages = [each.usage for each in parser.finish() if isinstance(each, StreamComplete)]
    assert usages == [Usage(7, 2, units=Units(searches=searches))]
