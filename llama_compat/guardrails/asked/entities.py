"""Entities found in a text that comes in pieces, none of which is shown before it is cleared.

How long an entity is nobody knows beforehand, and what is before it counts: the text is looked
through a window at a time, and what may go on behind the window waits for the next one. Where the
windows begin depends on the text alone, so what is found is the same however it is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from llama_compat.guardrails.asked.presidio import Entity
from llama_compat.guardrails.hidden import WORD
from llama_compat.text.changes import Changes

REACH = 200
"""Characters at the end of a window in which an entity may begin that is not whole yet."""

CONTEXT = 200
"""Characters before a window that are looked at with it."""

_IN_JSON = re.compile(r'[^"]*\w[^"]*')


class EntityScanner:
    """Lets a text through as far as it was looked at.

    Args:
        find: the entities of a text, in their order.
        found: told of what an entity is and of its text, once for each, in the order of the text;
            what is to be there instead. May raise.
        window: characters that are looked at together.
        in_json: whether the text is JSON, in which an entity ends with the string that it is in.

    Attributes:
        hidden: whether something else was shown than came.
        changes: told what has become of the text, where somebody asks.
    """

    __slots__ = (
        "_before",
        "_find",
        "_found",
        "_held",
        "_in_json",
        "_reach",
        "_window",
        "changes",
        "hidden",
    )

    def __init__(
        self,
        find: Callable[[str], Sequence[Entity]],
        found: Callable[[str, str], str],
        window: int,
        *,
        in_json: bool = False,
    ) -> None:
        self._find = find
        self._found = found
        self._window = window
        self._reach = min(REACH, window // 2)
        self._in_json = in_json
        self._before = ""
        self._held = ""
        self.hidden = False
        self.changes: Changes | None = None

    @property
    def holds(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    @property
    def room(self) -> int:
        """So many characters may come before any is looked at."""
        return self._window - len(self._held)

    def push(self, text: str) -> str:
        """More of the text; what can be shown now."""
        self._held += text
        shown: list[str] = []
        while len(self._held) >= self._window:
            shown.append(self._cleared(self._held[: self._window], self._window - self._reach))
        return "".join(shown)

    def flush(self) -> str:
        """The text has ended: what was held back."""
        return self._cleared(self._held, len(self._held)) if self._held else ""

    def _cleared(self, piece: str, decided: int) -> str:
        """What is shown of the beginning of what is held.

        Args:
            piece: what is looked at.
            decided: what begins behind so many characters of it is not whole yet.
        """
        begin = len(self._before)
        text = self._before + piece
        at, end = begin, begin + decided
        shown: list[str] = []
        for start, stop, kind in self._places(text):
            start = max(start, at)
            if start >= end:
                break
            if stop <= start:
                continue
            instead = self._found(kind, text[start:stop])
            self.hidden = self.hidden or instead != text[start:stop]
            shown += (text[at:start], instead)
            if self.changes is not None:
                self.changes.keep(text[at:start])
                self.changes.put(text[start:stop], instead)
            at = stop
        end = max(at, end)
        shown.append(text[at:end])
        if self.changes is not None:
            self.changes.keep(text[at:end])
        self._before = text[max(0, end - CONTEXT) : end]
        self._held = self._held[end - begin :]
        return "".join(shown)

    def _places(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where entities are, but for those of words that are there in place of something."""
        words = [match.span() for match in WORD.finditer(text)]
        for entity in self._find(text):
            if any(first < entity.end and entity.start < last for first, last in words):
                continue
            if not self._in_json:
                yield entity.start, entity.end, entity.kind
                continue
            for match in _IN_JSON.finditer(text, entity.start, entity.end):
                yield *match.span(), entity.kind
