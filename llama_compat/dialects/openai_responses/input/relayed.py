"""The items of an `input` that is relayed, as another server takes them."""

from __future__ import annotations

from msgspec import Raw

from llama_compat.dialects.openai_responses.input.items import SUMMARY_INTRODUCTION
from llama_compat.dialects.openai_responses.sealed import PREFIX, Summary, unseal
from llama_compat.wire.json_depth import MAX_DEPTH, is_deeper
from llama_compat.wire.json_fields import from_raw, is_empty, parse_object, to_raw, with_items

_OWN = PREFIX.encode()
_CLEAR = b'"reasoning_text"'
_THOUGHT = b'"reasoning"'
_SAID = frozenset({b'"message"', b'"function_call"', b'"custom_tool_call"'})


def for_other_servers(value: Raw, *, reads_thoughts: bool = True) -> Raw:
    """An `input` without what only this server can unseal; a summary is put in clear.

    Another server would take it for its own, and refuse it.

    Args:
        value: the input.
        reads_thoughts: whether the server takes thoughts that are in clear; OpenAI has no place for
            them: "Invalid 'input[39].content': array too long. Expected an array with maximum
            length 0" (musistudio/claude-code-router#1783, 2026-11-28).
    """
    whole = bytes(value)
    if _OWN not in whole and (reads_thoughts or _CLEAR not in whole):
        return value
    if is_deeper(whole, MAX_DEPTH):
        return value

    def change(items: list[Raw]) -> list[Raw]:
        told = [_for_another_server(item, reads_thoughts) for item in items]
        return [item for item in told if item is not None]

    return with_items(value, change)


def _for_another_server(item: Raw, reads_thoughts: bool) -> Raw | None:
    """One item; None where it is left out."""
    fields = parse_object(item)
    sealed = from_raw(fields["encrypted_content"]) if "encrypted_content" in fields else None
    own = unseal(sealed) if isinstance(sealed, str) else None
    if isinstance(own, Summary):
        said = SUMMARY_INTRODUCTION + own.text
        return to_raw({"type": "message", "role": "user", "content": said})
    if own is not None:
        return None
    is_thought = bytes(fields.get("type", b"")) == _THOUGHT
    if reads_thoughts or not is_thought or is_empty(fields.get("content")):
        return item
    if not sealed:
        return None
    return to_raw({name: member for name, member in fields.items() if name != "content"})


def without_thoughts(value: Raw) -> Raw:
    """An `input` without what was thought, for a server that can't unseal that: another one made
    it, or it itself for somebody else. The very same where nothing was.

    What was said then goes without the id by which the server would look for the thought before it:
    "Item 'msg_...' was provided without its required 'reasoning' item" (continuedev/continue#11994,
    2026-11-28).
    """
    if _THOUGHT not in bytes(value):
        return value

    def change(items: list[Raw]) -> list[Raw]:
        objects = [parse_object(item) for item in items]
        kept = [
            (item, fields)
            for item, fields in zip(items, objects, strict=True)
            if bytes(fields.get("type", b"")) != _THOUGHT
        ]
        if len(kept) == len(items):
            return items
        return [
            to_raw({name: member for name, member in fields.items() if name != "id"})
            if bytes(fields.get("type", b"")) in _SAID and "id" in fields
            else item
            for item, fields in kept
        ]

    return with_items(value, change)
