"""What is the same in nearly all events of a stream: all but one text, and numbers that count.

An event that is like the one before it is told by its bytes alone, and so is its text, for a tenth
of what it costs to take it apart.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from llama_compat.guardrails.relayed.fragments import MARKS

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|[^"0-9-]+|-', re.DOTALL)

TEXT = re.compile(rb'[^"\\\x00-\x1f]*(?:\\["\\/bfnrtu][^"\\\x00-\x1f]*)*')
"""The inside of a string in JSON (RFC 8259, section 7)."""

_BEGIN = re.compile(rb'\s*:\s*"')
"""What is between the name of a member and what it says."""

_WORD = re.compile(rb'[^"\\\x00-\x1f]*')
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_DIGITS = frozenset(b"%d" % digit for digit in range(10)) | {b"-"}

_VARYING = frozenset({b'"created_at"', b'"obfuscation"'})
"""Members that are another string each time, and no text."""

_MARKS = frozenset(b'"%b"' % mark.encode() for mark in MARKS)


class ShapedEvents(NamedTuple):
    """Events in a row that are like those before them.

    Attributes:
        ends: where each ends.
        texts: of each the text that differs, as it stands in the JSON.
        words: what else differs in any of them that is no number.
    """

    ends: list[int]
    texts: list[bytes]
    words: list[bytes]


class EventShape:
    """What events are like.

    Args:
        literals: what is the same in all of them.
        slots: what is in between.
    """

    def __init__(self, literals: list[bytes], slots: list[re.Pattern[bytes]]) -> None:
        self._first, *self._literals = literals
        self._slots = slots
        # Nearly all differ in their text alone.
        self._last = self._literals[0] if slots == [TEXT] else None

    def read(self, events: bytes, at: int) -> ShapedEvents:
        """Those events from `at` on that are like the others, up to the first that is not."""
        found = ShapedEvents([], [], [])
        first, last = self._first, self._last
        ends, texts, _ = found
        while events.startswith(first, at):
            begin = at + len(first)
            if last is not None:
                end = events.find(b'"', begin)
                text = events[begin:end]
                if b"\\" not in text:
                    if end < 0 or not events.startswith(last, end):
                        break
                    texts.append(text)
                    at = end + len(last)
                    ends.append(at)
                    continue
            at = self._read_slots(events, begin, found)
            if at < 0:
                break
            ends.append(at)
        return found

    def _read_slots(self, events: bytes, at: int, found: ShapedEvents) -> int:
        """Read what follows the first literal; where the event ends, or -1 where it is another."""
        text = b""
        words: list[bytes] = []
        for slot, literal in zip(self._slots, self._literals, strict=True):
            match = slot.match(events, at)
            if match is None:
                return -1
            at = match.end()
            if not events.startswith(literal, at):
                return -1
            at += len(literal)
            if slot is TEXT:
                text = match[0]
            elif slot is _WORD:
                words.append(match[0])
        found.texts.append(text)
        found.words.extend(words)
        return at


def shape_like(event: bytes, member: str) -> EventShape | None:
    """What events are like that differ from one in its text alone; None where that is not told
    quickly.

    Args:
        event: all of it, with what is around its JSON.
        member: the name of the text.
    """
    before, name, behind = event.partition(b'"%b"' % member.encode())
    begin = _BEGIN.match(behind)
    if begin is None or name in behind or any(each in event for each in _VARYING):
        return None
    text = TEXT.match(behind, begin.end())
    assert text is not None
    if not behind.startswith(b'"', text.end()):
        return None
    return EventShape([before + name + begin[0], behind[text.end() :]], [TEXT])


def shape_of(before: bytes, event: bytes, member: str) -> EventShape | None:
    """What two events have in common that came one after the other; None where they differ in more
    than a text and what counts them.

    Args:
        before, event: all of them, with what is around their JSON.
        member: the name of the text.
    """
    name = b'"%b"' % member.encode()
    literals: list[list[bytes]] = [[]]
    slots: list[re.Pattern[bytes]] = []
    tokens, others = _TOKEN.findall(event), _TOKEN.findall(before)
    if len(tokens) != len(others):
        return None
    for place, (token, other) in enumerate(zip(tokens, others, strict=True)):
        is_value = place > 1 and tokens[place - 1].strip() == b":"
        called = tokens[place - 2] if is_value else b""
        is_string = token[:1] == b'"' and other[:1] == b'"'
        if is_string and called in (name, *_VARYING):
            literals[-1].append(b'"')
            slots.append(TEXT if called == name else _WORD)
            literals.append([b'"'])
        elif token == other:
            literals[-1].append(token)
        elif called not in _MARKS and token[:1] in _DIGITS and other[:1] in _DIGITS:
            slots.append(_NUMBER)
            literals.append([])
        else:
            return None
    return EventShape(list(map(b"".join, literals)), slots) if slots.count(TEXT) == 1 else None
