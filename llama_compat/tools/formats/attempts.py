"""The ways in which formats read what began like a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from llama_compat.tools.formats.base import Verdict, WrittenCall
from llama_compat.wire.json_scanner import JSONScanner

Reader = Callable[[str], Sequence[WrittenCall] | None]
"""Reads the complete text of an attempt; None if it is no call."""

MAX_HEAD = 256


class Head:
    """The first characters of an attempt, which decide early whether it can be a call.

    Args:
        viable: matches every beginning of a head that can still become one.
        complete: matches a head that has become one.
    """

    def __init__(self, viable: str, complete: str) -> None:
        self.text = ""
        self.match: re.Match[str] | None = None
        self._viable = re.compile(viable)
        self._complete = re.compile(complete)

    def feed(self, text: str) -> int | None:
        """More of the attempt; the offset of the character that makes it no call, if one does.

        What comes after `match` is set does not matter any more.
        """
        for at, character in enumerate(text):
            if self.match is not None:
                return None
            self.text += character
            if len(self.text) > MAX_HEAD or not self._viable.fullmatch(self.text):
                return at
            self.match = self._complete.fullmatch(self.text)
        return None


class Scanner(Protocol):
    """Finds the end of a bracketed text, as `JSONScanner` does."""

    broken: bool

    def feed(self, piece: str) -> int | None:
        """The offset behind the end, or at which the text is broken; None while more is needed."""


class ScannedAttempt:
    """Reads to the bracket that closes the first one.

    Args:
        read: makes the calls of the text between them.
        scanner: finds the end; by default that of a JSON object or array.
        head: decides before the end is found.
    """

    def __init__(
        self, read: Reader, *, scanner: Scanner | None = None, head: Head | None = None
    ) -> None:
        self._read = read
        self._scanner = scanner or JSONScanner()
        self._head = head
        self._pieces: list[str] = []

    def feed(self, text: str) -> Verdict | None:
        """More text; a verdict at the closing bracket, or where it is clear that none comes."""
        unviable = self._head.feed(text) if self._head else None
        end = self._scanner.feed(text)
        if unviable is not None and (end is None or unviable < end):
            return Verdict(None, text[unviable:])
        if end is None:
            self._pieces.append(text)
            return None
        if self._scanner.broken:
            return Verdict(None, text[end:])
        self._pieces.append(text[:end])
        return Verdict(self._read("".join(self._pieces)), text[end:])

    def end(self) -> Verdict:
        """The closing bracket never came."""
        return Verdict(None, "")


class RestAttempt:
    """Reads to the end of the reply."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._pieces: list[str] = []

    def feed(self, text: str) -> Verdict | None:
        """More text, of which nothing can be said yet."""
        self._pieces.append(text)
        return None

    def end(self) -> Verdict:
        """The reply has ended."""
        return Verdict(self._read("".join(self._pieces)), "")
