"""A text that comes in pieces, on its way through the checks of its request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from llama_compat.guardrails.asked.entities import EntityScanner
from llama_compat.guardrails.checks import END
from llama_compat.guardrails.json_text import JSONText, escaped
from llama_compat.guardrails.patterns import TooManyNearMisses
from llama_compat.guardrails.scanner import TextScanner
from llama_compat.guardrails.settings import Place
from llama_compat.text.changes import Changes, InTurn

if TYPE_CHECKING:
    from llama_compat.guardrails.guard import Guard


class GuardedText:
    """One text that comes in pieces, on its way through the checks.

    Args:
        guard: of its request.
        place: where it stands.
        in_json: whether it is JSON, which is looked through as what it says.
        is_reply: whether it is a part of the reply, in which what was hidden is put back.
        is_said: whether somebody says it, as in `Guard.text`.
        counts_bytes: how places are counted in it, where it is asked what becomes of them: in bytes
            or in characters. Of JSON that is not known.

    Attributes:
        changes: that.
    """

    __slots__ = (
        "_entities",
        "_escapes",
        "_guard",
        "_hides",
        "_place",
        "_restorer",
        "_scanner",
        "changes",
    )

    def __init__(
        self,
        guard: Guard,
        place: Place,
        *,
        in_json: bool = False,
        is_reply: bool = False,
        is_said: bool = True,
        counts_bytes: bool | None = None,
    ) -> None:
        self._guard = guard
        self._place = place
        watches = guard.watches(place)
        self._scanner = TextScanner(watches) if watches else None
        self._entities = guard.entity_scanners(place, in_json=in_json) if is_said else []
        self._escapes = JSONText() if in_json and (watches or self._entities) else None
        self._restorer = guard.restorer(in_json=in_json) if is_reply else None
        self._hides = False
        changes: list[Changes] = []
        for each in (self._scanner, *self._entities, self._restorer):
            if each is not None and counts_bytes is not None:
                each.changes = Changes(in_bytes=counts_bytes)
                changes.append(each.changes)
        self.changes = InTurn(changes)

    @property
    def holds(self) -> bool:
        """Whether anything of it is held back."""
        parts = (self._escapes, self._scanner, *self._entities, self._restorer)
        return any(each is not None and each.holds for each in parts)

    @property
    def room(self) -> int:
        """So many characters may come before it takes long to look through them."""
        return min((each.room for each in self._entities), default=END)

    @property
    def may_differ(self) -> bool:
        """Whether it may be another than the one that came."""
        return self._restorer is not None or self._hides

    def push(self, text: str) -> str:
        """More of it; what can be shown now.

        Raises:
            Blocked: no more of it may be shown.
        """
        if self._escapes is not None:
            text = self._escapes.push(text)
        if self._scanner is not None:
            text = self._shown(text, self._scanner.push)
        for each in self._entities:
            text = self._without(each, text)
        return self._finished(text)

    def flush(self) -> str:
        """It has ended: what was held back of it; as `push`."""
        text = self._escapes.flush() if self._escapes is not None else ""
        if self._scanner is not None:
            text = self._shown(text, self._scanner.push)
        if self._scanner is not None:
            text += self._shown("", self._flushed)
        for each in self._entities:
            text = self._without(each, text, is_last=True)
        text = self._finished(text)
        return text if self._restorer is None else text + self._restorer.flush()

    def _without(self, scanner: EntityScanner, text: str, *, is_last: bool = False) -> str:
        shown = scanner.push(text)
        if is_last:
            shown += scanner.flush()
        self._hides = self._hides or scanner.hidden
        return shown

    def _shown(self, text: str, scan: Callable[[str], str]) -> str:
        scanner = self._scanner
        assert scanner is not None
        try:
            shown = scan(text)
            self._hides = self._hides or scanner.hidden > 0
            return shown
        except TooManyNearMisses:
            self._guard.undecided(self._place, by_patterns=True)
            self._scanner = None
            return scanner.give_up() + text

    def _flushed(self, _: str) -> str:
        return "" if self._scanner is None else self._scanner.flush()

    def _finished(self, text: str) -> str:
        if self._escapes is not None:
            text = escaped(text)
        return text if self._restorer is None else self._restorer.push(text)


def seen_together(guard: Guard, place: Place, texts: Sequence[str]) -> list[str]:
    """What is shown of texts that were looked through one by one, and are read as one: a value that
    is cut over several of them is found where they are put together, and in a reply put back.

    The word for one that is hidden stands where it begins, and in what is asked in place of each
    text that had nothing else: not every vendor takes an empty one.

    Args:
        guard: of the request.
        place: where they stand.
        texts: they, in their order.

    Raises:
        Blocked: they may not be shown.
    """
    whole = "".join(texts)
    comes_back = guard.puts_back and place == "output"
    if not comes_back and guard.checks.has_nothing_but_escapes(place, whole):
        return [*texts]
    begins = [0, *accumulate(map(len, texts))]
    hidden: list[tuple[int, int, str]] = []
    try:
        for watch in guard.watches(place):
            for found in watch.search.find(whole, 0, len(whole)):
                start, end = found.start, found.end
                if not any(start < each < end for each in begins):
                    continue  # It was found where it stands.
                instead = watch.found(found.of, whole[start:end])
                if watch.hides:
                    hidden.append((start, end, instead))
    except TooManyNearMisses:
        guard.undecided(place, by_patterns=True)
    if comes_back:
        found_words = guard.words_in(whole)
        hidden += [word for word in found_words if any(word[0] < each < word[1] for each in begins)]
    shown = [*texts]
    for start, end, instead in sorted(hidden, reverse=True):
        for index in reversed(range(len(texts))):
            begin, stop = max(start, begins[index]), min(end, begins[index + 1])
            if begin >= stop:
                continue
            text, at = shown[index], begin - begins[index]
            rest = text[:at], text[at + stop - begin :]
            fills = place != "output" and not any(rest)
            shown[index] = (instead if begin == start or fills else "").join(rest)
    return shown


def is_json(place: Place, text: str) -> bool:
    """Whether a text that stands at `place` is looked through as what it says as JSON."""
    return "\\" in text and (place == "tool_arguments" or text.lstrip()[:1] in ("{", "["))
