"""JSON that a model writes as text, such as the arguments of a tool call, looked through as what it
says: `\\u0040` is `@` there.

Each escape becomes the character that it stands for, or, where that has a meaning in JSON, or is
half of one, a stand-in; so patterns find what the client will read, and what is changed is JSON
again.
"""

from __future__ import annotations

import re

_STAND_INS = {
    '\\"': "\ue000",
    "\\\\": "\ue001",
    "\\b": "\ue002",
    "\\f": "\ue003",
    "\\n": "\ue004",
    "\\r": "\ue005",
    "\\t": "\ue006",
}
"""Escapes, and characters of Unicode's private use in their place."""

_PLANE = 0xF0000
"""Stand-ins for all other escapes that have to stay, by what follows their `u`: also for use in
private."""

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?:u[0-9a-fA-F]{4}|.)",
    re.DOTALL,
)
_AT_THE_END = re.compile(r"\\(?:u[0-9a-fA-F]{0,3}\Z|\Z|u[0-9a-fA-F]{4}|.)", re.DOTALL)
"""The escapes of a text that may go on, one after the other; the last may not be whole."""

_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_STAND_IN = re.compile("[\U000f0000-\U000fffff]")
_TAKEN = re.compile("[\ue000-\ue006\U000f0000-\U000fffff]")
_BACK = str.maketrans({stand_in: escape for escape, stand_in in _STAND_INS.items()})


class JSONText:
    """Takes the escapes out of a JSON text that comes in pieces."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    @property
    def holds(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    def push(self, text: str) -> str:
        """More of the text; what it says as far as its escapes are whole."""
        if not text.isascii():
            text = _TAKEN.sub(_as_escapes, text)
        if "\\" not in text and not self._held:
            return text
        text = self._held + text
        whole = _whole(text)
        self._held = text[whole:]
        return _ESCAPE.sub(_said, text[:whole])

    def flush(self) -> str:
        """The text has ended: what was held of it."""
        held, self._held = self._held, ""
        return held if _HALF.fullmatch(held) is None else _ESCAPE.sub(_said, held)


def escaped(text: str) -> str:
    """The JSON that a text without escapes stands for."""
    if text.isascii():
        return text
    return _STAND_IN.sub(_escape, text.translate(_BACK))


def _said(match: re.Match[str]) -> str:
    escape = match.group()
    if escape[1] != "u" or len(escape) < 6:
        return "/" if escape == "\\/" else _STAND_INS.get(escape, escape)
    code = int(escape[2:6], 16)
    if len(escape) > 6:
        low = int(escape[8:], 16)
        whole = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        return chr(_PLANE + code) + chr(_PLANE + low) if whole >= _PLANE else chr(whole)
    # Half a character, or one that JSON wants escaped, or a stand-in, stays as it is.
    if code < 0x20 or code in (0x22, 0x5C) or 0xD800 <= code < 0xE007:
        return chr(_PLANE + code)
    return chr(code)


def _as_escapes(match: re.Match[str]) -> str:
    """The stand-ins for the escapes of a stand-in that somebody has written."""
    units = match.group().encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(_PLANE + code) for code in codes)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()) - _PLANE:04x}"


def _whole(text: str) -> int:
    """Where the last escape ends that is whole, or the text; half a character waits for the other
    half."""
    half = -1
    for match in _AT_THE_END.finditer(text):
        begin = half if half >= 0 and match.start() == half + 6 else match.start()
        escape = match.group()
        if match.end() == len(text) and (len(escape) < 2 or (escape[1] == "u" and len(escape) < 6)):
            return begin
        is_high = begin == match.start() and _HALF.fullmatch(escape) is not None
        half = match.start() if is_high else -1
    return half if half >= 0 and half + 6 == len(text) else len(text)
