"""The events of a stream as bytes, numbered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_compat.wire.json_fields import encode_json

OBFUSCATED_SIZE = 32
"""With obfuscation, every delta is filled up to a multiple of as many characters."""

LAST_EVENTS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
"""The last event of a response. `[DONE]` may follow it, and is none."""


class EventWriter:
    """Writes events; each says its type twice and has the next number, from `first` on."""

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def event(self, type: str, members: Mapping[str, Any]) -> bytes:
        """One event with these members."""
        body = encode_json({"type": type, "sequence_number": self._next, **members})
        self._next += 1
        return b"event: %b\ndata: %b\n\n" % (type.encode(), body)

    def delta(self, template: DeltaTemplate, text: str, rest: bytes = b"") -> bytes:
        """One event of `template` with `text`, and `rest` before its closing brace."""
        number = self._next
        self._next += 1
        return b"%b%d%b%b%b%b}\n\n" % (
            template.head,
            number,
            template.members,
            encode_json(text),
            template.tail,
            rest,
        )


class DeltaTemplate:
    """All that is the same in the deltas of one part.

    Args:
        type: the events' type.
        members: of each, before the delta.
        tail: JSON members that follow it, each with a comma before it.
    """

    __slots__ = ("head", "members", "tail")

    def __init__(self, type: str, members: Mapping[str, Any], tail: bytes = b"") -> None:
        name = type.encode()
        self.head = b'event: %b\ndata: {"type":"%b","sequence_number":' % (name, name)
        self.members = b",%b," % encode_json(members)[1:-1] + b'"delta":'
        self.tail = tail


def obfuscation(text: str, random: str) -> bytes:
    """The member that hides how long `text` is, out of `OBFUSCATED_SIZE` random characters."""
    return b',"obfuscation":"%b"' % random[: -len(text) % OBFUSCATED_SIZE].encode()
