"""Bodies as they are kept."""

from __future__ import annotations

import json

import pytest

from routing.observability.records.bodies import (
    CUT,
    CUT_CHARACTERS,
    MARGIN_BYTES,
    Body,
    Redaction,
    joined_events,
)

KEY = rb"sk-[a-z]{6}"


def kept(
    request: bytes = b"",
    reply: bytes = b"",
    *,
    patterns: list[str] | None = None,
    max_bytes: int = 100,
    cut: bool = False,
    streamed: bool = False,
) -> tuple[bytes, bytes]:
    redaction = Redaction(patterns or [], max_bytes)
    body = Body(1.5, "req", request, reply, request_cut=cut, reply_cut=cut, streamed=streamed)
    time, request_id, kept_request, kept_reply, _ = redaction.row(body)
    assert (time, request_id) == (1.5, "req")
    return kept_request, kept_reply


def test_what_is_short_is_kept_as_it_is() -> None:
    assert kept(b"a" * 100, b"\xff" * 100) == (b"a" * 100, b"\xff" * 100)


def test_what_is_long_is_cut() -> None:
    assert kept(b"a" * 101, b"b" * 150) == (b"a" * 100 + CUT, b"b" * 100 + CUT)


def test_what_is_listed_is_not_kept() -> None:
    request, reply = kept(b"my sk-abcdef!", b"sk-abcdefsk-ghijkl", patterns=[KEY.decode()])
    assert request == b"my [redacted]!"
    assert reply == b"[redacted][redacted]"


def test_several_patterns() -> None:
    assert kept(b"ab", patterns=["a", "b"])[0] == b"[redacted]" * 2


def test_what_lies_across_the_cut_is_found() -> None:
    request, _ = kept(b"x" * 97 + b"sk-abcdef", patterns=[KEY.decode()])
    assert request == b"x" * 97 + b"[re" + CUT


def test_half_of_something_at_the_end_of_the_sample_is_not_kept() -> None:
    # What is redacted is shorter than it was, so that the end moves into what is kept.
    long = b"sk-abcdef" * 1000
    sample = (long + b"x" * 50 + b"sk-abcdef")[: 9000 + 50 + 6]
    redaction = Redaction(["(sk-abcdef)+"], 9056 - MARGIN_BYTES)
    assert redaction.sample_bytes == 9056
    row = redaction.row(Body(0, "", sample, sample, True, True, False))
    assert b"sk-" not in row[2]
    assert b"sk-" not in row[3]


def test_a_stream_is_kept_as_it_is_where_nothing_is_redacted() -> None:
    stream = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    assert kept(reply=stream, streamed=True)[1] == stream


def events(*texts: str) -> bytes:
    chunks = [{"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def test_what_a_stream_says_in_pieces_is_redacted_as_a_whole() -> None:
    _, reply = kept(
        reply=events("my s", "k-abc", "def!"),
        patterns=[KEY.decode()],
        max_bytes=1000,
        streamed=True,
    )
    assert json.loads(reply)["choices.0.delta.content"] == "my [redacted]!"


def test_the_end_of_a_stream_that_was_cut_is_not_kept() -> None:
    _, reply = kept(
        reply=events("x" * 10, "y" * (CUT_CHARACTERS - 6), "sk-abc"),
        patterns=[KEY.decode()],
        max_bytes=1000,
        streamed=True,
        cut=True,
    )
    assert json.loads(reply)["choices.0.delta.content"] == "x" * 10


@pytest.mark.parametrize(
    ("stream", "members"),
    [
        (events("a", "b"), {"id": "c", "choices.0.index": 0, "choices.0.delta.content": "ab"}),
        (b'{"response":"a","done":false}\n{"response":"b","done":true}\n{"respo',
         {"response": "ab", "done": True}),
        (b'data: {"a":"x"}\n\ndata: {"a":null}\n\ndata: {"b":null}\n\n', {"a": "x", "b": None}),
        (b"data: [1,", {}),
        (b"", {}),
    ],
)  # fmt: skip
def test_events_are_joined_by_their_members(stream: bytes, members: dict[str, object]) -> None:
    assert joined_events(stream) == members
