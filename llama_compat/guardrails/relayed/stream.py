"""A stream that is relayed, on its way through the checks.

Its texts are looked through as they grow. An event waits until its own are decided, and goes on as
the bytes that it came as. One in which something is hidden is written anew, in its own form; of a
stream in which something is blocked nothing follows but its API's words for that.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import SaidText, Withheld
from llama_compat.guardrails.documents import without_tokens
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.relayed.fragments import (
    Fragment,
    Marks,
    begins_another,
    fragments,
    is_end,
    kind_of,
    marks_of,
    put,
    unsealed,
)
from llama_compat.guardrails.relayed.framing import DATA, end_of_event, one_lined
from llama_compat.guardrails.relayed.places import NAMED, moved
from llama_compat.guardrails.relayed.shapes import EventShape, ShapedEvents, shape_like, shape_of
from llama_compat.guardrails.relayed.texts import Piece, RelayedPart, RelayedText
from llama_compat.text.changes import Changes
from llama_compat.wire import sse
from llama_compat.wire.json_fields import encode_json, from_raw

_SEALED = re.compile(rb'ignature"')

_PLACED = re.compile(rb'"(?:%b)"\s*:(?!\s*(?:\[\s*\]|null))' % "|".join(NAMED).encode())

_MOST_TOLD = 10_000
"""So many events are remembered that are no piece of a text."""

_At = tuple[str | int, ...]


class _Held:
    """An event that waits for its texts to be decided.

    Attributes:
        raw: its bytes.
        pieces: of texts, where in it they are, and whether they begin in it.
        event: what its JSON says without them; None where nobody looked.
        changed: whether that is another than `raw` says.
        ended: the parts that end with it, which it may repeat; None where it was looked through.
    """

    __slots__ = ("changed", "ended", "event", "pieces", "raw")

    def __init__(
        self,
        raw: bytes,
        pieces: Sequence[tuple[Piece, _At, bool]] = (),
        event: Any = None,
        *,
        changed: bool = False,
        ended: Sequence[RelayedPart] | None = None,
    ) -> None:
        self.raw = raw
        self.pieces = pieces
        self.event = event
        self.changed = changed
        self.ended = ended


class GuardedStream:
    """One stream, with one reply in it.

    Args:
        guard: of the request.
        withheld: ends a stream of this API of which no more may be shown; None where that takes an
            error.
        fields: the request's members.
        counts_bytes: whether its API tells places in texts in bytes.

    Attributes:
        blocked: why no more of it may be shown, whose end is there then; None where it may.
    """

    def __init__(
        self,
        guard: Guard,
        withheld: Withheld | None,
        fields: Mapping[str, Raw],
        *,
        counts_bytes: bool = False,
    ) -> None:
        self._guard = guard
        self._counts_bytes = counts_bytes
        self._withheld = withheld
        self._fields = fields
        self._texts: dict[tuple[Any, ...], RelayedText] = {}
        self._parts: dict[tuple[Any, ...], RelayedPart] = {}
        self._words: RelayedText | None = None
        self._queue: deque[_Held] = deque()
        self._tail: deque[tuple[bytes, str]] = deque()  # like the one before, and in no queue yet
        self._tail_size = 0
        self._shape: EventShape | None = None
        self._last: tuple[RelayedPart, _At, bytes] | None = None
        self._told: list[Mapping[str, Any]] = []
        self._known: dict[str, str] = {}
        self._thoughts_changed = False
        self.blocked: Blocked | None = None

    def push(self, events: bytes) -> bytes:
        """What the client gets now that these events have come, which are whole."""
        out: list[bytes] = []
        try:
            at = 0
            while at < len(events):
                at = self._quick(events, at, out)
                if at < len(events):
                    at = self._take_one(events, at)
                    self._release(out)
        except Blocked as stop:
            self._end(out, stop)
        return b"".join(out)

    def finish(self) -> bytes:
        """What the client gets when all events have come."""
        out: list[bytes] = []
        try:
            self._queue_tail()
            for text in self._texts.values():
                text.flush()
            self._release(out)
        except Blocked as stop:
            self._end(out, stop)
        return b"".join(out)

    def withhold(self, events: bytes, stop: Blocked) -> bytes:
        """What the client gets where these events may not be shown, for what is in no text."""
        out: list[bytes] = []
        if not (self._told or self._texts):
            self._tell_frame(events[: end_of_event(events, 0)])
        self._end(out, stop)
        return b"".join(out)

    def _tell_frame(self, raw: bytes) -> None:
        """Have the end named as an event is that is not shown, in APIs whose events all are."""
        match = DATA.fullmatch(raw)
        try:
            event: Any = {} if match is None else from_raw(Raw(match[2]))
            frame = {name: each for name, each in event.items() if isinstance(each, str | int)}
            if not kind_of(event):
                shown = self._guard.said(frame)
                self._told.append({**shown, "choices": []} if "choices" in event else shown)
        except (ValueError, Blocked):
            pass  # it ends without a name

    def _end(self, out: list[bytes], stop: Blocked) -> None:
        with suppress(Blocked):  # it ends there all the same
            self._release(out)
        self.blocked = stop
        if self._withheld is None:
            return
        said = [SaidText(each.sample, each.given) for each in self._begun()]
        out.append(self._withheld(self._told, said, self._fields))

    def _begun(self) -> list[RelayedPart]:
        """The parts that the client knows of: those that came behind what never goes on it does
        not."""
        parts = list(self._parts.values())
        shown: set[RelayedPart] = set()
        for held in self._queue:
            if not held.pieces:
                return [each for each in parts if each.has_gone or each in shown]
            shown |= {piece.part for piece, _, _ in held.pieces}
        return parts

    # Events that are like those before them -------------------------------------------------------

    def _quick(self, events: bytes, at: int, out: list[bytes]) -> int:
        """Take the events from `at` on that are so; where the first begins that is not."""
        shape, last = self._shape, self._last
        if shape is None or last is None:
            return at
        found = shape.read(events, at)
        part = last[0]
        text = part.text
        texts = _decoded(found.texts)
        if not texts:
            return at
        if (found.words or text.in_json) and not self._may_be_quick(found, text, texts):
            return at
        if self._words is not text:
            self._switch(text)
        said = "".join(texts)
        changed = part.scan(said)
        if self._queue and not changed:
            text.settle()
            self._release(out)
        if self._queue or changed:
            at = self._wait(events, at, found.ends, texts)
            self._queue_tail()
            self._release(out)
            return at
        undecided = text.came - text.decided
        first, size = len(texts), 0
        while first and size < undecided:
            first -= 1
            size += len(texts[first])
        if size >= undecided:
            # Only of these does anything wait: all before goes on, as one piece of bytes.
            self._let_go(0, part, out)
            if first:
                out.append(events[at : found.ends[first - 1]])
                part.skip(said[: len(said) - size])
                at = found.ends[first - 1]
        at = self._wait(events, at, found.ends[first:], texts[first:])
        self._let_go(undecided, part, out)
        return at

    def _let_go(self, undecided: int, part: RelayedPart, out: list[bytes]) -> None:
        """Have those go on that wait, up to the first with any of so many last characters."""
        tail = self._tail
        while tail and self._tail_size - len(tail[0][1]) >= undecided:
            raw, each = tail.popleft()
            self._tail_size -= len(each)
            part.skip(each)
            out.append(raw)

    def _wait(self, events: bytes, at: int, ends: Sequence[int], texts: Sequence[str]) -> int:
        """Have the events from `at` on wait, with these ends and texts; where the last one ends."""
        for end, each in zip(ends, texts, strict=True):
            self._tail.append((events[at:end], each))
            self._tail_size += len(each)
            at = end
        return at

    def _may_be_quick(self, found: ShapedEvents, text: RelayedText, texts: Sequence[str]) -> bool:
        if text.in_json and (text.has_escape or any("\\" in each for each in texts)):
            return False
        for word in found.words:
            if not self._guard.checks.has_nothing("output", word.decode(errors="replace")):
                return False
        return True

    def _queue_tail(self) -> None:
        """From here on each event is looked at for itself."""
        if self._last is None:
            return
        part, where, _ = self._last
        for raw, said in self._tail:
            self._queue.append(_Held(raw, ((part.text.add(said, part), where, True),)))
        self._tail.clear()
        self._tail_size = 0
        part.text.settle()

    # All others -----------------------------------------------------------------------------------

    def _take_one(self, events: bytes, at: int) -> int:
        """Take the event that begins at `at`; where the next one does."""
        self._queue_tail()
        end = end_of_event(events, at)
        raw = events[at:end]
        if DATA.fullmatch(raw) is None:
            self._take_odd(raw)
        else:
            self._take(raw)
        return end

    def _take_odd(self, raw: bytes) -> None:
        """An event that is not one line of JSON: a comment, the end, or several lines of data."""
        if raw == sse.DONE or not raw.strip():
            self._queue.append(_Held(raw))
            return
        for line in one_lined(raw):
            if line is None:
                self._take_odd_text(raw)
                return
            self._take(line)

    def _take_odd_text(self, raw: bytes) -> None:
        """What nobody reads as JSON goes by if there is nothing in it."""
        text = raw.decode(errors="replace")
        if self._guard.said(text) == text:
            self._queue.append(_Held(raw))

    def _take(self, raw: bytes) -> None:
        """An event of one line of JSON."""
        match = DATA.fullmatch(raw)
        assert match is not None
        if b":" in match[1][:-6]:  # what it is called, or its number
            head = match[1].decode(errors="replace")
            if self._guard.said(head) != head:
                raw = b"data: %b%b" % (match[2], match[3])
        try:
            event: Any = from_raw(Raw(match[2]))
        except ValueError:
            # Who reads on all the same reads its escapes as what they say.
            text = match[2].decode(errors="replace")
            if self._guard.said(text) == text:
                self._take_odd_text(raw)
            return
        pieces = fragments(event)
        if not pieces:
            self._take_other(raw, event)
            return
        for each in pieces:
            put(event, each.at, "")
        rest = self._guard.said(event, self._known)
        changed = rest is not event
        held: list[tuple[Piece, _At, bool]] = []
        for each in pieces:
            part = self._part(each, rest)
            self._switch(part.text)
            piece, begins = part.push(each.text)
            piece.changed = piece.changed or changed
            held.append((piece, each.at, begins))
        self._queue.append(_Held(raw, held, rest, changed=changed))
        ends = is_end(event)
        if ends:
            self._flush_ended(self._ended(event), event)
        if len(pieces) == 1 and not (ends or changed):
            self._learn(raw, held[0][0].part, pieces[0].at)
        else:
            self._shape, self._last = None, None

    def _take_other(self, raw: bytes, event: Any) -> None:
        """An event without a piece of a text, which may repeat those before it: it is looked
        through when they have gone on."""
        ended: list[RelayedPart] = []
        if is_end(event):
            ended = self._ended(event)
            self._flush_ended(ended, event)
        elif self._words is not None and begins_another(event, self._words.strand):
            self._words.flush()
        self._queue.append(_Held(raw, (), event, ended=ended))

    def _part(self, piece: Fragment, event: Mapping[str, Any]) -> RelayedPart:
        part = self._parts.get(piece.part)
        if part is None:
            text = self._texts.get(piece.of)
            if text is None:
                text = self._texts[piece.of] = RelayedText(self._guard, piece)
            is_kept = bool(kind_of(event))
            changes = Changes(in_bytes=self._counts_bytes)
            part = RelayedPart(text, piece, event, changes, is_kept=is_kept)
            self._parts[piece.part] = part
        return part

    def _learn(self, raw: bytes, part: RelayedPart, at: _At) -> None:
        """An event shows what the others will be like; two of one text in a row, what differs."""
        last, self._last = self._last, (part, at, raw)
        self._shape = None
        member = at[-1]
        if not isinstance(member, str) or _PLACED.search(raw) is not None:
            return  # Places are numbers, and not of those that count.
        if last is not None and last[0] is part and last[1] == at:
            self._shape = shape_of(last[2], raw, member)
        if self._shape is None:
            self._shape = shape_like(raw, member)

    # Texts that end -------------------------------------------------------------------------------

    def _switch(self, text: RelayedText) -> None:
        """The model goes on in `text`: what it said elsewhere has ended."""
        words = self._words
        if words is text or text.repeats:
            return
        self._words = text if text.place == "output" else None
        if words is not None:
            words.flush()

    def _ended(self, event: Mapping[str, Any]) -> list[RelayedPart]:
        marks = set(marks_of(event))
        return [each for each in self._parts.values() if marks <= set(each.marks)]

    def _flush_ended(self, ended: Sequence[RelayedPart], event: Mapping[str, Any]) -> None:
        """Parts have ended, and with the reply the texts that go on in others."""
        is_all = not (kind_of(event) and marks_of(event))
        for each in ended:
            if is_all or each.text.strand is None:
                each.text.flush()

    # Events that go on ----------------------------------------------------------------------------

    def _release(self, out: list[bytes]) -> None:
        queue = self._queue
        while queue:
            for piece, _, _ in queue[0].pieces:
                if not piece.done:
                    return
            held = queue.popleft()
            if held.ended is not None:
                self._look_through(held, held.ended)
            for piece, _, begins in held.pieces:
                if begins:
                    piece.part.give(piece)
            out.append(self._rendered(held))
            event = held.event
            if not isinstance(event, dict) or len(self._told) >= _MOST_TOLD:
                continue
            if not held.pieces or kind_of(event).endswith("start"):
                self._told.append(event)

    def _look_through(self, held: _Held, ended: Sequence[RelayedPart]) -> None:
        for part in ended:
            if whole := part.whole:
                self._known[whole] = part.again
        try:
            shown = self._guard.said(held.event, self._known)
        except Blocked:
            self._queue.clear()  # nothing that came behind it goes on
            raise
        held.changed = shown is not held.event
        held.event = shown

    def _rendered(self, held: _Held) -> bytes:
        changed = held.changed
        for piece, _, _ in held.pieces:
            if piece.changed:
                changed = True
                is_thought = piece.part.text.strand == "thought"
                self._thoughts_changed |= is_thought and bool(piece.edits)
        is_sealed = self._thoughts_changed and _SEALED.search(held.raw) is not None
        is_changed = any(each.changes.are_some for each in self._parts.values())
        is_odd = held.event is None and not held.pieces
        is_placed = is_changed and not is_odd and _PLACED.search(held.raw) is not None
        if not changed and not is_sealed and not is_placed:
            return held.raw
        match = DATA.fullmatch(held.raw)
        assert match is not None
        event = from_raw(Raw(match[2])) if held.event is None else deepcopy(held.event)
        if is_placed:
            event = moved(event, self._changes_of)
        try:
            for piece, at, begins in held.pieces:
                put(event, at, piece.text if begins else "")
        except LookupError:
            return b""  # what leads to it was hidden
        if held.pieces:
            event = without_tokens(event)
        if is_sealed:
            event = unsealed(event)
        return b"%b%b%b" % (match[1], encode_json(event), match[3])

    def _changes_of(self, text: str | None, marks: Marks) -> Changes | None:
        """What has become of a text: of one that is repeated, or of the one with these marks."""
        parts = [each for each in self._parts.values() if each.text.strand == "text"]
        parts = [each for each in parts if text is not None and each.given == text] or parts
        fitting = [each for each in parts if set(each.marks) <= set(marks)] or parts[:1]
        return max(fitting, key=lambda each: len(each.marks)).changes if fitting else None


def _decoded(found: Sequence[bytes]) -> list[str]:
    """The texts of some events; none where they have to be looked at one by one."""
    texts: list[str] = []
    try:
        for text in found:
            if b"\\" not in text:
                texts.append(text.decode())
            elif b"\\u" in text:
                return []
            else:
                texts.append(from_raw(Raw(b'"%b"' % text)))
    except ValueError:
        return []
    return texts
