"""Where a JSON object or array ends, in a text that comes in pieces."""

from __future__ import annotations

import re

_OUTSIDE_STRING = re.compile(r"[^\s,:0-9eE+\-.truefalsn]")
"""The next character that is not part of a number, a word, a separator or a blank."""

_IN_STRING = re.compile(r'["\\\x00-\x1f]')

_CLOSES = {"}": "{", "]": "["}


class JSONScanner:
    """Looks at every character once; it finds the end, it does not check all of the grammar.

    Attributes:
        whole: the object or array is complete.
        broken: what came is no JSON object or array.
    """

    def __init__(self) -> None:
        self.whole = False
        self.broken = False
        self._open: list[str] = []
        self._in_string = False
        self._escaped = False

    def feed(self, piece: str) -> int | None:
        """More of the text.

        Returns:
            The offset in `piece` after the closing bracket, or of the character at which the text
            is broken; None while more is needed.
        """
        at = 0
        while at < len(piece):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_IN_STRING if self._in_string else _OUTSIDE_STRING).search(piece, at)
            if not self._open and piece[at : match.start() if match else None].strip():
                self.broken = True
                return at
            if match is None:
                return None
            at = match.end()
            self._take(match[0])
            if self.broken:
                return at - 1
            if self.whole:
                return at
        return None

    def _take(self, mark: str) -> None:
        if self._in_string:
            if mark == '"':
                self._in_string = False
            elif mark == "\\":
                self._escaped = True
            else:
                self.broken = True
        elif mark in "{[":
            self._open.append(mark)
        elif mark == '"' and self._open:
            self._in_string = True
        elif self._open and self._open[-1] == _CLOSES.get(mark):
            self._open.pop()
            self.whole = not self._open
        else:
            self.broken = True
