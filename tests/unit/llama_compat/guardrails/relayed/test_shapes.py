"""What the events of a stream have in common, and which are read by that."""

from __future__ import annotations

import json

import pytest

from llama_compat.guardrails.relayed.shapes import EventShape, shape_like, shape_of


def event(text: str, *, spaces: bool = False, **members: object) -> bytes:
    said = {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": text}}], **members}
    separators = (", ", ": ") if spaces else (",", ":")
    return (
        b"data: " + json.dumps(said, separators=separators, ensure_ascii=False).encode() + b"\n\n"
    )


def texts(shape: EventShape | None, events: bytes) -> list[bytes]:
    assert shape is not None
    return shape.read(events, 0).texts


@pytest.mark.parametrize("spaces", [False, True])
def test_one_event_shows_what_others_are_like_that_differ_in_their_text(spaces: bool) -> None:
    shape = shape_like(event("a", spaces=spaces), "content")
    said = ["", " b", "ü\n", 'a "quote"', "\\", "\t"]
    events = [event(each, spaces=spaces) for each in said]
    assert shape is not None
    found = shape.read(b"".join(events), 0)
    assert found.texts == [json.dumps(each, ensure_ascii=False)[1:-1].encode() for each in said]
    begins = [0, *found.ends[:-1]]
    cut = [b"".join(events)[a:b] for a, b in zip(begins, found.ends, strict=True)]
    assert (cut, found.words) == (events, [])


def test_reading_ends_with_the_first_that_is_another() -> None:
    shape = shape_like(event("a"), "content")
    for other in (
        event("c", usage={"total_tokens": 1}),
        event("c", id="chatcmpl-2"),
        event("c")[:-1],
        event('"', id="chatcmpl-2"),
        b'data: {"id":"chatcmpl-1"}\n\n',
        b"",
    ):
        assert texts(shape, event("b") + other + event("d")) == [b"b"] + [b"d"] * (not other)


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(event("a", content="b"), id="two members of the name"),
        pytest.param(event("a", type="content"), id="a value that is the name"),
        pytest.param(event("a", created_at="2026-11-24T00:00:00Z"), id="a member that varies"),
        pytest.param(b'data: {"text":"a"}\n\n', id="no such member"),
        pytest.param(b'data: {"content":null}\n\n', id="no text"),
        pytest.param(b'data: {"content":"a\n\n', id="no end"),
    ],
)
def test_what_is_not_told_from_one_event(one: bytes) -> None:
    assert shape_like(one, "content") is None


def test_two_events_show_what_counts_them_and_what_else_varies() -> None:
    first, second, third = (
        event(text, created=number, created_at=f"2026-{number}")
        for text, number in (("a", 10), ("b", 11), ("c", 123))
    )
    shape = shape_of(first, second, "content")
    assert shape is not None
    found = shape.read(second + third, 0)
    assert found.texts == [b"b", b"c"]
    assert found.words == [b"2026-11", b"2026-123"]
    assert shape_of(first, event("b", other=1), "content") is None
    # What tells one text from another is no number that counts.
    marked = [event("a", output_index=place) for place in (0, 1)]
    assert shape_of(*marked, "content") is None
