"""One text of a stream, which its events bring in pieces, and what is shown of each piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.json_text import JSONText, escaped
from llama_compat.guardrails.patterns import TooManyNearMisses
from llama_compat.guardrails.relayed.fragments import Fragment
from llama_compat.guardrails.scanner import TextScanner


class Piece:
    """What one event brings of a text.

    Attributes:
        begin, end: where in the text.
        said: what it says.
        shown: what is shown of it in place of that; None for itself.
        open: whether its last escape goes on in the next event, which has this piece too.
        done: whether all of it is decided.
        of: the text.
    """

    __slots__ = ("begin", "done", "end", "of", "open", "said", "shown")

    def __init__(self, of: RelayedText, begin: int, said: str) -> None:
        self.of = of
        self.begin = begin
        self.end = begin + len(said)
        self.said = said
        self.shown: list[str] | None = None
        self.open = False
        self.done = False

    def rewrite(self) -> None:
        """Have it written anew, whatever is found in it."""
        if self.shown is None:
            self.shown = [self.said[: max(0, self.of.decided - self.begin)]]

    @property
    def text(self) -> str:
        """What is shown of it."""
        text = self.said if self.shown is None else "".join(self.shown)
        return escaped(text) if self.of.in_json else text


class RelayedText:
    """One text as far as it has come. Positions in it are those of what it says: an escape in a
    tool's arguments is the one character that it stands for.

    Args:
        guard: of the request.
        first: the first piece.
        sample: the event that it came in, without it.
        is_kept: whether an event that follows may repeat all of it.

    Attributes:
        came, decided: characters that came, and that were looked through.
        in_json, is_thought, place, marks: as of its pieces.
        sample: as above.
    """

    def __init__(
        self, guard: Guard, first: Fragment, sample: Mapping[str, Any], *, is_kept: bool
    ) -> None:
        self._guard = guard
        self.place = first.place
        self.in_json = first.in_json
        self.is_thought = first.is_thought
        self.marks = first.marks
        self.sample = sample
        watches = guard.watches(first.place)
        self._scanner = TextScanner(watches) if watches else None
        self._escapes = JSONText() if first.in_json and watches else None
        self._pieces: deque[Piece] = deque()
        self._placed = 0
        self._shown: tuple[int, str] | None = None  # from where on it is another, and what
        self._since = 0
        self._hides = False
        self.came = self.decided = 0
        self._is_kept = is_kept
        self._whole: list[str] = []
        self._given: list[str] = []

    @property
    def has_escape(self) -> bool:
        """Whether the last escape that came is not whole yet."""
        return self._escapes is not None and self._escapes.holds

    @property
    def whole(self) -> str:
        """All that came."""
        return "".join(self._whole)

    @property
    def given(self) -> str:
        """All that was decided, as it is shown."""
        text = "".join(self._given)
        return escaped(text) if self.in_json else text

    @property
    def again(self) -> str:
        """What is shown where all of it is repeated, once it has ended."""
        return self.given if self._hides else self.whole

    def push(self, text: str) -> tuple[Piece, bool]:
        """The next piece, looked through, and whether it is new: it is the one before where that
        ended within an escape.

        Raises:
            Blocked: it may not be shown.
        """
        said = text if self._escapes is None else self._escapes.push(text)
        last = self._pieces[-1] if self._pieces and self._pieces[-1].open else None
        if last is None:
            piece = self.add(said)
        else:
            piece = last
            piece.said += said
            piece.end += len(said)
            self._placed += len(said)
        piece.open = self.has_escape
        self.scan(said, text)
        self.settle()
        return piece, last is None

    def add(self, said: str) -> Piece:
        """A piece behind those that are there."""
        piece = Piece(self, self._placed, said)
        self._placed = piece.end
        self._pieces.append(piece)
        return piece

    def skip(self, characters: int) -> None:
        """So many characters were decided before anybody asked for their pieces."""
        self._placed += characters

    def scan(self, said: str, text: str) -> bool:
        """Look through more of it.

        Args:
            said: what that says.
            text: the same as it came.

        Returns:
            Whether something else is shown.

        Raises:
            Blocked: it may not be shown.
        """
        if self._is_kept:
            self._whole.append(text)
        self.came += len(said)
        return self._look(said)

    def _look(self, said: str, *, is_last: bool = False) -> bool:
        scanner = self._scanner
        self._since = self.decided
        if scanner is None:
            self.decided = self.came
            if self._is_kept:
                self._given.append(said)
            return False
        hidden = scanner.hidden
        try:
            shown = scanner.push(said)
            if is_last:
                shown += scanner.flush()
        except TooManyNearMisses:
            self._guard.undecided(self.place, by_patterns=True)
            self._scanner = None
            self.decided = self.came
            return False
        self.decided = self.came - scanner.held
        if self._is_kept:
            self._given.append(shown)
        if scanner.hidden == hidden:
            return False
        self._shown = (self._since, shown)
        self._hides = True
        return True

    def settle(self) -> None:
        """Tell the pieces what was decided since the last time."""
        since, now, shown = self._since, self.decided, self._shown
        self._shown = None
        self._since = now
        for piece in self._pieces:
            begin, end = max(since, piece.begin), min(now, piece.end)
            if begin >= end:
                continue
            if shown is not None:
                if piece.shown is None:
                    piece.shown = [piece.said[: begin - piece.begin]]
                piece.shown.append(shown[1])
                shown = (now, "")
            elif piece.shown is not None:
                piece.shown.append(piece.said[begin - piece.begin : end - piece.begin])
        while self._pieces:
            first = self._pieces[0]
            if first.open or first.end > now:
                break
            first.done = True
            self._pieces.popleft()

    def flush(self) -> None:
        """It has ended, as far as is known.

        Raises:
            Blocked: it may not be shown.
        """
        rest = "" if self._escapes is None else self._escapes.flush()
        if self._pieces and self._pieces[-1].open:
            last = self._pieces[-1]
            last.open = False
            last.said += rest
            last.end += len(rest)
            self._placed += len(rest)
        self.came += len(rest)
        if self.decided < self.came or self._pieces:
            self._look(rest, is_last=True)
            self.settle()
