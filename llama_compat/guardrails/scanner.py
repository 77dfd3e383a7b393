"""Patterns found in a text that comes in pieces, none of which is shown before it is cleared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from llama_compat.guardrails.patterns import Search
from llama_compat.text.changes import Changes


class Watch(Struct, frozen=True):
    """What is looked for, and who is told.

    Attributes:
        search: what is looked for.
        found: told of the place of a pattern and of the text that it matched, once for each match,
            in the order of the text; what is to be there instead. May raise.
        hides: whether what it returns takes the place of the match.
    """

    search: Search
    found: Callable[[int, str], str]
    hides: bool = False


Edit = tuple[int, int, str]
"""Where a text is another: from which character on, up to which, and what is there instead."""


class TextScanner:
    """Lets a text through as far as no match can reach it that is not whole yet.

    What is found, and so what is let through, is the same wherever the text is cut into pieces. No
    more is held back than the longest match has characters. What one watch finds changes nothing
    for another.

    Args:
        watches: of which one hides what it finds, at most.

    Attributes:
        hidden: grows whenever something else is shown than came.
        edits: what was hidden as it grew last, counted from the first character that was held then.
        changes: told what has become of the text, where somebody asks.
    """

    __slots__ = (
        "_before",
        "_held",
        "_is_inside",
        "_skipped",
        "_watches",
        "changes",
        "edits",
        "hidden",
    )

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches
        self._held = ""
        self._before = ""  # the last character that was cleared: whether a word begins behind it
        self._skipped = [0] * len(watches)  # characters of what is held that a match had
        self._is_inside = False  # whether a match had any of what is held
        self.hidden = 0
        self.edits: list[Edit] = []
        self.changes: Changes | None = None

    @property
    def holds(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return len(self._held)

    def push(self, text: str) -> str:
        """More of the text; what can be shown now.

        Raises:
            TooManyNearMisses: it is made to keep whoever reads it busy.
        """
        held = self._held + text
        decided, may_have = len(held), self._is_inside
        for watch in self._watches:
            search = watch.search
            until = search.decided(held)
            if until < decided:
                decided = until
            may_have = may_have or search.may_have(held) is not None
        if may_have:
            return self._cleared(held, decided)
        if decided:
            self._before = held[decided - 1]
        self._held = held[decided:]
        if self.changes is not None:
            self.changes.keep(held[:decided])
        return held[:decided]

    def flush(self) -> str:
        """The text has ended: what was held back; as `push`."""
        return self._cleared(self._held, len(self._held))

    def give_up(self) -> str:
        """Nobody looks on: what was held back."""
        held, self._held = self._held, ""
        return held

    def _tell(self, held: str, at: int, decided: int, edits: Sequence[Edit]) -> None:
        """What has become of the text that is decided, from its character `at` on."""
        if self.changes is None:
            return
        for begin, end, instead in edits:
            self.changes.keep(held[at:begin])
            self.changes.put(held[begin:end], instead)
            at = end
        self.changes.keep(held[at:decided])

    def _cleared(self, held: str, decided: int) -> str:
        if not decided:
            self._held = held
            return ""
        offset = len(self._before)
        text = self._before + held
        end = offset + decided
        shown: str | None = None
        for place, watch in enumerate(self._watches):
            at = offset + self._skipped[place]
            pieces: list[str] = []
            edits: list[Edit] = []
            for found in watch.search.find(text, at, end):
                instead = watch.found(found.of, text[found.start : found.end])
                if watch.hides:
                    pieces += (text[at : found.start], instead)
                    edits.append((found.start - offset, found.end - offset, instead))
                at = found.end
            if watch.hides:
                shown = "".join((*pieces, text[at:end]))
                self._tell(held, self._skipped[place], decided, edits)
                if pieces or self._skipped[place]:
                    self.hidden += 1
                    self.edits = edits
            self._skipped[place] = max(0, at - end)
        self._is_inside = any(self._skipped)
        self._before, self._held = text[end - 1 : end], text[end:]
        return text[offset:end] if shown is None else shown
