"""Where a chat message says what the model thought, of which each vendor takes back some.

What one vendor wants back another answers with 400 or 422 (`property 'reasoning_content' is
unsupported`), and clients send back whatever they got, from whichever vendor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from msgspec import Raw

from llama_compat.wire.json_fields import (
    JSONFields,
    parse_object,
    parse_objects,
    to_raw,
    with_items,
)

TEXTS = ("reasoning_content", "reasoning")
"""Members of a message that have it as text: DeepSeek's name, and OpenRouter's and Groq's."""

DETAILS = "reasoning_details"
"""OpenRouter's member of a message for thoughts with their seals."""

EXTRA = "extra_content"
"""Google's member of a call, or of a message, for the seal of a thought."""

NO_STAND_INS: Mapping[str, Raw] = {}

REASONING_FIELDS = frozenset({*TEXTS, DETAILS, EXTRA})

_MARKS = (b'"reasoning', b'"' + EXTRA.encode())
"""Messages without either of these have none of the members."""

_EMPTY = (None, Raw(b"null"))
_NOTHING = (*_EMPTY, Raw(b'""'))


def have_reasoning(messages: Raw) -> bool:
    """Whether any of `messages` may say what a model thought; a quick look."""
    data = bytes(messages)
    return any(mark in data for mark in _MARKS)


def have_calls(messages: Raw) -> bool:
    """Whether any of `messages` may call a tool; a quick look."""
    return b'"tool_calls"' in bytes(messages)


def with_reasoning_in(
    messages: Raw, taken: Set[str], stand_ins: Mapping[str, Raw] = NO_STAND_INS
) -> Raw:
    """The `messages` of a request for a vendor that takes reasoning in the members `taken`.

    Each of those that are text gets the text, whichever of the names it came by; the other members
    of `REASONING_FIELDS` are left out. All else keeps its bytes, and so do messages that are none.

    Args:
        messages: they.
        taken: the members.
        stand_ins: by member, what a message that calls tools has in it where there is nothing; in
            the current turn alone, and with its first call, what is a seal of Google's.
    """

    def change(items: Sequence[Raw]) -> Sequence[Raw]:
        fitted = [_fitted(item, taken) if have_reasoning(item) else item for item in items]
        return _with_stand_ins(fitted, stand_ins) if stand_ins else fitted

    return with_items(messages, change)


def _with_stand_ins(items: Sequence[Raw], stand_ins: Mapping[str, Raw]) -> list[Raw]:
    completed = list(items)
    in_current_turn = True
    for place in reversed(range(len(items))):
        if b'"tool_calls"' in bytes(items[place]):
            completed[place] = _completed(items[place], stand_ins, in_current_turn)
        elif b'"user"' in bytes(items[place]):
            is_user = parse_object(items[place]).get("role") == Raw(b'"user"')
            in_current_turn = in_current_turn and not is_user
    return completed


def _completed(item: Raw, stand_ins: Mapping[str, Raw], in_current_turn: bool) -> Raw:
    message = parse_object(item)
    if not bytes(message.get("tool_calls", b"")).startswith(b"[{"):
        return item
    calls = parse_objects(message["tool_calls"])
    changed = False
    for name, value in stand_ins.items():
        if name != EXTRA and message.get(name) in _NOTHING:
            message[name] = value
            changed = True
        elif name == EXTRA and in_current_turn and calls[0].get(name) in _NOTHING:
            calls[0][name] = value
            message["tool_calls"] = to_raw(calls)
            changed = True
    return to_raw(message) if changed else item


def _fitted(item: Raw, taken: Set[str]) -> Raw:
    message = parse_object(item)
    changed = _fit_texts(message, taken)
    for name in (DETAILS, EXTRA):
        changed = _leave_out(message, name, taken) or changed
    if EXTRA not in taken and bytes(message.get("tool_calls", b"")).startswith(b"["):
        calls = parse_objects(message["tool_calls"])
        left_out = [_leave_out(call, EXTRA, taken) for call in calls]
        if any(left_out):
            message["tool_calls"] = to_raw(calls)
            changed = True
    return to_raw(message) if changed else item


def _fit_texts(message: JSONFields, taken: Set[str]) -> bool:
    said = next((raw for name in TEXTS if (raw := message.get(name)) not in _EMPTY), None)
    changed = False
    for name in TEXTS:
        if name not in taken:
            changed = _leave_out(message, name, taken) or changed
        elif said is not None and message.get(name) in _EMPTY:
            message[name] = said
            changed = True
    return changed


def _leave_out(members: JSONFields, name: str, taken: Set[str]) -> bool:
    return name not in taken and members.pop(name, None) is not None
