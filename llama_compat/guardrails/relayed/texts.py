"""The texts of a stream, which its events bring in pieces, over one part of a reply or several, and
what is shown of each piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.json_text import JSONText, escaped
from llama_compat.guardrails.patterns import TooManyNearMisses
from llama_compat.guardrails.relayed.fragments import Fragment
from llama_compat.guardrails.scanner import Edit, TextScanner
from llama_compat.text.changes import Changes


class Piece:
    """What one event brings of a text.

    Attributes:
        begin, end: where in the text.
        said: what it says.
        edits: where in the text another is shown than came, as far as that is in the piece.
        open: whether its last escape goes on in the next event, which has this piece too.
        done: whether all of it is decided.
        changed: whether the events that bring it are written anew.
        part: the part of the reply that it is in.
    """

    __slots__ = ("begin", "changed", "done", "edits", "end", "open", "part", "said")

    def __init__(self, part: RelayedPart, begin: int, said: str) -> None:
        self.part = part
        self.begin = begin
        self.end = begin + len(said)
        self.said = said
        self.edits: list[Edit] = []
        self.changed = self.open = self.done = False

    def grow(self, said: str) -> None:
        """More of it."""
        self.said += said
        self.end += len(said)

    def runs(self) -> Iterator[tuple[str, str | None]]:
        """What it says, cut where something else is shown, and that; None where nothing is."""
        at = self.begin
        for begin, end, instead in self.edits:
            since, at = at, max(begin, at)
            yield self.said[since - self.begin : at - self.begin], None
            since, at = at, min(end, self.end)
            hidden = self.said[since - self.begin : at - self.begin]
            yield hidden, instead if begin >= self.begin else ""
        yield self.said[at - self.begin :], None

    @property
    def shown(self) -> str:
        """What is shown of what it says."""
        return "".join(said if instead is None else instead for said, instead in self.runs())

    @property
    def text(self) -> str:
        """The same as it is written."""
        return escaped(self.shown) if self.part.text.in_json else self.shown


class RelayedPart:
    """One part of a reply, such as a block, as far as it has come: a text, or a piece of one that
    goes on in other parts.

    Args:
        text: what is read as one with it.
        first: the first piece.
        sample: the event that it came in, without it.
        changes: what has become of what has gone on, which is nothing yet.
        is_kept: whether an event that follows may repeat all of it.

    Attributes:
        text, sample, changes: as above.
        marks: as of its pieces.
        has_gone: whether any of it has gone on.
    """

    def __init__(
        self,
        text: RelayedText,
        first: Fragment,
        sample: Mapping[str, Any],
        changes: Changes,
        *,
        is_kept: bool,
    ) -> None:
        self.text = text
        self.marks = first.marks
        self.sample = sample
        self._is_kept = is_kept
        self._whole: list[str] = []
        self._given: list[str] = []
        self._hides = False
        self.has_gone = False
        self.changes = changes

    @property
    def whole(self) -> str:
        """All that came."""
        return "".join(self._whole)

    @property
    def given(self) -> str:
        """All that has gone on, as it is shown."""
        text = "".join(self._given)
        return escaped(text) if self.text.in_json else text

    @property
    def again(self) -> str:
        """What is shown where all of it is repeated, once it has gone on."""
        return self.given if self._hides else self.whole

    def push(self, text: str) -> tuple[Piece, bool]:
        """The next piece, as `RelayedText.push`."""
        if self._is_kept:
            self._whole.append(text)
        return self.text.push(text, self)

    def scan(self, said: str) -> bool:
        """Look through more of it that has no escapes, as `RelayedText.scan`."""
        if self._is_kept:
            self._whole.append(said)
        return self.text.scan(said)

    def skip(self, said: str) -> None:
        """This has gone on as it came, before anybody asked for its pieces."""
        self.has_gone = True
        self.changes.keep(said)
        if self._is_kept:
            self._given.append(said)
        self.text.skip(len(said))

    def give(self, piece: Piece) -> None:
        """A piece has gone on."""
        self.has_gone = True
        self._hides = self._hides or bool(piece.edits)
        if not piece.edits:
            self.changes.keep(piece.said)
        for said, instead in piece.runs() if piece.edits else ():
            if instead is None:
                self.changes.keep(said)
            else:
                self.changes.put(said, instead)
        if self._is_kept:
            self._given.append(piece.shown)


class RelayedText:
    """One text as far as it has come, in one part of a reply or in several. Positions in it are
    those of what it says: an escape in a tool's arguments is the one character that it stands for.

    Args:
        guard: of the request.
        first: the first piece.

    Attributes:
        came, decided: characters that came, and that were looked through.
        in_json, strand, place, repeats: as of its pieces.
    """

    def __init__(self, guard: Guard, first: Fragment) -> None:
        self._guard = guard
        self.place = first.place
        self.in_json = first.in_json
        self.strand = first.strand
        self.repeats = first.repeats
        watches = guard.watches(first.place)
        self._scanner = TextScanner(watches) if watches else None
        self._escapes = JSONText() if first.in_json and watches else None
        self._pieces: deque[Piece] = deque()
        self._edits: list[Edit] = []  # of which no piece was told
        self._placed = 0
        self.came = self.decided = 0

    @property
    def has_escape(self) -> bool:
        """Whether the last escape that came is not whole yet."""
        return self._escapes is not None and self._escapes.holds

    def push(self, text: str, part: RelayedPart) -> tuple[Piece, bool]:
        """The next piece, looked through, and whether it is new: it is the one before where that
        ended within an escape.

        Raises:
            Blocked: it may not be shown.
        """
        said = text if self._escapes is None else self._escapes.push(text)
        last = self._pieces[-1] if self._pieces and self._pieces[-1].open else None
        if last is None:
            piece = self.add(said, part)
        else:
            piece = last
            piece.grow(said)
            self._placed += len(said)
        piece.open = self.has_escape
        self.scan(said)
        self.settle()
        return piece, last is None

    def add(self, said: str, part: RelayedPart) -> Piece:
        """A piece behind those that are there."""
        piece = Piece(part, self._placed, said)
        self._placed = piece.end
        self._pieces.append(piece)
        return piece

    def skip(self, characters: int) -> None:
        """So many characters were decided before anybody asked for their pieces."""
        self._placed += characters

    def scan(self, said: str) -> bool:
        """Look through more of it.

        Returns:
            Whether something else is shown.

        Raises:
            Blocked: it may not be shown.
        """
        self.came += len(said)
        scanner = self._scanner
        return self._decide(None if scanner is None else scanner.push, said)

    def _decide(self, scan: Callable[..., str] | None, *said: str) -> bool:
        scanner = self._scanner
        if scanner is None or scan is None:
            self.decided = self.came
            return False
        hidden, since = scanner.hidden, self.decided
        try:
            scan(*said)
        except TooManyNearMisses:
            self._guard.undecided(self.place, by_patterns=True)
            self._scanner = None
            self.decided = self.came
            return False
        self.decided = self.came - scanner.held
        if scanner.hidden == hidden:
            return False
        self._edits += [(since + begin, since + end, word) for begin, end, word in scanner.edits]
        return True

    def settle(self) -> None:
        """Tell the pieces what was decided since the last time."""
        for begin, end, word in self._edits:
            for piece in self._pieces:
                if max(begin, piece.begin) < min(end, piece.end):
                    piece.edits.append((begin, end, word))
                    piece.changed = True
        self._edits.clear()
        while self._pieces:
            first = self._pieces[0]
            if first.open or first.end > self.decided:
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
            last.grow(rest)
            self._placed += len(rest)
        if self.decided < self.came + len(rest) or self._pieces:
            self.scan(rest)
            scanner = self._scanner
            self._decide(None if scanner is None else scanner.flush)
            self.settle()
