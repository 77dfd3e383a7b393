"""Server-sent events whose data are JSON objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llama_compat.wire import sse
from llama_compat.wire.json_lines import decode_object
from providers.remote.upstream.vendor_errors import error_in_stream, says_error


class JSONEvents:
    """Bytes in, cut anywhere; the objects of the events out as soon as they are complete.

    Args:
        provider: its id, for messages.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._decoder = sse.EventDecoder()

    def feed(self, chunk: bytes) -> Iterator[Mapping[str, Any]]:
        """The objects of the events that `chunk` completes.

        Raises:
            APIError: an event is the vendor's error; its own status if it names one, else 502.
            ValueError: an event's data is no JSON object.
        """
        return self._objects(self._decoder.feed(chunk))

    def flush(self) -> Iterator[Mapping[str, Any]]:
        """The object of the event that the stream's end left without its blank line; as `feed`."""
        event = self._decoder.flush()
        return self._objects([event] if event is not None else ())

    def _objects(self, events: Iterable[sse.Event]) -> Iterator[Mapping[str, Any]]:
        for event in events:
            if event.data is None or event.is_done:
                continue
            try:
                value = decode_object(event.data)
            except ValueError as error:
                raise ValueError(f"an event of its stream is no JSON object: {error}") from None
            if says_error(value.get("error")):
                raise error_in_stream(self._provider, event.data)
            yield value
