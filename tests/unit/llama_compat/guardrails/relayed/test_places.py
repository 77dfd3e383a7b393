"""Places that a vendor names in texts in which something is hidden: they stay at their words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.relayed.places import changes_between, moved_with
from llama_compat.guardrails.relayed.stream import GuardedStream
from llama_compat.text.changes import Changes, Traces
from tests.unit.llama_compat.guardrails.relayed.test_stream import guard_of

MAIL = "alice@example.com"
BEFORE = f"Ä {MAIL} says, and "
CITED = "the Nile is löng"
TEXT = f"{BEFORE}{CITED}, as {MAIL} knows."
SHOWN = f"Ä <EMAIL_1> says, and {CITED}, as <EMAIL_1> knows."
START, END = len(BEFORE), len(BEFORE) + len(CITED)
START_BYTE = len(BEFORE.encode())
END_BYTE = START_BYTE + len(CITED.encode())

PIECES = ["Ä ali", "ce@example.com", " says, ", "and the ", "Nile is löng,", " as alice@", "exam",
          "ple.com knows", "."]  # fmt: skip


def place_in(text: str, annotation: Any, *, in_bytes: bool = False) -> str:
    names = ("startIndex", "endIndex") if "endIndex" in annotation else ("start_index", "end_index")
    start, end = (annotation[each] for each in names)
    if in_bytes:
        return text.encode()[start:end].decode()
    return text[start:end]


def streamed(events: list[dict[str, Any]], *, counts_bytes: bool = False) -> list[dict[str, Any]]:
    stream = GuardedStream(guard_of(mode="redact"), None, {}, counts_bytes=counts_bytes)
    shown = b"".join(stream.push(b"data: %b\n\n" % json.dumps(each).encode()) for each in events)
    lines = (shown + stream.finish()).decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


def test_places_of_chat_completions() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "u", "start_index": START}}
    cited["url_citation"]["end_index"] = END  # type: ignore[index]
    last = {"index": 0, "delta": {"annotations": [cited]}}
    events = [{"choices": [{"index": 0, "delta": {"content": each}}]} for each in PIECES]
    shown = streamed([*events, {"choices": [last]}])
    deltas = [each["choices"][0]["delta"] for each in shown]
    text = "".join(each.get("content", "") for each in deltas)
    assert text == SHOWN
    assert place_in(text, deltas[-1]["annotations"][0]["url_citation"]) == CITED
    # They come with the text at some vendors, and whole.
    with_text = {**last, "delta": {"content": "!", **last["delta"]}}
    both = streamed([*events, {"choices": [with_text]}])[-1]["choices"][0]["delta"]
    assert place_in(text, both["annotations"][0]["url_citation"]) == CITED
    whole: Any = {"choices": [{"message": {"content": TEXT, "annotations": [cited]}}]}
    message = said(whole)["choices"][0]["message"]
    assert message["content"] == SHOWN
    assert place_in(SHOWN, message["annotations"][0]["url_citation"]) == CITED


@pytest.mark.parametrize("at_once", [True, False])
def test_places_of_events_that_are_like_each_other(at_once: bool) -> None:
    """All but a text and numbers is the same in them: they are not told by their bytes alone."""
    begin, words = f"{MAIL}: ", ["one ", "two ", "three ", "four ", "five "]
    events: list[dict[str, Any]] = [{"content": begin}]
    at = len(begin)
    for each in words:
        cited = {"url": "u", "start_index": at, "end_index": at + len(each)}
        events.append({"content": each, "annotations": [{"url_citation": cited}]})
        at += len(each)
    came = [
        b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": each}]}).encode()
        for each in events
    ]
    stream = GuardedStream(guard_of(mode="redact"), None, {})
    shown = b"".join(map(stream.push, [b"".join(came)] if at_once else came)) + stream.finish()
    lines = [json.loads(line[6:]) for line in shown.decode().splitlines() if line]
    deltas = [each["choices"][0]["delta"] for each in lines]
    text = "".join(each["content"] for each in deltas)
    cited_words = [
        place_in(text, each["url_citation"])
        for delta in deltas
        for each in delta.get("annotations", ())
    ]
    assert cited_words == words


def said(whole: Any, *, in_bytes: bool = False) -> Any:
    guard: Guard = guard_of(mode="redact")
    traces = Traces(in_bytes=in_bytes)
    return moved_with(whole, guard.said(whole, traces=traces), traces)


@pytest.mark.parametrize("words", ["bob@example.com", "alice@example.com", "and"])
@pytest.mark.parametrize("in_bytes", [False, True])
def test_what_the_scanner_changed_is_not_guessed(words: str, in_bytes: bool) -> None:
    """Little is the same between two values that are hidden: too little to see it in both texts."""
    text, shown = "Ä: alice@example.com and bob@example.com", "Ä: <EMAIL_1> and <EMAIL_2>"
    wanted = {"bob@example.com": "<EMAIL_2>", "alice@example.com": "<EMAIL_1>"}.get(words, words)
    start = text.index(words)
    end = start + len(words)
    if in_bytes:
        start, end = (len(text[:each].encode()) for each in (start, end))
    cited = {"url": "u", "start_index": start, "end_index": end}
    whole = {"message": {"content": text, "annotations": [{"url_citation": cited}]}}
    message = said(whole, in_bytes=in_bytes)["message"]
    assert message["content"] == shown
    assert place_in(shown, message["annotations"][0]["url_citation"], in_bytes=in_bytes) == wanted


def test_places_of_responses() -> None:
    at = {"item_id": "msg", "output_index": 0, "content_index": 0}
    annotation = {"type": "url_citation", "url": "u", "start_index": START, "end_index": END}
    file = {"type": "file_citation", "file_id": "f", "index": END}
    part = {"type": "output_text", "text": TEXT, "annotations": [annotation, file]}
    item = {"type": "message", "id": "msg", "content": [part]}
    response = {"id": "r", "output": [{"type": "message", "id": "x", "content": []}, item]}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
        *({"type": "response.output_text.delta", "delta": each, **at} for each in PIECES),
        {"type": "response.output_text.annotation.added", "annotation": annotation, **at},
        {"type": "response.output_text.annotation.added", "annotation": file, **at},
        {"type": "response.output_text.done", "text": TEXT, **at},
        {"type": "response.content_part.done", "part": part, **at},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    shown = streamed(events)
    assert "".join(each["delta"] for each in shown if "delta" in each) == SHOWN
    by_type = {each["type"]: each for each in shown}
    first, second = (each["annotation"] for each in shown if "annotation" in each)
    assert place_in(SHOWN, first) == CITED
    assert SHOWN[: second["index"]].endswith(CITED)
    parts = [
        by_type["response.content_part.done"]["part"],
        by_type["response.output_item.done"]["item"]["content"][0],
        by_type["response.completed"]["response"]["output"][1]["content"][0],
        said(response)["output"][1]["content"][0],
    ]
    for each in parts:
        assert each["text"] == SHOWN
        assert place_in(SHOWN, each["annotations"][0]) == CITED
        assert SHOWN[: each["annotations"][1]["index"]].endswith(CITED)


def test_places_of_generate_content_are_in_bytes() -> None:
    segment = {"startIndex": START_BYTE, "endIndex": END_BYTE, "text": CITED}
    grounding = {"groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}]}
    sources = {"citationSources": [{"startIndex": START_BYTE, "endIndex": END_BYTE}]}
    placed = {"groundingMetadata": grounding, "citationMetadata": sources}

    def candidate(*texts: str, **more: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": [{"text": e} for e in texts]}, **more}]}

    shown = streamed(
        [*map(candidate, PIECES), candidate("", finishReason="STOP", **placed)], counts_bytes=True
    )
    parts = [each["candidates"][0]["content"]["parts"] for each in shown]
    text = "".join(part.get("text", "") for each in parts for part in each)
    assert text == SHOWN
    whole = said(candidate(TEXT[:40], TEXT[40:], **placed), in_bytes=True)
    assert "".join(each["text"] for each in whole["candidates"][0]["content"]["parts"]) == SHOWN
    for last in (shown[-1]["candidates"][0], whole["candidates"][0]):
        moved = last["groundingMetadata"]["groundingSupports"][0]["segment"]
        assert (place_in(SHOWN, moved, in_bytes=True), moved["text"]) == (CITED, CITED)
        source = last["citationMetadata"]["citationSources"][0]
        assert place_in(SHOWN, source, in_bytes=True) == CITED


def test_places_of_interactions_are_in_bytes() -> None:
    annotation = {"type": "url_citation", "start_index": START_BYTE, "end_index": END_BYTE}
    shown = streamed(
        [
            {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
            *(
                {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": each}}
                for each in PIECES
            ),
            {
                "event_type": "step.delta",
                "index": 0,
                "delta": {"type": "text_annotation_delta", "annotations": [annotation]},
            },
            {"event_type": "step.stop", "index": 0},
        ],
        counts_bytes=True,
    )
    (moved,) = shown[-2]["delta"]["annotations"]
    assert place_in(SHOWN, moved, in_bytes=True) == CITED
    content = {"type": "text", "text": TEXT, "annotations": [annotation]}
    whole = said({"steps": [{"type": "model_output", "content": [content]}]}, in_bytes=True)
    (moved,) = whole["steps"][0]["content"][0]["annotations"]
    assert place_in(SHOWN, moved, in_bytes=True) == CITED


def test_places_in_documents_stay_where_they_are() -> None:
    citation = {"type": "char_location", "cited_text": "x", "start_char_index": 3}
    events = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": MAIL}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "citations_delta", "citation": citation},
        },
    ]
    assert streamed(events)[-1] == events[-1]


def test_what_is_clean_goes_on_as_it_came() -> None:
    event = {"choices": [{"index": 0, "delta": {"content": "Hi", "annotations": [{"x": 1}]}}]}
    raw = b"data:  %b\n\n" % json.dumps(event).encode()
    stream = GuardedStream(guard_of(mode="redact"), None, {})
    assert stream.push(raw) + stream.finish() == raw


@pytest.mark.parametrize("in_bytes", [False, True])
def test_a_place_within_what_is_hidden_is_that_of_the_word(in_bytes: bool) -> None:
    changes = Changes(in_bytes=in_bytes)
    changes.keep("ab")
    changes.put("cdef", "X")
    changes.put("gh", "")
    changes.keep("ij")

    def place(at: int, *, is_end: bool) -> int:
        return changes.place(at, is_end=is_end)

    assert [place(at, is_end=False) for at in range(12)] == [0, 1, 2, 2, 2, 2, 3, 3, 3, 4, 5, 6]
    assert [place(at, is_end=True) for at in range(12)] == [0, 1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 6]


RUNS = st.lists(
    st.tuples(st.text(alphabet="abcdefghij ", min_size=12, max_size=30), st.sampled_from("XYZÄ")),
    max_size=6,
)


@given(RUNS, st.booleans())
def test_what_has_become_of_a_text_is_told_from_both(
    runs: list[tuple[str, str]], comes_back: bool
) -> None:
    """All that is the same is where it is said to be."""
    came = "".join(f"{kept}{hidden * 20}" for kept, hidden in runs)
    shown = "".join(f"{kept}<{hidden}_1>" for kept, hidden in runs)
    if comes_back:
        came, shown = shown, came
    changes = changes_between(came, shown, in_bytes=False)
    here = there = 0
    hidden, instead = (5, 20) if comes_back else (20, 5)
    for kept, _ in runs:
        for step in range(len(kept)):
            assert changes.place(here + step, is_end=False) == there + step
        here, there = here + len(kept) + hidden, there + len(kept) + instead


def test_long_texts_take_no_long_time_to_compare() -> None:
    came, shown = "a" * 200_000, "b" * 200_000
    changes = changes_between(came, shown, in_bytes=False)
    assert changes.place(100_000, is_end=True) == 200_000
    many = "alice@example.com, " * 20_000
    assert changes_between(many, many.replace(MAIL, "<E>"), in_bytes=False).are_some


@pytest.mark.parametrize("odd", [b'{"annotations": [1,}', b'"annotations": 1'])
def test_what_nobody_reads_as_an_event_has_no_places(odd: bytes) -> None:
    stream = GuardedStream(guard_of(mode="redact"), None, {})
    chat = json.dumps({"choices": [{"index": 0, "delta": {"content": f"{MAIL}, "}}]}).encode()
    shown = stream.push(b"data: %b\n\n" % chat) + stream.push(b"data: %b\n\n" % odd)
    assert (shown + stream.finish()).endswith(b"data: %b\n\n" % odd)
