"""What was read of requests, by their bytes: the same bytes are not read twice."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from llama_compat.dialects.base import Asked
from llama_compat.wire.json_fields import JSONFields

MAX_BYTES = 32 * 1024
"""Of a request that is remembered; a longer one takes far longer to be answered than to be read."""

READING_BYTES = 4096
"""What is made of a request, besides its bytes, takes about so much."""

REMEMBERED_BYTES = 8 << 20
"""What all that is remembered may come to, twice."""


Sent = tuple[str, str, bytes, bytes]
"""What a reading depends on: the operation, the path, which may say more, the query, and all that
the client sent."""


class Reading(Struct, eq=False, gc=False):
    """One request.

    Attributes:
        fields: the members of its JSON object.
        asked: what its dialect has seen in them.
        known: what layers know of a request with these bytes, each by what else it depends on;
            None for nothing. Whoever puts something there bounds how much that is.
    """

    fields: JSONFields
    asked: Asked
    known: dict[object, Any] | None = None


class Readings:
    """The readings of one runtime.

    Two generations of them: the older one is forgotten as soon as the newer is full. What is asked
    for again moves from the one to the other.
    """

    def __init__(self) -> None:
        self._newer: dict[Sent, Reading] = {}
        self._older: dict[Sent, Reading] = {}
        self._bytes = 0

    def find(self, sent: Sent) -> Reading | None:
        """What was read of these bytes."""
        found = self._newer.get(sent)
        if found is None and (found := self._older.get(sent)) is not None:
            self.keep(sent, found)
        return found

    def keep(self, sent: Sent, reading: Reading) -> None:
        """Remember what was read; nothing of a long request."""
        size = len(sent[-1])
        if size > MAX_BYTES:
            return
        if self._bytes > REMEMBERED_BYTES:
            self._older, self._newer, self._bytes = self._newer, {}, 0
        self._newer[sent] = reading
        self._bytes += size + READING_BYTES
