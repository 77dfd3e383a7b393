"""What is around the responses of a stream: server-sent events, or one array."""

from __future__ import annotations

from typing import Protocol

from llama_compat.dialects.gemini.errors import render_error
from llama_compat.errors import APIError


class Frame(Protocol):
    """The frame of one stream."""

    def response(self, encoded: bytes) -> bytes:
        """One of the stream's responses, which is one line of JSON, in its frame."""
        ...

    def fail(self, error: APIError) -> bytes:
        """An error in its frame, and the stream's end."""
        ...


class EventFrame:
    """The frame of a stream with `alt=sse`."""

    def response(self, encoded: bytes) -> bytes:
        """One event."""
        return b"data: %b\r\n\r\n" % encoded

    def fail(self, error: APIError) -> bytes:
        """An event with the error."""
        return self.response(in_one_line(render_error(error, "")))


class ArrayFrame:
    """The frame of a stream without `alt=sse`: an array, whose items come one after another."""

    END = b"]"

    def __init__(self) -> None:
        self._begun = False

    def response(self, encoded: bytes) -> bytes:
        """One item, and what is before it."""
        before = b",\r\n" if self._begun else b"["
        self._begun = True
        return before + encoded

    def fail(self, error: APIError) -> bytes:
        """An item with the error, and the array's end."""
        return self.response(in_one_line(render_error(error, ""))) + self.END


def in_one_line(encoded: bytes) -> bytes:
    """JSON without its line breaks, which it has only where it may have blanks."""
    if b"\n" not in encoded and b"\r" not in encoded:
        return encoded
    return encoded.replace(b"\r", b" ").replace(b"\n", b" ").strip()
