"""Names of those who say chat messages, for vendors that take none."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from llama_compat.wire.json_fields import parse_object, to_raw

_items = msgspec.json.Decoder(list[Raw])
_TOOL = Raw(b'"tool"')


def without_speakers(messages: Raw) -> Raw:
    """The `messages` of a request without the names of those who say them. What a tool says keeps
    the tool's, all else its bytes, and so do messages that are none; the very same, if there are
    none."""
    if b'"name"' not in bytes(messages):
        return messages
    try:
        items = _items.decode(messages)
        told = [_without_speaker(item) if b'"name"' in bytes(item) else item for item in items]
    except (ValueError, RecursionError):
        return messages  # The vendor says better what is wrong with them.
    if all(new is old for new, old in zip(told, items, strict=True)):
        return messages
    return to_raw(told)


def _without_speaker(item: Raw) -> Raw:
    message = parse_object(item)
    if message.get("role") == _TOOL or message.pop("name", None) is None:
        return item
    return to_raw(message)
