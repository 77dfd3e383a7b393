"""What the events of a stream give piece by piece, whichever client API's they are.

One list of names serves them all: a member with one of these, in an event that is no end, has the
next piece of a text. Whatever else an event has is whole in itself (`documents`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from llama_compat.dialects.anthropic_messages.seals import NOBODYS
from llama_compat.guardrails.documents import SEALS, STRANDS, TOKENS, Strand
from llama_compat.guardrails.settings import Place

TEXTS = frozenset(
    {
        "arguments",
        "code",
        "content",
        "delta",
        "input",
        "output",
        "partial_json",
        "reasoning",
        "reasoning_content",
        "refusal",
        "response",
        "result",
        "stderr",
        "stdout",
        "stringValue",
        "summary",
        "text",
        "thinking",
        "transcript",
    }
)
"""Members that have a piece of a text."""

MARKS = (
    "index",
    "output_index",
    "content_index",
    "summary_index",
    "item_id",
    "thought",
    "jsonPath",
)
"""Members that say of which text a piece is."""

_THOUGHTS = ("thinking", "reasoning", "thought")
_NO_WORDS = ("_call", "_use", "_result", "_output")
_SAID = ("text", "content", "response")
_OUTPUT_TEXT = "response.output_text.delta"
_BEGINS = ("start", "item.added", "part.added")
_SEGMENT = ".segment"

_ARGUMENTS = frozenset({"arguments", "partial_json", "functionCall", "custom"})
_NO_JSON = ("input", "code")

_SIGNATURES = frozenset({"signature", "thoughtSignature", "thought_signature"})
"""Members that hold for the very words of a thought."""

_ANTHROPICS = ("thinking", "signature_delta")
"""Objects with the signature of a thinking block."""

_ENDS = ("stop", "done", "completed", "incomplete", "failed", "cancelled", "message_delta")
"""How the names of events end with which a text does."""

Marks = tuple[tuple[str, Any], ...]


class Fragment(Struct, frozen=True):
    """A piece of a text in an event.

    Attributes:
        at: the names and places that lead to it.
        text: what it says.
        place: of what it is a piece: of what is said, or of a tool's arguments.
        part: the same for the pieces of one part of a reply, such as a block.
        of: the same for the pieces of all parts that are read as one text.
        marks: what the part's end repeats.
        in_json: whether its text is JSON.
        strand: which words of a reply it is one of; None for what is read for itself.
        repeats: whether it says again what other events say, as segments of transcriptions do: what
            they say goes on beside it.
    """

    at: tuple[str | int, ...]
    text: str
    place: Place
    part: tuple[Any, ...]
    of: tuple[Any, ...]
    marks: Marks
    in_json: bool
    strand: Strand | None
    repeats: bool = False


def kind_of(event: Mapping[str, Any]) -> str:
    """What an event is called; empty in APIs whose events are all of one kind."""
    kind = event.get("type") or event.get("event_type")
    return kind if isinstance(kind, str) and "choices" not in event else ""


def fragments(event: Mapping[str, Any]) -> list[Fragment]:
    """The pieces of texts in an event."""
    kind = kind_of(event)
    if kind and "delta" not in kind and not kind.endswith(("start", _SEGMENT)):
        return []
    return list(_fragments(event, (kind,), (), (), ()))


def _fragments(
    value: Any,
    kinds: tuple[str, ...],
    at: tuple[str | int, ...],
    path: tuple[str, ...],
    marks: Marks,
) -> Iterator[Fragment]:
    if isinstance(value, list):
        for place, each in enumerate(value):
            if isinstance(each, dict | list):
                yield from _fragments(each, kinds, (*at, place), path, marks)
        return
    marks += marks_of(value)
    if path and isinstance(value.get("type"), str):
        kinds = (*kinds, value["type"])
    for name, each in value.items():
        if isinstance(each, str):
            if name in TEXTS and each and name not in SEALS:
                yield _fragment(each, kinds, (*at, name), (*path, name), marks)
        elif isinstance(each, dict | list) and each and name not in TOKENS:
            yield from _fragments(each, kinds, (*at, name), (*path, name), marks)


def _fragment(
    text: str,
    kinds: tuple[str, ...],
    at: tuple[str | int, ...],
    path: tuple[str, ...],
    marks: Marks,
) -> Fragment:
    kind = kinds[0]
    given = "_call" in kind or not _ARGUMENTS.isdisjoint(path)
    strand = None if given else _strand(kinds, path, marks)
    # Where events have names, a text may begin in one of another name.
    part: tuple[Any, ...] = (given, strand, marks) if kind else (_content(path), marks)
    repeats = kind.endswith(_SEGMENT)
    part = (kind, *part) if repeats else part
    return Fragment(
        at,
        text,
        "tool_arguments" if given else "output",
        part,
        (strand,) if kind and strand is not None and not repeats else part,
        marks,
        in_json=given and not any(each in kind for each in _NO_JSON) and path[-1] not in _NO_JSON,
        strand=strand,
        repeats=repeats,
    )


def _content(path: tuple[str, ...]) -> tuple[str, ...]:
    """Where a text is that comes as such or as parts, as the vendor likes it."""
    return path[:-1] if path[-2:] == ("content", "text") else path


def _strand(kinds: tuple[str, ...], path: tuple[str, ...], marks: Marks) -> Strand | None:
    """Which words of a reply a text is one of, by what the objects call themselves that lead to it,
    outermost first."""
    says = (*kinds, *path, *(name for name, each in marks if each is True))
    if any(word in each for each in says for word in _THOUGHTS):
        return "thought"
    if any("refusal" in each for each in says):
        return "refusal"
    if any(each.endswith(_NO_WORDS) and each not in STRANDS for each in kinds):
        return None
    is_text = path[-1] in _SAID or kinds[0] == _OUTPUT_TEXT or not kinds[0]
    return "text" if is_text else None


def begins_another(event: Mapping[str, Any], strand: Strand | None) -> bool:
    """Whether something begins with an event that is no part of a strand."""
    if not kind_of(event).endswith(_BEGINS):
        return False
    for each in event.values():
        kind = each.get("type") if isinstance(each, dict) else None
        if isinstance(kind, str) and STRANDS.get(kind) != strand:
            return True
    return False


def marks_of(value: Mapping[str, Any]) -> Marks:
    """What an object says of itself that tells its texts from others."""
    return tuple(
        (name, value[name])
        for name in MARKS
        if name in value and isinstance(value[name], str | int | float) and value[name] is not False
    )


def is_end(event: Mapping[str, Any]) -> bool:
    """Whether texts end with an event."""
    kind = kind_of(event)
    if kind:
        return kind.endswith(_ENDS)
    if event.get("done") is True:
        return True
    for name in ("choices", "candidates"):
        choices = event.get(name)
        for each in choices if isinstance(choices, list) else ():
            if isinstance(each, dict) and (each.get("finish_reason") or each.get("finishReason")):
                return True
    return False


def put(event: Any, at: tuple[str | int, ...], text: str) -> None:
    """Give the piece at `at` another text.

    Raises:
        LookupError: there is nothing there.
    """
    for step in at[:-1]:
        event = event[step]
    event[at[-1]] = text


def unsealed(value: Any) -> Any:
    """`value` without the signatures of what a model thought. Those of calls stay, and what holds a
    thought itself, encrypted, which no vendor holds against the words for it."""
    if isinstance(value, list):
        return [unsealed(each) for each in value]
    if not isinstance(value, dict) or "functionCall" in value:
        return value
    no_seal = NOBODYS if value.get("type") in _ANTHROPICS else ""
    return {
        name: no_seal if name in _SIGNATURES and isinstance(each, str) else unsealed(each)
        for name, each in value.items()
    }
