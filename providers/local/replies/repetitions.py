"""How long what a pattern demands is, with its repetitions written out: `(a{1000}){1000}` is short,
and demands a million characters.

What can only go on in one way llguidance follows to its end, in one go, while all other requests of
the engine wait for the step. Its own bounds do not hold there until seconds have passed.
"""

from __future__ import annotations

import re

from llama_compat.errors import UnsupportedHere

LONGEST = 16_384
"""Characters: a tenth of a second, and longer than what is told by repeating it."""

_PART = re.compile(
    r"""
      \\(?:[pPxuU]\{[^}]*\}?|.)?
    | \[\^?\]?(?:\\.|[^\]\\])*\]?
    | (?P<open>\()(?:\?(?:P?<\w*>|[A-Za-z-]*:?))?
    | (?P<close>\))
    | (?P<or>\|)
    | \{(?P<least>[0-9]+)(?:,[0-9]*)?\}
    | [*+?]
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
_NUMBER_DIGITS = 9


class _Group:
    """What stands in one pair of parentheses so far.

    Attributes:
        last: the length of what a repetition would repeat.
    """

    def __init__(self) -> None:
        self._longest = 0
        self._before = 0
        self.last = 0

    def add(self, length: int) -> None:
        self._before += self.last
        self.last = length

    def repeat(self, times: int) -> None:
        self.last = min(self.last * max(1, times), LONGEST + 1)

    def begin_other(self) -> None:
        self._longest = self.length
        self._before = self.last = 0

    @property
    def length(self) -> int:
        return min(max(self._longest, self._before + self.last), LONGEST + 1)


def spelt_out(pattern: str) -> int:
    """How many characters `pattern` demands in a row at most, wherever it has come to; of more than
    `LONGEST` only that there are more. What is malformed counts as something or other."""
    groups = [_Group()]
    for part in _PART.finditer(pattern):
        if part["open"]:
            groups.append(_Group())
        elif part["close"]:
            if len(groups) > 1:
                inner = groups.pop()
                groups[-1].add(inner.length)
        elif part["or"]:
            groups[-1].begin_other()
        elif part["least"]:
            groups[-1].repeat(int(part["least"].lstrip("0")[:_NUMBER_DIGITS] or 0))
        elif part[0] not in ("*", "+", "?"):
            groups[-1].add(1)
    while len(groups) > 1:
        inner = groups.pop()
        groups[-1].add(inner.length)
    return groups[0].length


def not_enforced(path: str, message: str) -> UnsupportedHere:
    """400: no reply can be held to what stands at `path` here; another may be able to."""
    return UnsupportedHere(400, message, param=path, code="invalid_value")


def check_repetitions(pattern: str, path: str) -> None:
    """See that a pattern can be followed.

    Raises:
        APIError: 400 naming `path`: it demands too much.
    """
    if spelt_out(pattern) > LONGEST:
        raise not_enforced(
            path,
            f"'{path}' can't be enforced: with its repetitions written out it demands more than"
            f" {LONGEST} characters.",
        )
