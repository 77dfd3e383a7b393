"""Server-sent events, as the standard has them."""

from __future__ import annotations

import pytest

from llama_compat.wire.sse import Decoder, Event, EventTooLargeError


def decoded(*chunks: bytes) -> list[Event]:
    decoder = Decoder()
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
    # What the end leaves without its blank line.
    (b"data: a\n\ndata: b", [Event(b"a"), Event(b"b")]),
]


@pytest.mark.parametrize(("stream", "events"), STREAMS)
def test_events_are_the_same_wherever_they_are_cut(stream: bytes, events: list[Event]) -> None:
    assert decoded(stream) == events
    assert decoded(*(bytes([byte]) for byte in stream)) == events
    for cut in range(len(stream)):
        assert decoded(stream[:cut], stream[cut:]) == events


def test_an_event_without_an_end_is_too_large_in_the_end() -> None:
    decoder = Decoder(max_event_bytes=100)
    assert not decoder.feed(b"data: xxx\n" * 11)
    with pytest.raises(EventTooLargeError, match="100"):
        decoder.feed(b"data: xxxx\n")
