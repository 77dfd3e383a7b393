"""Server-sent events whose data are JSON objects, or an answer that is none and ignores that a
stream was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Raw

from llama_compat.wire import sse
from llama_compat.wire.json_fields import from_raw
from llama_compat.wire.json_lines import decode_object
from providers.remote.relay import BLANK, NO_STREAM_BEGINS
from providers.remote.upstream_errors import error_in_answer, error_in_stream, no_json

MAX_WHOLE_BYTES = 1 << 25
"""Of a reply that should have been a stream; as much as one event of a stream may have."""


class JSONEvents:
    """Bytes in, cut anywhere; the objects of the events out as soon as they are complete.

    Args:
        provider: its id, for messages.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._decoder = sse.Decoder()
        self._begun = False
        self._whole: list[bytes] | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[Mapping[str, Any]]:
        """The objects of the events that `chunk` completes.

        Raises:
            APIError: an event is the vendor's error; its own status if it names one, else 502.
            ValueError: an event's data is no JSON object.
        """
        if not self._begun:
            chunk = chunk.lstrip(BLANK)
            self._begun = bool(chunk)
            if chunk[:1] in NO_STREAM_BEGINS:
                self._whole = []
        if self._whole is None:
            return self._objects(self._decoder.feed(chunk))
        self._whole.append(chunk)
        self._size += len(chunk)
        if self._size > MAX_WHOLE_BYTES:
            raise ValueError(f"a whole reply is larger than {MAX_WHOLE_BYTES} bytes")
        return iter(())

    def flush(self) -> Iterator[Mapping[str, Any]]:
        """The object of the event that the stream's end left without its blank line; as `feed`."""
        if self._whole is not None:
            return self._whole_objects(b"".join(self._whole))
        event = self._decoder.flush()
        return self._objects([event] if event is not None else ())

    def _whole_objects(self, body: bytes) -> Iterator[Mapping[str, Any]]:
        # Google answers with an array where `alt=sse` is not asked for, or not heeded.
        try:
            value = from_raw(Raw(body))
        except ValueError as error:
            raise no_json(self._provider, body, error) from None
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, dict):
                raise ValueError(f"expected JSON objects, got {type(each).__name__}")
            if each.get("error"):
                raise error_in_answer(self._provider, body)
            yield each

    def _objects(self, events: Iterable[sse.Event]) -> Iterator[Mapping[str, Any]]:
        for event in events:
            if event.data is None or event.data == b"[DONE]":
                continue
            value = decode_object(event.data)
            if value.get("error"):
                raise error_in_stream(self._provider, event.data)
            yield value
