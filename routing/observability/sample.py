"""What is remembered of the bytes of an answer: how it began, how it ended, and how long it was."""

from __future__ import annotations

HEAD_BYTES = 4096
"""Enough to tell how much of a stream is text."""

TAIL_PIECES = 4
"""The last events of a stream: why it ended, the usage, and what says that it is over."""


class Sample:
    """The beginning and the end of what was sent.

    Args:
        head_bytes: how much of the beginning.

    Attributes:
        pieces: what was sent last. Who has little time appends here, and calls `gather` once there
            are some; or else `add`, which does both.
    """

    __slots__ = ("_head", "_room", "_size", "_tail", "pieces")

    def __init__(self, head_bytes: int = HEAD_BYTES) -> None:
        self.pieces: list[bytes] = []
        self._head: list[bytes] = []
        self._room = head_bytes
        self._tail: list[bytes] = []
        self._size = 0

    def add(self, body: bytes) -> None:
        """Take what is sent next."""
        self.pieces.append(body)
        self.gather()

    def gather(self) -> None:
        """Keep of the pieces what is to be kept."""
        pieces = self.pieces
        self._size += sum(map(len, pieces))
        if self._room > 0:
            head = b"".join(pieces)[: self._room]
            self._head.append(head)
            self._room -= len(head)
        self._tail = (self._tail + pieces)[-TAIL_PIECES:]
        pieces.clear()

    @property
    def size(self) -> int:
        """How many bytes there were."""
        self.gather()
        return self._size

    @property
    def head(self) -> bytes:
        """How it began."""
        self.gather()
        return b"".join(self._head)

    @property
    def tail(self) -> bytes:
        """How it ended: the last pieces, whole."""
        self.gather()
        return b"".join(self._tail)


_FINISH_REASONS = (
    b'"finish_reason"',
    b'"stop_reason"',
    b'"finishReason"',
    b'"done_reason"',
    b'"status"',  # of a response of the Responses API: completed or incomplete
)

_USUAL = b'"finish_reason":"'
"""How it is written mostly: then there is one thing to look for."""

MAX_REASON = 80


def finish_reason(tail: bytes) -> str:
    """Why a reply ended, in the words of whichever client API it is in; empty if it does not say.

    Inside of a JSON string the quotes would have backslashes, so that it is never the model's own
    words that are found.
    """
    start = tail.rfind(_USUAL) + len(_USUAL)
    if start >= len(_USUAL):
        value = tail[start : start + MAX_REASON].partition(b'"')[0]
        return value.decode("utf-8", "replace")
    for name in _FINISH_REASONS:
        place = tail.rfind(name)
        while place >= 0:
            value = tail[place + len(name) : place + len(name) + MAX_REASON].lstrip(b": \t\r\n")
            if value.startswith(b'"'):
                return value[1:].partition(b'"')[0].decode(errors="replace")
            # `null`, as it is until the end.
            place = tail.rfind(name, 0, place)
    return ""
