"""AWS's framing of streams, `application/vnd.amazon.eventstream`: bytes in, objects out.

https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html and botocore, which
checks the two sums of each frame and reads its headers (2026-11-23).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import error as StructError
from typing import Any

from botocore.eventstream import EventStreamBuffer, ParserError

from llama_compat.errors import APIError
from llama_compat.wire.json_fields import to_raw
from llama_compat.wire.json_lines import decode_object
from providers.remote.upstream.vendor_errors import error_in_stream

LEAST_BYTES = 16
"""A frame without headers and payload: two lengths and two sums."""

MOST_BYTES = 24 * 1024 * 1024 + 128 * 1024 + LEAST_BYTES
"""What AWS allows for a payload and for headers."""

_LENGTH_BYTES = 4


class EventStreamObjects:
    """Takes a stream apart: of each event an object, `{NAME: PAYLOAD}`.

    Args:
        provider: its id, for messages.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = _LENGTH_BYTES

    def feed(self, chunk: bytes) -> Iterator[Mapping[str, Any]]:
        """The objects of the frames that `chunk` completes.

        Raises:
            APIError: a frame tells of an exception: with its own status.
            ValueError: a frame is damaged, or no JSON object.
        """
        self._pieces.append(chunk)
        self._held += len(chunk)
        if self._held < self._wanted:
            return
        data, at = b"".join(self._pieces), 0
        self._wanted = _LENGTH_BYTES
        while len(data) - at >= _LENGTH_BYTES:
            length = int.from_bytes(data[at : at + _LENGTH_BYTES])
            if not LEAST_BYTES <= length <= MOST_BYTES:
                raise ValueError(f"the stream holds a frame of {length} bytes, which none has")
            if len(data) - at < length:
                self._wanted = length
                break
            yield from self._objects(data[at : at + length])
            at += length
        self._pieces, self._held = [data[at:]], len(data) - at

    def flush(self) -> Iterator[Mapping[str, Any]]:
        """Nothing: a frame that is not whole says nothing."""
        return iter(())

    def _objects(self, frame: bytes) -> Iterator[Mapping[str, Any]]:
        buffer = EventStreamBuffer()
        buffer.add_data(frame)
        try:
            message = next(buffer)
        except (ParserError, StructError, KeyError, IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"the stream holds a frame that is damaged: {error!r}") from None
        headers, payload = message.headers, message.payload
        match headers.get(":message-type"):
            case "event":
                yield {str(headers.get(":event-type")): decode_object(payload)}
            case "exception":
                raise self._exception(str(headers.get(":exception-type")), payload)
            case "error":
                said = to_raw({"message": str(headers.get(":error-message") or "")})
                raise self._exception(str(headers.get(":error-code")), bytes(said))

    def _exception(self, name: str, payload: bytes) -> APIError:
        try:
            said: Mapping[str, Any] = decode_object(payload)
        except ValueError:
            said = {}
        message = said.get("message") or said.get("Message") or f"{name} without a message"
        error = {"type": name[:1].upper() + name[1:], "message": message}
        return error_in_stream(self._provider, bytes(to_raw({"error": error})))
