"""What is wrong with a template, told to the person who wrote it: where, and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]
"""Where a value stands in a template: keys and list indexes from the outside in."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake.

    Attributes:
        message: what was expected and what to do about it; never a value from the environment.
        path: the dotted path, such as `models[0].provider`; empty for the file as a whole.
        line, column: counted from 1; None where the file could not be read at all.
    """

    message: str
    path: str = ""
    line: int | None = None
    column: int | None = None


class TemplateError(Exception):
    """A template can't be used. Its text has one line a problem: `FILE:LINE: PATH: MESSAGE`.

    Args:
        source: the file or the name that the problems are in.
        problems: all that was found, in the order of the file.
    """

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = sorted(problems, key=lambda each: (each.line or 0, each.column or 0))
        super().__init__("\n".join(self._line(problem) for problem in self.problems))

    def _line(self, problem: Problem) -> str:
        place = self.source if problem.line is None else f"{self.source}:{problem.line}"
        return ": ".join(part for part in (place, problem.path, problem.message) if part)


class UnknownProviderType(LookupError):
    """No provider is of the type that a template names."""

    def __init__(self, type: str, known: Iterable[str]) -> None:
        self.type = type
        self.known = sorted(known)
        super().__init__(
            f"unknown provider type '{type}'"
            f"{did_you_mean(type, self.known) or '; the types are ' + ', '.join(self.known)}"
        )


def dotted(path: KeyPath) -> str:
    """`path` as people write it: `models[0].provider`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` with the nearest of `known`, or nothing if none is near."""
    # Keys differ in case and in `-` against `_` more often than in letters.
    by_shape = {_shape(each): each for each in known}
    nearest = difflib.get_close_matches(_shape(word), by_shape, n=1)
    return f"; did you mean '{by_shape[nearest[0]]}'?" if nearest else ""


def _shape(word: str) -> str:
    return word.lower().replace("-", "_")
