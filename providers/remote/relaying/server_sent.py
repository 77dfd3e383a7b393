"""A stream of server-sent events on its way to the client, whatever is in them."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from llama_compat.errors import upstream_error
from llama_compat.wire import sse
from llama_compat.wire.json_fields import JSONFields, is_empty, parse_fields, parse_object
from providers.remote.relaying.streams import RelayedStream
from providers.remote.upstream.vendor_errors import error_in_stream, makes_no_sense, says_error_in


def meant_events(event: sse.Event) -> list[sse.Event]:
    """The event, or those that its lines are: some servers forget the blank lines in between."""
    data = event.data
    if data is None or b"\n" not in data or event.name == b"error":
        return [event]
    try:
        parse_fields(data)
    except ValueError:
        return [sse.Event(line, event.name) for line in data.split(b"\n") if line.strip()]
    return [event]


def part_says_something(fields: JSONFields, *places: str) -> bool:
    """Whether an event about a part of a reply has content: a text that has not begun has none, the
    name of a tool is some.

    Args:
        fields: the members of the event.
        places: one of them has the part, or what is new of it.
    """
    place = next((name for name in places if name in fields), None)
    if place is None:
        return False
    try:
        said = parse_object(fields[place])
    except ValueError:
        return True  # what is not known here is the client's to read
    return any(not is_empty(value) for name, value in said.items() if name != "type")


def plain_events(names: bytes) -> re.Pattern[bytes]:
    """One and more whole events of these names, each with an object in which there is no control
    character: JSON has none in its strings, and clients fail over it.

    Args:
        names: a pattern of them.
    """
    return re.compile(rb"(?:event: (?:%b)\ndata: \{[^\x00-\x1f]*\}\n\n)+" % names)


class ServerSentStream(RelayedStream):
    """Cuts what comes into events: bytes in, cut anywhere, and what the client gets of them out."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._decoder = sse.EventDecoder()

    @abstractmethod
    def quick(self, chunk: bytes, position: int, out: list[bytes]) -> int:
        """Put into `out` what can be told without a look at each event, from `position` on, where
        one begins; the position after it."""

    @abstractmethod
    def relay_event(self, event: sse.Event, data: bytes) -> bytes:
        """What the client gets for an event with this data; empty for one that it does not get.

        Raises:
            APIError: it makes no sense, or the vendor says in it what went wrong.
        """

    def push(self, chunk: bytes, out: list[bytes]) -> None:
        """See `RelayedStream`."""
        if not chunk:
            last = self._decoder.flush()
            self._relay([last] if last is not None else [], out)
            return
        position = 0
        while position < len(chunk) and not self.ended:
            if self._decoder.between_events:
                position = self.quick(chunk, position, out)
                position = sse.behind_blank_lines(chunk, position)
                if position == len(chunk):
                    return
            end = chunk.find(b"\n\n", position) + 2
            if end < 2:
                end = len(chunk)
            self._feed(chunk[position:end], out)
            position = end

    def _feed(self, chunk: bytes, out: list[bytes]) -> None:
        try:
            events = self._decoder.feed(chunk)
        except sse.EventTooLargeError as error:
            raise upstream_error(self._provider, f"{error}.") from None
        self._relay(events, out)

    def _relay(self, events: Sequence[sse.Event], out: list[bytes]) -> None:
        for event in events:
            if self.ended:
                return
            data = event.data
            if relayed := self._comment(event) if data is None else self.relay_event(event, data):
                self.begun = True
                out.append(relayed)

    def _comment(self, event: sse.Event) -> bytes:
        """An event without data: none before the first that has some, as the client's headers wait
        for that one."""
        shown = self.begun and event.comment is not None
        return sse.encode_comment(event.comment or b"") if shown else b""

    def _members(
        self, data: bytes, name: bytes, is_error: Callable[[JSONFields], bool] = says_error_in
    ) -> JSONFields:
        """The members of an event's object.

        Args:
            data: the object, as it came.
            name: the event's.
            is_error: whether an object with these members says what went wrong.

        Raises:
            APIError: the vendor says in it what went wrong, or it is no object.
        """
        try:
            fields = parse_fields(data)
        except ValueError as error:
            if name == b"error":
                raise error_in_stream(self._provider, data) from None
            raise makes_no_sense(self._provider, error) from None
        if name == b"error" or is_error(fields):
            raise error_in_stream(self._provider, data)
        return fields


class NamedEventsStream(ServerSentStream):
    """A stream whose events have names; nearly all of them pass without a look inside.

    `[DONE]`, which is OpenAI's way to end a stream, says in it no more than that nothing follows.
    """

    plain: ClassVar[re.Pattern[bytes]]
    """Any number of whole events of which nobody needs to know what is in them."""

    search: ClassVar[bytes]
    """What has this in it is looked into all the same: the vendor searches."""

    def quick(self, chunk: bytes, position: int, out: list[bytes]) -> int:
        """Pass on what needs no look inside."""
        plain = self.plain.match(chunk, position) if self.spoken else None
        if plain is None or self.search in plain[0] or not sse.is_utf8(plain[0]):
            return position
        out.append(plain[0])
        return plain.end()

    def relay_event(self, event: sse.Event, data: bytes) -> bytes:
        """What the client gets for an event with this data; empty for one that it does not get."""
        if event.is_done:
            self.ended = self.complete
            return b""
        return self.relay_members(event, data, self._members(data, event.name))

    @abstractmethod
    def relay_members(self, event: sse.Event, data: bytes, fields: JSONFields) -> bytes:
        """The same, of an event whose data has these members.

        Raises:
            APIError: it makes no sense.
        """
