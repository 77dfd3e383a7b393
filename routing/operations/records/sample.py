"""What is remembered of the bytes of an answer: how it began, how it ended, and how long it was."""

from __future__ import annotations

from collections import deque

HEAD_BYTES = 4096
"""Enough to tell how much of a stream is text."""

TAIL_PIECES = 4
"""The last events of a stream: why it ended, the usage, and what says that it is over."""


class Sample:
    """The beginning and the end of what was sent.

    Args:
        head_bytes: how much of the beginning.

    Attributes:
        size: how many bytes there were.
    """

    __slots__ = ("_head", "_room", "_tail", "size")

    def __init__(self, head_bytes: int = HEAD_BYTES) -> None:
        self._head: list[bytes] = []
        self._room = head_bytes
        self._tail: deque[bytes] = deque(maxlen=TAIL_PIECES)
        self.size = 0

    def add(self, body: bytes) -> None:
        """Take what is sent next."""
        self.size += len(body)
        self._tail.append(body)
        if self._room > 0:
            self._head.append(body[: self._room])
            self._room -= len(body)

    @property
    def head(self) -> bytes:
        """How it began."""
        return b"".join(self._head)

    @property
    def tail(self) -> bytes:
        """How it ended: the last pieces, whole."""
        return b"".join(self._tail)


_FINISH_REASONS = (
    b'"finish_reason"',
    b'"stop_reason"',
    b'"finishReason"',
    b'"done_reason"',
    b'"status"',  # of a response of the Responses API: completed or incomplete
)


def finish_reason(tail: bytes) -> str:
    """Why a reply ended, in the words of whichever client API it is in; empty if it does not say.

    Inside of a JSON string the quotes would have backslashes, so that it is never the model's own
    words that are found.
    """
    for name in _FINISH_REASONS:
        place = tail.rfind(name)
        while place >= 0:
            value = tail[place + len(name) : place + len(name) + 80].lstrip(b": \t\r\n")
            if value.startswith(b'"'):
                return value[1:].partition(b'"')[0].decode(errors="replace")
            # `null`, as it is until the end.
            place = tail.rfind(name, 0, place)
    return ""
