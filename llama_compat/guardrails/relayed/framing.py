"""Where the events of a stream that is relayed begin and end, and what in one is its JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llama_compat.wire import sse

_EVENT = re.compile(rb"(?:[^\r\n][^\n]*\n)*(?:\r?\n)*")
"""A server-sent event, and the blank lines behind it."""

_LINE = re.compile(rb"[^\n]*\n?")
"""A line of JSON."""

DATA = re.compile(rb"((?:(?:event|id):[^\n]*\n)*(?:data: ?)?)(\{[^\n]*\})(\s*)")
"""What is before an event's JSON, that, and what is behind it."""


def end_of_event(events: bytes, at: int) -> int:
    """Where the event ends that begins at `at`."""
    match = (_LINE if events[at : at + 1] == b"{" else _EVENT).match(events, at)
    return len(events) if match is None or match.end() == at else match.end()


def one_lined(raw: bytes) -> Iterator[bytes | None]:
    """The events in `raw` as `DATA` has them, such as those of several lines of data; None for what
    is no JSON."""
    decoder = sse.EventDecoder()
    for each in (*decoder.feed(raw), decoder.flush()):
        data = None if each is None else each.data
        if each is not None and data is not None and data.lstrip()[:1] == b"{":
            head = b"event: %b\n" % each.name if each.name else b""
            line = b"%bdata: %b\n\n" % (head, data.replace(b"\n", b" ").replace(b"\r", b" "))
            if DATA.fullmatch(line) is not None:
                yield line
                continue
        if each is not None:
            yield None
