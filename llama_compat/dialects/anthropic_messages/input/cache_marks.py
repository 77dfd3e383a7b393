"""Where a request says up to what its prompt is to be cached, for clients that don't say it.

What is cached is looked for from a mark back, twenty blocks at most, and four marks are taken:
https://platform.claude.com/docs/en/build-with-claude/prompt-caching, 2026-11-23. The tools and the
system prompt are the same for many conversations. The user's last turn is where this conversation
will have come to when the next request looks for it, and the one before is where the last request
had its mark, however many blocks a round of tools has put between. A mark for the whole request
(`cache_control` beside `messages`) would be one of the four too, and Amazon and Google don't have
it. A prompt that is shorter than what a model caches is read as if nothing was marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from llama_compat.wire.json_fields import JSONFields, parse_object, parse_objects, to_raw
from llama_compat.wire.malformed import UNREADABLE

MARK = "cache_control"

LAST_TURNS = 2

_WHERE = ("tools", "system", "messages")
_EPHEMERAL = to_raw({"type": "ephemeral"})
_THOUGHTS = (Raw(b'"thinking"'), Raw(b'"redacted_thinking"'))
_NOTHING = Raw(b'""')

_items = msgspec.json.Decoder(list[Raw])


def with_cache_marks(fields: Mapping[str, Raw]) -> JSONFields:
    """The members of a request with marks; those of one that has any keep their bytes, and so does
    what is malformed."""
    marked = dict(fields)
    if MARK in fields or any(
        f'"{MARK}"'.encode() in bytes(fields[name]) for name in _WHERE if name in fields
    ):
        return marked
    try:
        if "tools" in fields:
            marked["tools"] = _with_last_marked(fields["tools"])
        if "system" in fields:
            marked["system"] = _content_marked(fields["system"])
        marked["messages"] = _turns_marked(fields["messages"])
    except UNREADABLE:
        return dict(fields)  # The vendor says better what is wrong with it.
    return marked


def _turns_marked(messages: Raw) -> Raw:
    turns = _items.decode(messages)
    left = LAST_TURNS
    for place in reversed(range(len(turns))):
        if not left:
            break
        turn = parse_object(turns[place])
        if turn.get("role") != Raw(b'"user"'):
            continue
        content = _content_marked(turn["content"])
        if content is not turn["content"]:
            turns[place] = to_raw({**turn, "content": content})
            left -= 1
    return messages if left == LAST_TURNS else to_raw(turns)


def _content_marked(content: Raw) -> Raw:
    """A text or blocks, the last of them marked; the same where nothing can be."""
    if bytes(content).startswith(b'"'):
        if content == _NOTHING:
            return content
        return to_raw([{"type": "text", "text": content, MARK: _EPHEMERAL}])
    return _with_last_marked(content)


def _with_last_marked(objects: Raw) -> Raw:
    blocks = parse_objects(objects)
    place = _last_markable(blocks)
    if place is None:
        return objects
    blocks[place][MARK] = _EPHEMERAL
    return to_raw(blocks)


def _last_markable(blocks: Sequence[JSONFields]) -> int | None:
    """The last block that can be marked: no thought, no empty text, no tool that comes later."""
    for place in reversed(range(len(blocks))):
        block = blocks[place]
        is_later = block.get("defer_loading") == Raw(b"true")
        if block.get("type") not in _THOUGHTS and block.get("text") != _NOTHING and not is_later:
            return place
    return None
