"""Names of those who say chat messages, for vendors that take none."""

from __future__ import annotations

from msgspec import Raw

from llama_compat.wire.json_fields import parse_object, to_raw, with_items

_TOOL = Raw(b'"tool"')


def without_speakers(messages: Raw) -> Raw:
    """The `messages` of a request without the names of those who say them. What a tool says keeps
    the tool's, all else its bytes, and so do messages that are none; the very same, if there are
    none."""
    if b'"name"' not in bytes(messages):
        return messages
    return with_items(
        messages,
        lambda items: [
            _without_speaker(item) if b'"name"' in bytes(item) else item for item in items
        ],
    )


def _without_speaker(item: Raw) -> Raw:
    message = parse_object(item)
    if message.get("role") == _TOOL or message.pop("name", None) is None:
        return item
    return to_raw(message)
