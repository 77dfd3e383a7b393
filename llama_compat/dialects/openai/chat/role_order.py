"""Roles of chat messages in the order in which Mistral's models take them.

After what a tool has given comes what their model says of it: "Unexpected role 'user' after role
'tool'", wherever they are served (zed-industries/zed#37021, NousResearch/hermes-agent#20154,
mistralai/mistral-vibe#578). Clients of other APIs, which take both in one turn, say something with
each result: Claude Code its reminders, and every agent whose user breaks in. And what the model is
to go on with has to be called that: "Expected last role User or Tool (or Assistant with prefix
True) for serving but got assistant" (NEKOparapa/AiNiee#641). Read on 2026-11-28.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from llama_compat.wire.json_fields import parse_object, to_raw

FAMILY = "mistral"
"""Whose models they are, as `llama_compat.catalog.makers.reasoning_family` calls them."""

_BRIDGE = to_raw({"role": "assistant", "content": "OK."})
"""What the model is taken to have said of the results. It can't be nothing: "Assistant message must
have either content or tool_calls, but not none"."""


class _Message(Struct):
    role: str = ""
    prefix: bool | None = None


_items = msgspec.json.Decoder(list[Raw])
_message = msgspec.json.Decoder(_Message)


def with_role_order(messages: Raw, *, marks_prefix: bool) -> Raw:
    """The `messages` of a request in that order; all else keeps its bytes, and so do messages that
    are none.

    Args:
        messages: as the client sent them.
        marks_prefix: whether the vendor takes `prefix`, which is Mistral's own word.
    """
    try:
        items = _items.decode(messages)
        said = [_message.decode(item) for item in items]
    except (ValueError, RecursionError):
        return messages  # The vendor says better what is wrong with them.
    ordered: list[Raw] = []
    before = ""
    for item, message in zip(items, said, strict=True):
        if (before, message.role) == ("tool", "user"):
            ordered.append(_BRIDGE)
        ordered.append(item)
        before = message.role
    goes_on = marks_prefix and before == "assistant" and said[-1].prefix is None
    if goes_on:
        ordered[-1] = to_raw({**parse_object(items[-1]), "prefix": True})
    return messages if not goes_on and len(ordered) == len(items) else to_raw(ordered)
