"""AWS's frames: cut anywhere, damaged, and those that tell of an exception."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError
from providers.remote.bedrock.event_stream import MOST_BYTES, EventStreamObjects
from tests import bedrock

EVENTS = bedrock.stream_events(bedrock.reply([{"text": "It is 20 °C. 🌞"}]))
STREAM = bedrock.stream_bytes(EVENTS)


def objects(*chunks: bytes) -> list[dict[str, Any]]:
    decoder = EventStreamObjects("aws")
    found = [dict(each) for chunk in chunks for each in decoder.feed(chunk)]
    for each in found:
        for members in each.values():
            members.pop("p", None)
    return [*found, *map(dict, decoder.flush())]


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_frames_are_cut_anywhere(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[a:b] for a, b in pairwise(places)]
    assert objects(*chunks) == EVENTS


def test_byte_by_byte() -> None:
    assert objects(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == EVENTS


def test_what_is_not_whole_says_nothing() -> None:
    assert objects(STREAM[:-1]) == EVENTS[:-1]


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255))
def test_a_changed_byte_is_found(at: int, change: int) -> None:
    damaged = bytearray(STREAM)
    damaged[at] ^= change
    # Where a length has become larger the frame waits for what never comes.
    try:
        found = objects(bytes(damaged))
    except ValueError:
        return
    assert found == EVENTS[: len(found)]
    assert len(found) < len(EVENTS)


@pytest.mark.parametrize("begin", [b"\0\0\0\0rest", b"\0\0\0\x0frest", b"data: {}\n\n"])
def test_a_length_that_no_frame_has(begin: bytes) -> None:
    with pytest.raises(ValueError, match="which none has"):
        objects(begin)


def test_much_that_comes_in_little_pieces_is_not_joined_each_time() -> None:
    text = "x" * (1 << 20)
    stream = bedrock.event("contentBlockDelta", contentBlockIndex=0, delta={"text": text})
    assert len(stream) < MOST_BYTES
    pieces = [stream[at : at + 64] for at in range(0, len(stream), 64)]
    (found,) = objects(*pieces)
    assert found["contentBlockDelta"]["delta"]["text"] == text


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("throttlingException", 429, ErrorClass.rate_limit),
        ("validationException", 400, ErrorClass.bad_request),
        ("modelStreamErrorException", 424, ErrorClass.server_error),
        ("internalServerException", 500, ErrorClass.server_error),
        ("serviceUnavailableException", 503, ErrorClass.overloaded),
        ("somethingNewException", 502, ErrorClass.server_error),
    ],
)
def test_an_exception_is_an_error_of_its_class(name: str, status: int, kind: ErrorClass) -> None:
    with pytest.raises(APIError) as raised:
        objects(bedrock.exception(name, "It went wrong"))
    error = raised.value
    assert (error.status, error.error_class, error.message) == (status, kind, "It went wrong")


def test_what_came_before_an_exception_is_given() -> None:
    events = EventStreamObjects("aws").feed(STREAM + bedrock.exception("throttlingException", "x"))
    given = [next(events) for _ in EVENTS]
    assert [list(each) for each in given] == [list(each) for each in EVENTS]
    with pytest.raises(APIError):
        next(events)


def test_an_error_that_is_no_exception() -> None:
    headers = {":message-type": "error", ":error-code": "InternalError", ":error-message": "Oh"}
    with pytest.raises(APIError, match="Oh"):
        objects(bedrock.frame(headers, b""))


def test_an_exception_without_words() -> None:
    headers = {":message-type": "exception", ":exception-type": "throttlingException"}
    with pytest.raises(APIError, match="without a message") as raised:
        objects(bedrock.frame(headers, b""))
    assert raised.value.status == 429


def test_what_is_neither_is_passed_over() -> None:
    assert objects(bedrock.frame({":message-type": "news"}, b"{}") + STREAM) == EVENTS


def test_a_payload_that_is_no_object() -> None:
    frame = bedrock.frame({":message-type": "event", ":event-type": "x"}, b"[]")
    with pytest.raises(ValueError, match="expected a JSON object"):
        objects(frame)
