"""Ids of tool calls in chat messages, for vendors that take none but those of a form."""

from __future__ import annotations

import re

from msgspec import Raw

from llama_compat.tools.call_ids import CallIds, Fit
from llama_compat.wire.json_fields import (
    JSONFields,
    from_raw,
    parse_object,
    parse_objects,
    to_raw,
    with_items,
)


def have_long_ids(messages: Raw, limit: int) -> bool:
    """Whether any of `messages` may have an id of more characters than that; a quick look."""
    return re.search(rb'id"\s*:\s*"[^"]{%d}' % (limit + 1), bytes(messages)) is not None


def with_fitting_ids(messages: Raw, fit: Fit) -> Raw:
    """The `messages` of a request with ids of calls of which each fits and is of one call alone.

    All else keeps its bytes, and so do messages that are none.
    """
    ids = CallIds(fit)
    return with_items(
        messages,
        lambda items: [
            _fitted(item, ids) if b'"tool_call' in bytes(item) else item for item in items
        ],
    )


def _fitted(item: Raw, ids: CallIds) -> Raw:
    message = parse_object(item)
    changed = False
    if bytes(message.get("tool_calls", b"")).startswith(b"[{"):
        calls = parse_objects(message["tool_calls"])
        fits = [_fit(call, "id", ids.of_call) for call in calls]
        if any(fits):
            message["tool_calls"] = to_raw(calls)
            changed = True
    changed = _fit(message, "tool_call_id", ids.of_answer) or changed
    return to_raw(message) if changed else item


def _fit(members: JSONFields, name: str, fit: Fit) -> bool:
    said = from_raw(members[name]) if name in members else None
    if not isinstance(said, str):
        return False
    fitted = fit(said)
    if fitted == said:
        return False
    members[name] = to_raw(fitted)
    return True
