"""Server-sent events as bytes (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

DONE = b"data: [DONE]\n\n"
"""How OpenAI ends a stream."""

_DONE = b"[DONE]"

_BOM = b"\xef\xbb\xbf"

_BLANK_LINES = re.compile(rb"[\r\n]+")

_CONTROL_CHARACTERS = bytes(each for each in range(0x20) if each != 0x0A)


class Event(NamedTuple):
    """One event, or one comment line.

    Attributes:
        data: the `data` lines, joined by a line feed; None for a comment, and for an event whose
            data is empty, which says nothing.
        name: the `event` field, empty for the usual unnamed event.
        comment: what follows the colon of a comment line; None for an event.
    """

    data: bytes | None
    name: bytes = b""
    comment: bytes | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is the one that ends OpenAI's streams, as loosely as some vendors write it."""
        return self.data is not None and self.data.lstrip().startswith(_DONE)


def encode_data(json: bytes) -> bytes:
    """One unnamed event whose data is `json`, which has no line breaks."""
    return b"data: %b\n\n" % json


def encode_comment(comment: bytes = b"") -> bytes:
    """One comment, which clients ignore: it keeps a connection alive."""
    return b":%b\n\n" % comment


def is_utf8(events: bytes) -> bool:
    """Whether they are text, as a stream has to be: clients fail over one that is not."""
    if events.isascii():
        return True
    try:
        events.decode()
    except UnicodeDecodeError:
        return False
    return True


def has_control_characters(events: bytes) -> bool:
    """Whether there are any but line feeds, which JSON has in no string: clients fail over them."""
    return len(events.translate(None, _CONTROL_CHARACTERS)) < len(events)


def behind_blank_lines(chunk: bytes, position: int) -> int:
    """The place behind the blank lines at `position`, where an event would begin: they say nothing,
    and of what is compressed a few bytes are millions of them."""
    blank = _BLANK_LINES.match(chunk, position)
    return position if blank is None else blank.end()


def last_data(body: bytes) -> bytes:
    """The data of the last event that has any on one line, but for `[DONE]`; empty for none.

    Args:
        body: a stream from its beginning.
    """
    end = len(body)
    while end > 0:
        at = body.rfind(b"data:", 0, end)
        if at < 0:
            break
        if not at or body[at - 1] in b"\r\n":
            data = body[at + 5 :].splitlines()[0].strip() if at + 5 < len(body) else b""
            if data and not data.startswith(_DONE):
                return data
        end = at
    return b""


def objects_in(body: bytes) -> Iterator[bytes]:
    """The data of a stream's events that are JSON objects, as far as the stream has come.

    Raises (from the generator):
        EventTooLargeError: one is larger than `EventDecoder` takes.
    """
    for event in EventDecoder().feed(body):
        if event.data is not None and event.data.lstrip()[:1] == b"{":
            yield event.data


class EventTooLargeError(ValueError):
    """An event grew past the decoder's limit."""


class EventDecoder:
    """Bytes in, cut anywhere; events out as soon as they are complete. Linear in the bytes.

    Lines may end in LF, CRLF or CR. A byte order mark at the very start is skipped; `id`, `retry`
    and unknown fields are ignored.

    Args:
        max_event_bytes: a longer event raises `EventTooLargeError`.
    """

    def __init__(self, max_event_bytes: int = 1 << 25) -> None:
        self._max_event_bytes = max_event_bytes
        self._size = 0
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._at_start = True
        self._after_carriage_return = False

    @property
    def between_events(self) -> bool:
        """Whether what comes next begins an event."""
        return not (self._line or self._data or self._name)

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes.

        Raises:
            EventTooLargeError: an event, complete or not, is over the limit.
        """
        if not chunk:
            return []
        if self._after_carriage_return:
            self._after_carriage_return = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if self._at_start:
            chunk = self._skip_byte_order_mark(chunk)
        events: list[Event] = []
        if self.between_events and b"\r" not in chunk:
            chunk = _take_simple_events(chunk, events)
        if chunk:
            self._take_lines(chunk, events)
        return events

    def flush(self) -> Event | None:
        """The event that the end of the stream left without its blank line, if there is one."""
        if self._line:
            self._end_line([])
        return self._dispatch()

    def _skip_byte_order_mark(self, chunk: bytes) -> bytes:
        begun = b"".join((*self._line, chunk))
        if len(begun) < len(_BOM) and _BOM.startswith(begun):
            self._line = [begun]
            return b""
        self._line = []
        self._at_start = False
        return begun.removeprefix(_BOM)

    def _take_lines(self, chunk: bytes, events: list[Event]) -> None:
        self._after_carriage_return = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):
            content = line.rstrip(b"\r\n")
            self._line.append(content)
            self._size += len(content)
            if self._size > self._max_event_bytes:
                raise EventTooLargeError(
                    f"a server-sent event is larger than {self._max_event_bytes} bytes"
                )
            if len(content) < len(line):
                self._end_line(events)

    def _end_line(self, events: list[Event]) -> None:
        line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
        self._line = []
        if not line:
            event = self._dispatch()
            if event is not None:
                events.append(event)
            return
        field, _, value = line.partition(b":")
        if not field:
            events.append(Event(None, comment=value))
            return
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value

    def _dispatch(self) -> Event | None:
        data, name = self._data, self._name
        self._data, self._name, self._size = [], b"", 0
        if any(data):
            return Event(data[0] if len(data) == 1 else b"\n".join(data), name)
        return Event(None, name) if name else None


def _take_simple_events(chunk: bytes, events: list[Event]) -> bytes:
    """Take what nearly every vendor sends, `data: ...` and a blank line, with or without a line
    `event: ...` before it; the rest comes back."""
    begin = 0
    while True:
        name, data = b"", begin
        if chunk.startswith(b"event: ", begin):
            line_end = chunk.find(b"\n", begin)
            if line_end < 0:
                break
            name, data = chunk[begin + 7 : line_end], line_end + 1
        if not chunk.startswith(b"data: ", data):
            break
        end = chunk.find(b"\n", data)
        if end < 0 or chunk[end + 1 : end + 2] != b"\n":
            break
        if end > data + 6:
            events.append(Event(chunk[data + 6 : end], name))
        elif name:
            events.append(Event(None, name))
        begin = end + 2
    return chunk[begin:] if begin else chunk
