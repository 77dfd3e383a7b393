"""What has become of a text on its way, told by whoever changes it, so that places in it are found
again."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence


class Changes:
    """What has become of a text as far as it has gone on: where something else is shown, from where
    to where that was, and is.

    Args:
        in_bytes: whether its places are counted in bytes, and not in characters.

    Attributes:
        are_some: whether it is another than it came.
    """

    __slots__ = ("_begins", "_ends", "_measure", "_shown", "_size", "are_some")

    def __init__(self, *, in_bytes: bool) -> None:
        self._measure: Callable[[str], int] = _size if in_bytes else len
        self._size = 0
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._shown: list[tuple[int, int]] = []
        self.are_some = False

    def keep(self, said: str) -> None:
        """More of it is shown as it came."""
        self._size += self._measure(said)

    def put(self, said: str, instead: str) -> None:
        """Of more of it something else is shown, unless that is the same."""
        if said == instead:
            self.keep(said)
            return
        self.are_some = True
        begin = self.place(self._size, is_end=True)
        self._begins.append(self._size)
        self._size += self._measure(said)
        self._ends.append(self._size)
        self._shown.append((begin, begin + self._measure(instead)))

    def place(self, at: int, *, is_end: bool) -> int:
        """Where a place is now. One within what is hidden is where the word for that begins, or
        ends."""
        last = bisect_right(self._begins, at) - 1
        if last < 0:
            return at
        begin, end = self._shown[last]
        if at >= self._ends[last]:
            return end + at - self._ends[last]
        return end if is_end and at > self._begins[last] else begin


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class InTurn:
    """What has become of a text that several have changed, each what the one before has made of it.

    Args:
        changes: theirs, in that order.
    """

    __slots__ = ("_changes",)

    def __init__(self, changes: Sequence[Changes]) -> None:
        self._changes = changes

    @property
    def are_some(self) -> bool:
        """Whether it is another than it came."""
        return any(each.are_some for each in self._changes)

    def place(self, at: int, *, is_end: bool) -> int:
        """Where a place is now, as `Changes.place`."""
        for each in self._changes:
            at = each.place(at, is_end=is_end)
        return at


class Traces:
    """What has become of whole texts, for whoever looks for places in them.

    Args:
        in_bytes: as for `Changes`.
    """

    def __init__(self, *, in_bytes: bool) -> None:
        self.in_bytes = in_bytes
        self._known: dict[str, tuple[str, InTurn]] = {}

    def note(self, came: str, shown: str, changes: InTurn) -> None:
        """A text that is shown as another."""
        self._known[came] = shown, changes

    def of(self, came: str, shown: str) -> InTurn | None:
        """What has become of a text; None where nobody told, or it has become yet another."""
        known = self._known.get(came)
        return known[1] if known is not None and known[0] == shown else None


def substituted(
    pattern: re.Pattern[str],
    instead: Callable[[re.Match[str]], str],
    text: str,
    changes: Changes | None,
) -> str:
    """`pattern.sub(instead, text)`, told to `changes`."""
    if changes is None:
        return pattern.sub(instead, text)
    at = 0
    shown: list[str] = []
    for match in pattern.finditer(text):
        said, word = match.group(), instead(match)
        kept = text[at : match.start()]
        changes.keep(kept)
        changes.put(said, word)
        shown += (kept, word)
        at = match.end()
    changes.keep(text[at:])
    return "".join((*shown, text[at:]))
