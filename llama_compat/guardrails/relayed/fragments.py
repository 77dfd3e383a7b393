"""What the events of a stream give piece by piece, whichever client API's they are.

One list of names serves them all: a member with one of these, in an event that is no end, has the
next piece of a text. Whatever else an event has is whole in itself (`documents`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from llama_compat.dialects.anthropic_messages.seals import NOBODYS
from llama_compat.guardrails.documents import SEALS
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

TOKENS = frozenset({"logprobs", "logprobsResult", "token_ids"})
"""Members that say of which tokens a piece is, and so what it was before it was changed."""

_THOUGHTS = ("thinking", "reasoning", "thought")
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
        of: the same for the pieces of one text.
        marks: the part of that which the event's end repeats.
        in_json: whether its text is JSON.
        is_thought: whether it is what a model thinks.
    """

    at: tuple[str | int, ...]
    text: str
    place: Place
    of: tuple[Any, ...]
    marks: Marks
    in_json: bool
    is_thought: bool


def kind_of(event: Mapping[str, Any]) -> str:
    """What an event is called; empty in APIs whose events are all of one kind."""
    kind = event.get("type") or event.get("event_type")
    return kind if isinstance(kind, str) and "choices" not in event else ""


def fragments(event: Mapping[str, Any]) -> list[Fragment]:
    """The pieces of texts in an event."""
    kind = kind_of(event)
    if kind and "delta" not in kind and not kind.endswith("start"):
        return []
    return list(_fragments(event, kind, (), (), ()))


def _fragments(
    value: Any, kind: str, at: tuple[str | int, ...], path: tuple[str, ...], marks: Marks
) -> Iterator[Fragment]:
    if isinstance(value, list):
        for place, each in enumerate(value):
            if isinstance(each, dict | list):
                yield from _fragments(each, kind, (*at, place), path, marks)
        return
    marks += marks_of(value)
    for name, each in value.items():
        if isinstance(each, str):
            if name in TEXTS and each and name not in SEALS:
                yield _fragment(each, kind, (*at, name), (*path, name), marks)
        elif isinstance(each, dict | list) and each and name not in TOKENS:
            yield from _fragments(each, kind, (*at, name), (*path, name), marks)


def _fragment(
    text: str, kind: str, at: tuple[str | int, ...], path: tuple[str, ...], marks: Marks
) -> Fragment:
    given = "_call" in kind or not _ARGUMENTS.isdisjoint(path)
    says = (kind, *path, *(name for name, _ in marks))
    return Fragment(
        at,
        text,
        "tool_arguments" if given else "output",
        # Where events have names, a text may begin in one of another name.
        (given, marks) if kind else (path, marks),
        marks,
        in_json=given and not any(each in kind for each in _NO_JSON) and path[-1] not in _NO_JSON,
        is_thought=any(word in each for each in says for word in _THOUGHTS),
    )


def marks_of(value: Mapping[str, Any]) -> Marks:
    """What an object says of itself that tells its texts from others."""
    return tuple(
        (name, value[name])
        for name in MARKS
        if name in value and isinstance(value[name], str | int | float)
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


def without_tokens(value: Any) -> Any:
    """`value` without what tells the tokens of its texts."""
    if isinstance(value, list):
        return [without_tokens(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: ([] if isinstance(each, list) else None) if name in TOKENS else without_tokens(each)
        for name, each in value.items()
    }


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
