"""Server-sent events, as the standard has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.wire.sse import (
    Event,
    EventDecoder,
    EventTooLargeError,
    behind_blank_lines,
    objects_in,
)


def decoded(*chunks: bytes) -> list[Event]:
    decoder = EventDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    last = decoder.flush()
    return events if last is None else [*events, last]


STREAMS = [
    (b"data: a\n\ndata: b\n\n", [Event(b"a"), Event(b"b")]),
    (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [Event(b"a"), Event(b"b"), Event(b"c")]),
    (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
    (b"data:a\n\ndata:  b\n\n", [Event(b"a"), Event(b" b")]),
    (b"data: a\ndata: b\ndata:\n\n", [Event(b"a\nb\n")]),
    (b"event: x\nid: 7\nretry: 10\nodd\ndata: a\n\n", [Event(b"a", b"x")]),
    (
        b": note\ndata: a\n:\n\n",
        [Event(None, comment=b" note"), Event(None, comment=b""), Event(b"a")],
    ),
    # Empty data is no event.
    (b"data:\n\ndata: \n\ndata\n\n\n\ndata: a\n\n", [Event(b"a")]),
    (b"event: ping\n\ndata: a\n\n", [Event(None, b"ping"), Event(b"a")]),
    (
        b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\ndata: 3\n\n",
        [Event(b"1", b"a"), Event(b"2", b"b"), Event(b"3")],
    ),
    (b"event: a\ndata: \n\nevent: \ndata: 1\n\n", [Event(None, b"a"), Event(b"1")]),
    (b"event: a\nevent: b\ndata: 1\n\n", [Event(b"1", b"b")]),
    (b"event: a\ndata: 1\ndata: 2\n\n", [Event(b"1\n2", b"a")]),
    # What the end leaves without its blank line.
    (b"data: a\n\ndata: b", [Event(b"a"), Event(b"b")]),
]


@pytest.mark.parametrize(("stream", "events"), STREAMS)
def test_events_are_the_same_wherever_they_are_cut(stream: bytes, events: list[Event]) -> None:
    assert decoded(stream) == events
    assert decoded(*(bytes([byte]) for byte in stream)) == events
    for cut in range(len(stream)):
        assert decoded(stream[:cut], stream[cut:]) == events


lines = st.sampled_from(
    [b"data: 1", b"data: ", b"data:2", b"event: a", b"event: ", b"event:b", b":c", b"id: 1", b""]
)


@given(st.lists(lines, max_size=12), st.data())
def test_what_is_quick_is_the_same(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    slow = decoded(*(bytes([byte]) for byte in stream))
    assert decoded(stream) == slow
    cut = data.draw(st.integers(0, len(stream)))
    assert decoded(stream[:cut], stream[cut:]) == slow


def test_an_event_without_an_end_is_too_large_in_the_end() -> None:
    decoder = EventDecoder(max_event_bytes=100)
    assert not decoder.feed(b"data: xxx\n" * 11)
    with pytest.raises(EventTooLargeError, match="100"):
        decoder.feed(b"data: xxxx\n")


def test_blank_lines_are_passed_over() -> None:
    events = b"\n\r\n\r" + b"\n" * 1000 + b"data: 1\n\n"
    begin = behind_blank_lines(events, 0)
    assert events[begin:] == b"data: 1\n\n"
    assert behind_blank_lines(events, begin) == begin
    assert behind_blank_lines(events, len(events)) == len(events)


def test_of_a_stream_the_objects_are_taken_alone() -> None:
    stream = b': note\n\ndata: [1]\n\ndata:  {"a": 1}\n\ndata: 2\n\ndata: [DONE]\n\n'
    assert [*objects_in(stream)] == [b' {"a": 1}']
