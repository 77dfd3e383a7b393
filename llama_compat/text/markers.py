"""Markers in a text that comes in pieces: finding them without ever showing half of one."""

from __future__ import annotations

from collections.abc import Iterable


def held_back(text: str, markers: Iterable[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a marker.

    Only beginnings count, not a whole marker.
    """
    longest = 0
    for marker in markers:
        for length in range(min(len(marker) - 1, len(text)), longest, -1):
            if text.endswith(marker[:length]):
                longest = length
                break
    return longest


def find_first(text: str, markers: Iterable[str]) -> tuple[int, str] | None:
    """Where the first whole marker in `text` begins, and which it is; of two there, the longer."""
    found = [(at, marker) for marker in markers if (at := text.find(marker)) >= 0]
    return min(found, key=lambda place: (place[0], -len(place[1])), default=None)
