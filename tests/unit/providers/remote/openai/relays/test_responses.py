"""The Responses API relayed: the very bytes, but for the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from llama_compat.dialects.openai_responses.output.events import EventWriter
from llama_compat.errors import APIError, upstream_error
from llama_compat.types import Units, Usage
from providers.remote.openai.relays.responses import ResponseStream, whole_fields
from tests.examples import examples
from tests.sdk_responses import check_events, parse_stream
from tests.unit.llama_compat.dialects.openai_responses.test_output import (
    TextDelta,
    called,
    says,
    stream_of,
    whole_of,
)
from tests.unit.vocabulary import cuts

STREAM = stream_of(says(TextDelta("Hel"), TextDelta("lo [DONE]\n\n"), *called("look", '{"a": 1}')))
"""What a vendor sends, its model being called `public`."""

EVENTS = parse_stream(STREAM)


def event(kind: str, **members: Any) -> bytes:
    """An event as another server might write it."""
    data = json.dumps({"type": kind, "vendor": 1.0, **members})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def relay() -> ResponseStream:
    return ResponseStream("p", "asked")


def relayed(pieces: list[bytes], stream: ResponseStream | None = None) -> bytes:
    stream = stream or relay()
    out: list[bytes] = []
    for piece in pieces:
        if piece:
            stream.push(piece, out)
    if not stream.ended:
        stream.push(b"", out)
    return b"".join(out)


def renamed(stream: bytes) -> bytes:
    return stream.replace(b'"model":"public"', b'"model":"asked"').removesuffix(b"data: [DONE]\n\n")


@settings(max_examples=examples(60), deadline=None)
@given(cuts(STREAM))
def test_bytes_cut_anywhere_come_out_the_same_but_for_the_model(pieces: list[bytes]) -> None:
    stream = relay()
    assert relayed(pieces, stream) == renamed(STREAM)
    assert stream.complete
    assert stream.usage is not None
    assert (stream.usage.prompt_tokens, stream.usage.cached_tokens) == (11, 3)


@settings(max_examples=examples(30), deadline=None)
@given(cuts(STREAM.replace(b"\n", b"\r\n")))
def test_other_line_ends_are_understood(pieces: list[bytes]) -> None:
    assert relayed(pieces) == renamed(STREAM)


def test_an_event_may_begin_with_a_comment() -> None:
    commented = b"".join(b": hi\n%b\n\n" % each for each in STREAM.split(b"\n\n") if each)
    stream = relay()
    out = relayed([commented], stream).replace(b": hi\n", b"")
    assert (out, stream.complete) == (renamed(STREAM), True)


@pytest.mark.parametrize("end", [b'"delta":"g', b'"delta":"\xf0\x9f'])
def test_an_event_that_the_end_cuts_is_not_passed_on(end: bytes) -> None:
    begun = STREAM[: STREAM.index(b'"delta":"') + 9] + b'Hel"}\n\n'
    cut = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",' + end
    stream, out = relay(), []
    stream.push(begun + cut, out)  # type: ignore[arg-type]
    with pytest.raises(APIError, match="makes no sense"):
        stream.push(b"", out)  # type: ignore[arg-type]
    assert b"".join(out).endswith(b'Hel"}\n\n')


@pytest.mark.parametrize(
    ("said", "told"), [(b"\xff", "not valid UTF-8"), (b"\x00", "invalid character")]
)
def test_what_is_no_text_is_not_passed_on(said: bytes, told: str) -> None:
    delta = (
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","d":"%b"}'
    )
    stream, out = relay(), []
    stream.push(STREAM[: STREAM.index(b"event: response.content_part.done")], out)  # type: ignore[arg-type]
    with pytest.raises(APIError, match=told):
        stream.push(delta % said + b"\n\n", out)  # type: ignore[arg-type]
    assert said not in b"".join(out)


def test_unknown_events_and_members_are_kept() -> None:
    odd = event("response.future.delta", delta="x", sequence_number=2)
    created = event("response.created", response={"id": "r", "model": "v", "x_big": 1.50})
    completed = event("response.completed", response={"id": "r", "model": "v"})
    out = relayed([created + b": ping\n\n" + odd + b": ping\n\n" + completed])
    assert odd in out
    assert out.count(b": ping") == 1
    assert b'"vendor":1.0,"response":{"id": "r"' not in out
    assert b'"x_big":1.5' in out
    assert b'"vendor":1.0' in out


def test_what_was_searched_for_is_paid_for_when_the_stream_breaks_off() -> None:
    def searched(action: str) -> bytes:
        item = {"type": "web_search_call", "id": "w", "action": {"type": action}}
        return event("response.output_item.done", output_index=0, item=item)

    stream = relay()
    created = event("response.created", response={"id": "r", "model": "v"})
    relayed([created, searched("search"), searched("open_page"), searched("search")], stream)
    assert (stream.usage, stream.complete) == (Usage(units=Units(searches=2)), False)
    counted = {"input_tokens": 3, "output_tokens": 2}
    relayed([event("response.failed", response={"id": "r", "usage": counted})], stream)
    assert stream.usage == Usage(3, 2, units=Units(searches=2))


def test_nothing_is_sent_before_there_is_something_to_say() -> None:
    stream, out = relay(), []
    begun, rest = STREAM.split(b"event: response.output_item.added", 1)
    stream.push(begun, out)  # type: ignore[arg-type]
    assert (out, stream.begun) == ([], False)
    stream.push(b"event: response.output_item.added" + rest, out)  # type: ignore[arg-type]
    assert b"".join(out) == renamed(STREAM)


@pytest.mark.parametrize("count", range(2, len(EVENTS)))
def test_a_stream_that_is_cut_fails_with_the_next_number(count: int) -> None:
    stream = relay()
    begun = b"\n\n".join(STREAM.split(b"\n\n")[:count]) + b"\n\n"
    out = relayed([begun], stream)
    assert not stream.complete
    told = stream.render_error(upstream_error("p", "the stream ended."))
    events = parse_stream(out + told)
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    if count > 2:
        assert [each["type"] for each in events[-2:]] == ["error", "response.failed"]
        failed = events[-1]["response"]
        assert failed["id"] == EVENTS[0]["response"]["id"]
        assert (failed["status"], failed["model"]) == ("failed", "asked")


@pytest.mark.parametrize(
    "data",
    [
        {"type": "error", "message": "Slowly.", "code": "rate_limit_exceeded"},
        {"type": "error", "error": {"message": "Slowly.", "code": "rate_limit_exceeded"}},
        {"error": {"message": "Slowly.", "code": "rate_limit_exceeded"}},
    ],
)
def test_an_error_in_the_stream_is_raised(data: dict[str, Any]) -> None:
    stream, out = relay(), []
    first = b"\n\n".join(STREAM.split(b"\n\n")[:5]) + b"\n\n"
    wrong = b"event: error\ndata: " + json.dumps(data).encode() + b"\n\n"
    with pytest.raises(APIError, match="Slowly") as caught:
        stream.push(first + wrong, out)  # type: ignore[arg-type]
    assert caught.value.code == "rate_limit_exceeded"
    assert b"".join(out) == renamed(first)


def test_a_failed_response_keeps_the_vendors_words() -> None:
    created = event("response.created", response={"model": "v"}, sequence_number=0)
    response = {"model": "v", "status": "failed", "error": {"message": "Bad request"}}
    out = relayed([created + event("response.failed", response=response, sequence_number=1)])
    assert b"Bad request" in out


def test_done_without_a_last_event_is_no_end() -> None:
    stream = relay()
    relayed([b"\n\n".join(STREAM.split(b"\n\n")[:6]) + b"\n\ndata: [DONE]\n\n"], stream)
    assert not stream.complete


@pytest.mark.parametrize("data", [b"{oops", b"[1]", b'{"type": "response.created"}'])
def test_nonsense_is_502(data: bytes) -> None:
    with pytest.raises(APIError) as caught:
        relayed([b"data: " + data + b"\n\n"])
    assert caught.value.status == 502


def test_a_whole_reply_becomes_the_stream_that_was_asked_for() -> None:
    whole = whole_of(says(TextDelta("Hello"), *called("look", '{"a": 1}')))
    stream = relay()
    events = parse_stream(stream.whole(json.dumps(whole).encode()) + b"data: [DONE]\n\n")
    assert check_events(events) == {**whole, "model": "asked"}
    assert stream.complete
    assert stream.usage is not None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "No."}}', "No."),
        (b'{"ok": true}', "has no 'output'"),
        (b"<html>", "web page"),
        (b"", "empty"),
    ],
)
def test_a_whole_reply_that_is_none_is_502(body: bytes, message: str) -> None:
    with pytest.raises(APIError, match=message) as caught:
        whole_fields("p", body, "output", "asked")
    assert caught.value.status == 502


def test_a_whole_reply_may_be_a_failed_response() -> None:
    body = (
        b'{"output": [], "model": "v", "status": "failed", "error": {"message": "No."}, "n": 1.0}'
    )
    fields = whole_fields("p", body, "output", "asked")
    assert bytes(fields["model"]) == b'"asked"'
    assert bytes(fields["n"]) == b"1.0"


def test_numbers_go_on_from_where_the_vendor_was() -> None:
    stream = relay()
    writer = EventWriter(41)
    created = writer.event("response.created", {"response": {"id": "r"}})
    relayed([created + writer.event("response.x.delta", {"delta": '"sequence_number":9'})], stream)
    assert b'"sequence_number":43' in stream.render_error(upstream_error("p", "cut."))


@pytest.mark.parametrize(
    "wrong",
    [
        {"output": 3},
        {"output": ["text"]},
        {"output": [{"type": ["message"]}]},
        {"output": [{"type": "message", "content": 3}]},
        {"output": [{"type": "message", "content": ["text"]}]},
        {"output": [{"type": "message", "content": [{"type": "output_text", "text": 3}]}]},
        {"output": [], "status": ["completed"]},
    ],
)
def test_a_whole_reply_of_other_types_is_502(wrong: dict[str, Any]) -> None:
    with pytest.raises(APIError, match="makes no sense") as caught:
        relay().whole(json.dumps({"id": "resp_1", **wrong}).encode())
    assert caught.value.status == 502


def test_items_that_nobody_knows_are_kept_in_a_stream_too() -> None:
    items = [
        {"type": "tool_search_call", "id": "a", "arguments": {"x": 1}, "content": {"y": 2}},
        {"type": "function_call", "id": "b", "call_id": "c", "name": "f", "arguments": {"x": 1}},
    ]
    body = json.dumps({"id": "resp_1", "status": "completed", "output": items}).encode()
    events = [
        json.loads(line.removeprefix("data: "))
        for line in relay().whole(body).decode().splitlines()
        if line.startswith("data: ")
    ]
    assert events[-1]["response"]["output"] == items
    [arguments] = [each["delta"] for each in events if each["type"].endswith("arguments.delta")]
    assert json.loads(arguments) == {"x": 1}


@pytest.mark.parametrize("kind", [3, ["response.created"], {}, True])
def test_the_type_of_an_event_is_text(kind: Any) -> None:
    with pytest.raises(APIError, match="makes no sense"):
        relayed([b"data: " + json.dumps({"type": kind}).encode() + b"\n\n"])
