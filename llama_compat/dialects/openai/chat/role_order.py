"""Roles of chat messages in the order in which Mistral's models take them.

After what a tool has given comes what their model says of it: "Unexpected role 'user' after role
'tool'", wherever they are served (zed-industries/zed#37021, NousResearch/hermes-agent#20154,
mistralai/mistral-vibe#578). Clients of other APIs, which take both in one turn, say something with
each result: Claude Code its reminders, and every agent whose user breaks in. And what the model is
to go on with has to be called that: "Expected last role User or Tool (or Assistant with prefix
True) for serving but got assistant" (NEKOparapa/AiNiee#641). A reply that was stopped before it
said anything is left out: "Assistant message must have either content or tool_calls, but not none".
Instructions come before what the user says, "Unexpected role 'system' after role 'assistant'", and
are not all that there is; of a role `developer` they know nothing (mistral-common's
protocol/instruct/validator.py). Read on 2026-11-28.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import msgspec
from msgspec import Raw, Struct

from llama_compat.fitting.fit import INSTRUCTIONS
from llama_compat.wire.json_fields import parse_object, to_raw

FAMILY = "mistral"
"""Whose models they are, as `llama_compat.catalog.makers.reasoning_family` calls them."""

_BRIDGE = to_raw({"role": "assistant", "content": "OK."})
"""What the model is taken to have said of the results. It can't be nothing."""


class _Message(Struct):
    role: str = ""
    content: Any = None
    tool_calls: Any = None
    prefix: bool | None = None

    @property
    def is_blank(self) -> bool:
        """Whether the model says nothing: the same refuse that."""
        return self.role == "assistant" and not (self.content or self.tool_calls)


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
    early: list[Raw] = []
    begun = 0
    last = _Message()
    for item, message in zip(items, said, strict=True):
        if message.is_blank:
            continue
        if message.role in INSTRUCTIONS:
            item = _with_role(item, message, "system")
            if last.role in ("assistant", "tool"):
                early.append(item)
                continue
            begun += len(ordered) == begun
        elif (last.role, message.role) == ("tool", "user"):
            ordered.append(_BRIDGE)
        ordered.append(item)
        last = message
    ordered[begun:begun] = early
    if ordered and begun == len(ordered):
        ordered[-1] = _with_role(ordered[-1], last, "user")
    if marks_prefix and last.role == "assistant" and last.prefix is None:
        ordered[-1] = to_raw({**parse_object(ordered[-1]), "prefix": True})
    unchanged = len(ordered) == len(items) and all(map(is_, ordered, items))
    return messages if unchanged or not ordered else to_raw(ordered)


def _with_role(item: Raw, message: _Message, role: str) -> Raw:
    if message.role == role:
        return item
    return to_raw({**parse_object(item), "role": role})
