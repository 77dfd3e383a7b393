"""Requests whose bytes came before, and that are answered as they were then, without being read.

    the application  --- REPEAT: repeat(again) --->  exchange: notes what it sends
                                                        |
    the same bytes, on any connection  <--- again() ----+   None: they are read after all

Whoever answers a request offers that. It is asked each time whether it still holds.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from msgspec import Struct

from routing.asgi import RawHeaders

MAX_REQUEST_BYTES = 32 * 1024
"""Of a request that is remembered, its head and its body; it has to come in one piece."""

MAX_ANSWER_BYTES = 64 * 1024
"""Of its answer; a longer one takes far longer to be sent than its request to be read."""

REPEAT_BYTES = 1024
"""What is remembered of a request takes about so much besides its bytes and its answer's."""

REMEMBERED_BYTES = 16 << 20
"""What all that is remembered may come to, twice."""


class Repeatable(Protocol):
    """What says whether a request is answered again as it was before.

    Attributes:
        varying: the names of the answer's headers that are another each time, in lower case.
    """

    varying: Set[bytes]

    def again(self) -> RawHeaders | None:
        """Note that one more such request has come and was answered; the `varying` headers of its
        answer. None where it has to be read: then nothing is noted."""
        ...


class Repeat(Struct, frozen=True, eq=False):
    """A request that may come again.

    Attributes:
        source: is asked whether it is answered as before.
        head: the lines of the answer's head but for the varying and the server's own.
        body: as it was sent, in chunks where it was in chunks.
    """

    source: Repeatable
    head: bytes
    body: bytes


class Repeats:
    """The requests of one process that may come again, by their bytes.

    Two generations of them: the older one is forgotten as soon as the newer is full.
    """

    def __init__(self) -> None:
        self._newer: dict[bytes, Repeat] = {}
        self._older: dict[bytes, Repeat] = {}
        self._bytes = 0

    def find(self, data: bytes) -> Repeat | None:
        """What is known of a request that is `data`."""
        found = self._newer.get(data)
        if found is None and self._older and (found := self._older.get(data)) is not None:
            self.keep(data, found)
        return found

    def keep(self, data: bytes, repeat: Repeat) -> None:
        """Remember a request that is `data`."""
        if self._bytes > REMEMBERED_BYTES:
            self._older, self._newer, self._bytes = self._newer, {}, 0
        if data not in self._newer:
            self._bytes += len(data) + len(repeat.head) + len(repeat.body) + REPEAT_BYTES
        self._newer[data] = repeat

    def forget(self, data: bytes) -> None:
        """Have a request that is `data` be read the next time."""
        self._newer.pop(data, None)
        self._older.pop(data, None)
