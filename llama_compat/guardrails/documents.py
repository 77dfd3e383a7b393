"""Each text in the JSON of a request or of a whole reply, whichever API's it is.

Every string is one, and every name of a member: a vendor may be told something by members that
nobody here knows. Left out is what nobody reads as text: images, sound, and seals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from llama_compat.dialects.anthropic_messages.seals import NOBODYS
from llama_compat.guardrails.settings import Place
from llama_compat.wire.json_fields import to_raw

Strand = Literal["text", "thought", "refusal"]
"""Words of a reply that are read as one: those of the same strand that follow each other, whichever
parts, blocks or items they come in. In a stream, where another strand or anything else begins in
between, such as a call, what was said before has ended."""

STRANDS: Mapping[str, Strand] = {
    "message": "text",
    "model_output": "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning": "thought",
    "reasoning_text": "thought",
    "summary_text": "thought",
    "thinking": "thought",
    "thought": "thought",
}
"""Of which strand the words are that are in what an API calls so."""

Visit = Callable[[Place, str], str]
"""Told of a text and of where it stands; what is to be there instead."""

SEALS = frozenset(
    {"signature", "thoughtSignature", "thought_signature", "encrypted_content", "encryptedContent"}
)
"""What a vendor has sealed, in one API or another."""

TOKENS = frozenset(
    {
        "completion_probabilities",
        "logprobs",
        "logprobsResult",
        "prompt_logprobs",
        "prompt_token_ids",
        "token_ids",
    }
)
"""Members that tell a text token by token, and so what it was before it was changed."""

_PIECES = frozenset({"tokens", "words"})
"""Lists that tell a transcription so."""

FILES = frozenset(
    {"data", "images", "image", "bytes", "b64_json", "file_data", "partial_image_b64", "result"}
)
"""Members that may hold a file in base64."""

_ARGUMENTS = frozenset({"arguments", "args"})
_CALLS = ("_use", "_call")
_RESULTS = ("_result", "_output")
_RESULT_ROLES = ("tool", "function")
_RESULT_MEMBERS = frozenset({"functionResponse", "function_response"})

PICTURES = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
"""How PNG, JPEG, GIF and WebP begin in base64."""

_BASE64 = re.compile(
    rf"(?:{'|'.join(PICTURES)}|JVBERi0|T2dnU|SUQz)[A-Za-z0-9+/=_-]{{24,}}"
    r"|[A-Za-z0-9+/=_-]{1024,}"
)
"""A file in base64: one that begins as PNG, JPEG, GIF, WebP and WAV, PDF, Ogg or MP3 do, or is
longer than any key for an API, which may be all that a member called `data` has."""

_DATA_URL = re.compile(r"data:[^,]{0,200};base64,")

_LARGE_NUMBER = 1_000_000


def mapped(value: Any, place: Place, visit: Visit, name: str = "") -> Any:
    """`value` with what `visit` makes of its texts; the same object where it changes none.

    Args:
        value: decoded from JSON.
        place: of its texts, unless they are what a tool is given or gave.
        visit: told of each text.
        name: of the member that it is.
    """
    if isinstance(value, str):
        return value if _is_no_text(value, name) else visit(place, value)
    if isinstance(value, list):
        items = [mapped(each, place, visit, name) for each in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if isinstance(value, dict):
        return _mapped_object(value, place, visit)
    if type(value) is int and value >= _LARGE_NUMBER and place.startswith("tool_"):
        digits = str(value)
        instead = visit(place, digits)
        return value if instead == digits else instead
    return value


def _mapped_object(value: dict[str, Any], place: Place, visit: Visit) -> dict[str, Any]:
    kind = value.get("type")
    kind = kind if isinstance(kind, str) else ""
    if kind.endswith(_RESULTS) or value.get("role") in _RESULT_ROLES:
        place = "tool_results"
    sealed = kind == "redacted_thinking"
    changed: dict[str, Any] = {}
    same = True
    for member, each in value.items():
        if member in SEALS or (sealed and member == "data"):
            changed[member] = each
            continue
        at = _place_of(member, kind, place)
        new_name = visit(place, member)
        # A text that is given as data is one however long its words are.
        new = mapped(each, at, visit, "" if kind == "text" else member)
        same = same and new is each and new_name == member
        changed[new_name] = new
    if not same and kind == "thinking" and "signature" in value:
        changed["signature"] = NOBODYS  # it seals what was there
    return value if same else changed


Join = Callable[[Place, Sequence[str]], Sequence[str]]
"""Told of texts that are read as one, and of where they stand; what is to be there instead."""

_APART = frozenset({"documents", "data", "results", "tools", "annotations", "citations"})
"""Lists whose texts are not read as one."""

_ITEMS = frozenset({"output", "steps"})
"""Lists of a reply whose items may have lists of words themselves, which are read as one."""

_WORDS = ("text", "thinking", "refusal")
_PARTS = ("content", "summary")

_Path = tuple[str | int, ...]


def rejoined(
    value: Any, place: Place, join: Join, name: str = "", *, is_in_item: bool = False
) -> Any:
    """`value` with what `join` makes of the texts that stand side by side in its lists, such as the
    parts of a message; the same object where it changes none.

    Args:
        value: decoded from JSON.
        place: of its texts, as for `mapped`.
        join: told of the texts of each list that has several, strand by strand.
        name: of the member that it is.
        is_in_item: whether its texts are read as one with those of the items beside it.
    """
    if isinstance(value, list):
        are_items = name in _ITEMS
        items = [
            rejoined(each, place, join, name, is_in_item=are_items and _is_said(each))
            for each in value
        ]
        if name not in _APART and not is_in_item:
            items = _rejoined(items, place, join, are_items=are_items)
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if isinstance(value, dict):
        kind = value.get("type")
        kind = kind if isinstance(kind, str) else ""
        if kind.endswith(_RESULTS) or value.get("role") in _RESULT_ROLES:
            place = "tool_results"
        changed = {
            member: rejoined(
                each,
                _place_of(member, kind, place),
                join,
                member,
                is_in_item=is_in_item and member in _PARTS,
            )
            if isinstance(each, dict | list)
            else each
            for member, each in value.items()
        }
        same = all(changed[member] is each for member, each in value.items())
        return value if same else changed
    return value


def _rejoined(items: list[Any], place: Place, join: Join, *, are_items: bool) -> list[Any]:
    found: dict[Strand, list[tuple[_Path, str]]] = {}
    for strand, path, text in _words(items, (), are_items=are_items):
        found.setdefault(strand, []).append((path, text))
    for words in found.values():
        if len(words) < 2:
            continue
        texts = [text for _, text in words]
        for (path, old), new in zip(words, join(place, texts), strict=True):
            if new != old:
                items = _with_word(items, path, new)
    return items


def _words(items: list[Any], at: _Path, *, are_items: bool) -> Iterator[tuple[Strand, _Path, str]]:
    """The texts that stand side by side in a list: of which strand each is, and where."""
    for index, each in enumerate(items):
        if not isinstance(each, dict):
            continue
        for member in _WORDS:
            if isinstance(each.get(member), str):
                kind = member if member != "text" else each.get("type")
                strand = STRANDS.get(kind, "text") if isinstance(kind, str) else "text"
                is_thought = strand == "thought" or bool(each.get("thought"))
                yield "thought" if is_thought else strand, (*at, index, member), each[member]
        for member in _PARTS if are_items and _is_said(each) else ():
            if isinstance(each.get(member), list):
                yield from _words(each[member], (*at, index, member), are_items=False)


def _is_said(item: Any) -> bool:
    """Whether an item has words of a model, and not what a tool gave."""
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and kind in STRANDS


def _with_word(value: Any, path: _Path, text: str) -> Any:
    """`value` with another text at `path`."""
    if not path:
        return text
    step: Any = path[0]
    changed = value.copy()
    changed[step] = _with_word(value[step], path[1:], text)
    if step == "thinking" and "signature" in changed:
        changed["signature"] = NOBODYS  # it seals what was there
    return changed


def _place_of(member: str, kind: str, place: Place) -> Place:
    if member in _RESULT_MEMBERS or (member == "output" and kind.endswith(_CALLS)):
        return "tool_results"
    if member in _ARGUMENTS or (member == "input" and kind.endswith(_CALLS)):
        return "tool_arguments"
    return place


def _is_no_text(text: str, name: str) -> bool:
    if name in FILES and _BASE64.fullmatch(text):
        return True
    return text.startswith("data:") and _DATA_URL.match(text) is not None


def without_tokens(value: Any) -> Any:
    """A reply without what tells the tokens of its texts."""
    if isinstance(value, list):
        return [without_tokens(each) for each in value]
    if not isinstance(value, dict):
        return value
    changed: dict[str, Any] = {}
    for name, each in value.items():
        if isinstance(each, list) and (name in TOKENS or name in _PIECES):
            changed[name] = []
        else:
            changed[name] = None if name in TOKENS else without_tokens(each)
    return changed


_FRAME = frozenset(
    {
        "cache_control",
        "call_id",
        "detail",
        "format",
        "id",
        "media_type",
        "mimeType",
        "mime_type",
        "name",
        "object",
        "role",
        "status",
        "tool_call_id",
        "tool_name",
        "tool_use_id",
        "type",
    }
)
"""Members that say what a text is, or whose, in one API or another."""


def said_in(value: Any, place: Place, name: str = "") -> Iterator[tuple[Place, str]]:
    """What somebody says in `value`, decoded from JSON: its texts without what is around them."""
    if isinstance(value, str):
        if value and not _is_no_text(value, name):
            yield place, value
    elif isinstance(value, list):
        for each in value:
            yield from said_in(each, place, name)
    elif isinstance(value, dict):
        kind = value.get("type")
        kind = kind if isinstance(kind, str) else ""
        if kind.endswith(_RESULTS) or value.get("role") in _RESULT_ROLES:
            place = "tool_results"
        for member, each in value.items():
            if member not in _FRAME and member not in SEALS:
                yield from said_in(each, _place_of(member, kind, place), member)


def has_twins(raw: bytes, value: Any) -> bool:
    """Whether an object in JSON has two members of the same name, of which one was read and the
    other is what another reader may go by (RFC 8259, section 4).

    Args:
        raw: the JSON.
        value: what it was decoded to.
    """
    return _strings(raw) > _strings(bytes(to_raw(value)))


def _strings(raw: bytes) -> int:
    """How many quotes begin or end a string in JSON."""
    if b"\\" not in raw:
        return raw.count(b'"')
    raw = raw.replace(b"\\\\", b"")
    return raw.count(b'"') - raw.count(b'\\"')


def is_text(value: Any) -> bool:
    """Whether a prompt is text, and not the ids of tokens."""
    while isinstance(value, list) and value:
        value = value[0]
    return type(value) is not int
