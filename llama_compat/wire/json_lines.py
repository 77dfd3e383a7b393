"""JSON objects in a byte stream, each ended by one separator byte, cut anywhere.

Ollama ends each with a line feed (NDJSON), FastChat's workers with a NUL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from llama_compat.wire.json_fields import from_raw

NEWLINE = b"\n"
NUL = b"\0"


class LineTooLongError(ValueError):
    """A line grew past the decoder's limit."""


class JSONLines:
    """Bytes in, objects out as soon as they are complete. Linear in the bytes.

    Blank lines, and the carriage return of a CRLF, are skipped.

    Args:
        separator: the byte that ends each object, `NEWLINE` or `NUL`.
        max_line_bytes: a longer line raises `LineTooLongError`.
    """

    def __init__(self, separator: bytes = NEWLINE, *, max_line_bytes: int = 1 << 25) -> None:
        self._separator = separator
        self._max_line_bytes = max_line_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """The objects that `chunk` completes, which have to be taken before more is fed.

        Raises (after the objects before it):
            ValueError: a line is not a JSON object; the message says why.
            LineTooLongError: a line, complete or not, is over the limit.
        """
        for end in ends_of_lines(chunk, self._separator):
            self._hold(end)
            yield from self.flush()
        self._hold(chunk[chunk.rfind(self._separator) + 1 :])

    def flush(self) -> Iterator[dict[str, Any]]:
        """The object, if any, that the end of the stream left without its separator.

        Raises:
            ValueError: what is left is not a whole JSON object: the stream was cut.
        """
        line = b"".join(self._pieces).strip()
        self._pieces, self._size = [], 0
        if line:
            yield decode_object(line)

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max_line_bytes:
            raise LineTooLongError(f"a line is longer than {self._max_line_bytes} bytes")
        if piece:
            self._pieces.append(piece)


def ends_of_lines(chunk: bytes, separator: bytes) -> Iterator[bytes]:
    """What `chunk` has of each line that it ends, but for those that are blank: of what is
    compressed a few bytes are millions of them, which nobody should have to look at one by one."""
    first, *others = chunk.split(separator)
    if others:
        del others[-1]  # it has no end yet
        yield first
        yield from filter(bytes.strip, others)


def decode_object(line: bytes) -> dict[str, Any]:
    """The JSON object `line`.

    Raises:
        ValueError: it is none; the message says why.
    """
    value = from_raw(Raw(line))
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value
