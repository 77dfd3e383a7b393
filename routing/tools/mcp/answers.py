"""How much a server may say to one request: the SDK reads it as a whole, and makes an object of
each value in it."""

from __future__ import annotations

from llama_compat.off_loop import off_loop
from llama_compat.wire.json_skeleton import count_of, marks

MAX_BYTES = 16 << 20
"""Of one answer: a list of tools with all their schemas, or a result with its images."""

MAX_VALUES = 1 << 15
"""In the JSON of one answer: the SDK takes up to 0.4 s for so many, in which nothing else runs. For
16 MB of small ones it took 14 s, and 1.2 GB (AMD EPYC, 2026-11-24)."""

_BEGINNINGS = (b",", b"[", b"{")


class TooMuchSaid(Exception):
    """A server says more than it may; its text is for people."""


class AnswerBound:
    """Counts what a server says, however it comes: as JSON, as events, or as lines.

    Neither has a string that goes over the end of a line, so each line is counted by itself.
    """

    def __init__(self) -> None:
        self._size = 0
        self._values = 0
        self._begun: list[bytes] = []

    def renew(self) -> None:
        """Another answer begins; a line that has not ended is a part of it."""
        self._size = sum(map(len, self._begun))
        self._values = 0

    async def take(self, piece: bytes) -> list[bytes]:
        """Count more of it.

        Returns:
            the lines that are whole with it, without what ends them.

        Raises:
            TooMuchSaid: that is too much.
        """
        self._size += len(piece)
        if self._size > MAX_BYTES:
            raise TooMuchSaid(f"The answer is larger than {MAX_BYTES >> 20} MB.")
        *ended, rest = piece.split(b"\n")
        lines = []
        for each in ended:
            line = b"".join((*self._begun, each))
            self._begun.clear()
            await self._count(line)
            lines.append(line)
        if rest:
            self._begun.append(rest)
        return lines

    async def end(self) -> None:
        """It has ended, and its last line with it.

        Raises:
            TooMuchSaid: that was too much.
        """
        await self._count(b"".join(self._begun))

    async def _count(self, line: bytes) -> None:
        self._add(1 + line.count(b"\r"))
        # Events may end their lines so too.
        for part in line.split(b"\r"):
            self._add(await off_loop(len(part), _values, part))

    def _add(self, values: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise TooMuchSaid(f"The answer holds more than {MAX_VALUES:,} values.")


def _values(part: bytes) -> int:
    most = count_of(part, _BEGINNINGS)
    return count_of(marks(part), _BEGINNINGS) if most else 0
