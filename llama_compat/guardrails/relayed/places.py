"""Places in a text that a vendor names, such as those of its citations, where the text has become
another on its way: they still are those of the same words.

Anthropic's citations name places in documents, which stay as they were, by other names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llama_compat.guardrails.relayed.fragments import Marks, marks_of
from llama_compat.text.changes import Changes, InTurn, Traces

NAMED = ("annotations", "annotation", "groundingSupports", "citationSources")
"""Members that have places, or objects with some."""

_BEGINS = ("start_index", "startIndex")
_ENDS = ("end_index", "endIndex")
_AT = ("file_citation", "file_path")
"""Annotations of OpenAI's whose `index` is a place."""

_SAME = 8
"""Characters that are the same in two texts are there where the texts are the same again."""

_REACH = 400
"""So far that is looked for."""

_MOST_EDITS = 1000
"""In whole texts; what comes behind is one."""


def changes_between(came: str, shown: str, *, in_bytes: bool) -> Changes:
    """What has become of a whole text, told from both, in a time that grows with them: they are the
    same again where the next few characters are, and the nearest such place is taken."""
    changes = Changes(in_bytes=in_bytes)
    here = there = edits = 0
    end = "\0" * _SAME
    old, new = came + end, shown + end
    while here < len(came) or there < len(shown):
        same = _same(old, here, new, there)
        changes.keep(came[here : here + same])
        here, there = here + same, there + same
        if here >= len(came) and there >= len(shown):
            break
        edits += 1
        away = (len(came) - here, len(shown) - there)
        if edits < _MOST_EDITS:
            away = _again(old, here, new, there) or away
        changes.put(came[here : here + away[0]], shown[there : there + away[1]])
        here, there = here + away[0], there + away[1]
    return changes


def _same(old: str, here: int, new: str, there: int) -> int:
    """How many characters are the same from two places on, without the end of either."""
    most = min(len(old) - here, len(new) - there) - _SAME
    same, step = 0, 1024
    while same < most:
        step = min(step, most - same)
        if old[here + same : here + same + step] == new[there + same : there + same + step]:
            same += step
        elif step == 1:
            break
        else:
            step //= 2
    return max(same, 0)


def _again(old: str, here: int, new: str, there: int) -> tuple[int, int] | None:
    best: tuple[int, int] | None = None
    for skipped in range(min(_REACH, len(new) - there - _SAME) + 1):
        if best is not None and skipped >= sum(best):
            break
        wanted = new[there + skipped : there + skipped + _SAME]
        found = old.find(wanted, here, here + _REACH + _SAME)
        if found >= 0 and (best is None or skipped + found - here < sum(best)):
            best = (found - here, skipped)
    return best


Changed = Changes | InTurn

Find = Callable[[str | None, Marks], Changed | None]
"""What has become of a text: of the one that stands beside places, as it is shown, or where there
is none, of the one that what is around them says; None where it is not known."""


def moved(value: Any, find: Find, marks: Marks = ()) -> Any:
    """`value` with its places in texts where these are now; the same object where none is another.

    Args:
        value: decoded from JSON, with the texts as they are shown.
        find: the texts.
        marks: what is around it says.
    """
    if isinstance(value, list):
        items = [moved(each, find, marks) for each in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if not isinstance(value, dict):
        return value
    marks += marks_of(value)
    changed: dict[str, Any] = {}
    for name, each in value.items():
        if name in NAMED and each:
            changes = find(text_beside(value), marks)
            are_some = changes is not None and changes.are_some
            changed[name] = _shifted(each, changes) if are_some else each
        else:
            beside = _with_text(name, each, value)
            changed[name] = moved(each, beside(find), marks)
    same = all(changed[name] is each for name, each in value.items())
    return value if same else changed


def _with_text(name: str, each: Any, owner: dict[str, Any]) -> Callable[[Find], Find]:
    """Of Google's candidates the text stands one further out than the places."""
    if name not in ("groundingMetadata", "citationMetadata") or not isinstance(each, dict):
        return lambda find: find
    text = text_beside(owner)
    return lambda find: lambda _, marks: find(text, marks)


def text_beside(value: dict[str, Any]) -> str | None:
    """The text that stands in an object beside places in it."""
    content = value.get("text", value.get("content"))
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        parts = [each for each in content["parts"] if isinstance(each, dict)]
        said = [each.get("text") for each in parts if not each.get("thought")]
        content = "".join(each for each in said if isinstance(each, str))
    return content if isinstance(content, str) and content else None


def _shifted(value: Any, changes: Changed | None) -> Any:
    assert changes is not None
    if isinstance(value, list):
        return [_shifted(each, changes) for each in value]
    if not isinstance(value, dict):
        return value
    shifted: dict[str, Any] = {}
    for name, each in value.items():
        is_end = name in _ENDS or (name == "index" and value.get("type") in _AT)
        if type(each) is int and each >= 0 and (is_end or name in _BEGINS):
            each = changes.place(each, is_end=is_end)
        shifted[name] = _shifted(each, changes)
    return shifted


def moved_with(came: Any, shown: Any, traces: Traces) -> Any:
    """A whole reply with its places where they are now.

    Args:
        came: as it came.
        shown: the same, with the texts as they are shown.
        traces: what has become of texts. What nobody told is told from both: of JSON, and of texts
            that are read as one.
    """
    texts = _texts(came)

    def find(text: str | None, marks: Marks) -> Changed | None:
        before = next(texts, None)
        if text is None or before is None or text == before:
            return None
        told = traces.of(before, text)
        return told or changes_between(before, text, in_bytes=traces.in_bytes)

    return moved(shown, find)


def _texts(came: Any) -> Iterator[str | None]:
    """Those that stand beside places, in their order."""
    found: list[str | None] = []

    def note(text: str | None, marks: Marks) -> None:
        found.append(text)

    moved(came, note)
    return iter(found)
