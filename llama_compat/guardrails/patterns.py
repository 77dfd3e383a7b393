"""Patterns that are found in time linear in the text, whatever the text, and how long a match is.

RE2 finds them (https://github.com/google/re2). That a match has a longest length, and only certain
characters, is what a stream is held back by: a text is shown as far as no match can reach it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

from msgspec import Struct

LONGEST = 1000
"""Characters; a pattern whose matches may be longer is refused, as streams would wait for it."""

MOST_NEAR_MISSES = 50_000
"""So many matches of one pattern in one text are no matches at a second look; that is seconds of
work. After that nobody looks on."""


def whole(text: str) -> int:
    """All of a match counts."""
    return len(text)


class Pattern(Struct, frozen=True):
    """One thing that is looked for.

    Attributes:
        label: what it is called where it was hidden: `EMAIL` in `<EMAIL_1>`.
        expression: in RE2's syntax; a match is never empty.
        longest: characters that a match has at most.
        letters: the characters that a match is made of; None where it may be any.
        accept: how much of a match counts, from its beginning; 0 for nothing of it.
        inner: those of `letters` with which none begins.
    """

    label: str
    expression: str
    longest: int
    letters: str | None = None
    accept: Callable[[str], int] = whole
    inner: str = ""


class UnusablePattern(ValueError):
    """A pattern that can't be looked for; the message says why, for who wrote it."""


class Found(Struct, frozen=True):
    """A match.

    Attributes:
        start, end: where in the text.
        of: the place of its pattern among those that were looked for.
    """

    start: int
    end: int
    of: int


class TooManyNearMisses(Exception):
    """A text is made so that looking for patterns in it would take too long."""


class Search:
    """Looks for several patterns at a time: always the one that begins first, of those the longest,
    and then from its end on.

    Args:
        patterns: in the order in which they count where two match the same.

    Attributes:
        may_have: whether there is a character in a text without which nothing matches; None for
            that there is none.

    Raises:
        ModuleNotFoundError: RE2 is not installed.
        UnusablePattern: RE2 can't read one.
    """

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self._compiled = [compiled(each.expression) for each in self.patterns]
        # Most texts have nothing that any of them matches: that is found out in one go.
        self._any = compiled("|".join(f"(?:{each.expression})" for each in self.patterns))
        reach: dict[tuple[str | None, str], int] = {}
        for each in self.patterns:
            kind = (each.letters, each.inner)
            reach[kind] = max(each.longest, reach.get(kind, 0))
        self._shortest = min(
            (_tree(each.expression).getwidth()[0] for each in self.patterns), default=0
        )
        self._reach = tuple((*kind, longest) for kind, longest in reach.items())
        self._steps, self._other_step = _by_character(self._reach)
        self._nearest = min((longest for *_, longest in self._reach), default=0)
        needs = [_needed(each.expression) for each in self.patterns]
        union = None if None in needs else "".join(filter(None, needs))
        self.may_have = re.compile(f"[{re.escape(union)}]" if union else "").search

    def decided(self, text: str) -> int:
        """How far `text`, which may go on, can be told: a match that begins before is there whole,
        with a character behind it."""
        # Nearly always what a match could be made of is short.
        steps, other, nearest = self._steps, self._other_step, self._nearest
        alive, decided, place = -1, len(text), len(text)
        for letter in text[: -nearest - 1 : -1]:
            inside, begins = steps.get(letter, other)
            alive &= inside
            if not alive:
                return decided
            place -= 1
            if alive & begins:
                decided = place
        return decided if len(text) < nearest else self._decided_of_long(text)

    def _decided_of_long(self, text: str) -> int:
        size = decided = len(text)
        for letters, inner, longest in self._reach:
            begin = size - longest if letters is None else len(text.rstrip(letters))
            if begin < decided:
                begin = max(begin, size - longest)
                decided = min(decided, size - len(text[begin:].lstrip(inner)) if inner else begin)
        return max(decided, 0)

    def has_nothing(self, text: str) -> bool:
        """Whether there is nothing in a whole text, as far as that is quick to tell."""
        if len(text) < self._shortest or self.may_have(text) is None:
            return True
        return self._any.search(text.encode(errors="replace")) is None

    def find(self, text: str, start: int, end: int) -> Iterator[Found]:
        """The matches in `text` that begin from `start` on and before `end`, in their order, none
        over another.

        Raises (from the iterator):
            TooManyNearMisses: it is made to keep whoever reads it busy.
        """
        if len(text) - start < self._shortest or self.may_have(text) is None:
            return
        data = text.encode(errors="replace")
        if text.isascii():
            yield from self._find(data, start, end)
            return
        first = len(text[:start].encode(errors="replace"))
        last = first + len(text[start:end].encode(errors="replace"))
        at, characters = first, start
        for found in self._find(data, first, last):
            begin = characters + len(data[at : found.start].decode())
            at, characters = found.end, begin + len(data[found.start : found.end].decode())
            yield Found(begin, characters, found.of)

    def _find(self, data: bytes, start: int, end: int) -> Iterator[Found]:
        if self._any.search(data, start) is None:
            return
        searches = [_OneSearch(*each) for each in zip(self._compiled, self.patterns, strict=True)]
        while start < end:
            best, of = _NOWHERE, 0
            for place, search in enumerate(searches):
                found = search.following(data, start, end)
                if found[0] < best[0] or (found[0] == best[0] and found[1] > best[1]):
                    best, of = found, place
            if best is _NOWHERE:
                return
            yield Found(*best, of)
            start = best[1]


@lru_cache(maxsize=256)
def search_for(patterns: tuple[Pattern, ...]) -> Search:
    """The one that looks for these: keys with guardrails of their own mostly have the same, and to
    take patterns apart takes milliseconds.

    Raises:
        ModuleNotFoundError: RE2 is not installed.
        UnusablePattern: RE2 can't read one.
    """
    return Search(patterns)


_NOWHERE = (1 << 62, 0)


class _OneSearch:
    """Where one pattern matches next."""

    def __init__(self, expression: Any, pattern: Pattern) -> None:
        self._expression = expression
        self._accept = pattern.accept
        self._found = (-1, 0)
        self._missed = 0

    def following(self, data: bytes, start: int, end: int) -> tuple[int, int]:
        if self._found[0] < start:
            self._found = self._next(data, start, end)
        return self._found

    def _next(self, data: bytes, start: int, end: int) -> tuple[int, int]:
        while start < end:
            match = self._expression.search(data, start)
            if match is None or match.start() >= end:
                break
            text = match.group().decode(errors="replace")
            length = self._accept(text)
            if length:
                return match.start(), match.start() + len(text[:length].encode())
            self._missed += 1
            if self._missed > MOST_NEAR_MISSES:
                raise TooManyNearMisses
            start = match.start() + 1
        return _NOWHERE


@cache
def compiled(expression: str) -> Any:
    """`expression`, by RE2.

    Raises:
        ModuleNotFoundError: it is not installed.
        UnusablePattern: RE2 can't read it.
    """
    import re2

    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        told = error.args[0] if error.args else ""
        why = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        raise UnusablePattern(f"RE2 can't read it: {why}") from None


def own_pattern(label: str, expression: str) -> Pattern:
    """The pattern that a template brings.

    Raises:
        ModuleNotFoundError: RE2 is not installed.
        UnusablePattern: it can't be looked for, or in a stream not without waiting for its end.
    """
    compiled(expression)
    try:
        tree = _tree(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnusablePattern(f"it can't be read: {error}") from None
    if _has_anchor(tree):
        raise UnusablePattern("'^', '$', '\\A' and '\\z' have no place in a text that streams")
    shortest, longest = tree.getwidth()
    if not shortest:
        raise UnusablePattern("it matches nothing at all, which is everywhere")
    if longest > LONGEST:
        raise UnusablePattern(
            f"a match may be longer than {LONGEST} characters; give each repetition an upper bound,"
            " as in '[0-9]{1,20}' for '[0-9]+'"
        )
    return Pattern(label, expression, longest, _letters(tree))


# --------------------------------------------------------------------------------------------------
# What a pattern is made of
# --------------------------------------------------------------------------------------------------

_WORD_BOUNDARIES = ("AT_BOUNDARY", "AT_NON_BOUNDARY")


def _tree(expression: str) -> Any:
    # Python's own reading of it: what RE2 takes is nearly all of the same syntax, and what is not
    # is refused. There is no other way to a pattern's width.
    from re import _parser as parser  # type: ignore[attr-defined]

    return parser.parse(expression)


def _nodes(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every node of a pattern, by its name."""
    for name, value in tree:
        yield str(name), value
        for inner in _inside(value):
            yield from _nodes(inner)


def _inside(value: Any) -> Iterator[Any]:
    if hasattr(value, "getwidth"):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _inside(each)


def _by_character(
    reach: Sequence[tuple[str | None, str, int]],
) -> tuple[dict[str, tuple[int, int]], tuple[int, int]]:
    """In which kinds of matches each character may be, and which may begin with it: a bit for each
    kind; and the same of all characters that are in none of their own."""
    anywhere = sum(1 << place for place, (letters, *_) in enumerate(reach) if letters is None)
    steps: dict[str, tuple[int, int]] = {}
    for letter in {each for letters, *_ in reach for each in letters or ""}:
        inside = begins = anywhere
        for place, (letters, inner, _) in enumerate(reach):
            if letters is not None and letter in letters:
                inside |= 1 << place
                if letter not in inner:
                    begins |= 1 << place
        steps[letter] = inside, begins
    return steps, (anywhere, anywhere)


_IGNORES_CASE = re.compile(r"\(\?[A-Za-z-]*i")
_WEIGHTS = (("abcdefghijklmnopqrstuvwxyz ", 10), (".,", 5))
"""How common characters are in texts; all others are rare."""


def _needed(expression: str) -> str | None:
    """Characters of which one at least is in every match, as rare ones as there are; None where
    that can't be told."""
    if _IGNORES_CASE.search(expression):
        return None
    found = [each for each in _mandatory(_tree(expression)) if each]
    return min(found, key=_commonness, default=None)


def _commonness(letters: str) -> int:
    return sum(next((w for common, w in _WEIGHTS if each in common), 2) for each in letters)


def _mandatory(tree: Any) -> Iterator[str]:
    """The characters of each place that is in all matches, and has few that are plain."""
    for name, value in tree:
        kind = str(name)
        if kind == "LITERAL" and value < 128:
            yield chr(value)
        elif kind == "IN":
            yield _letters([(name, value)]) or ""
        elif kind == "SUBPATTERN":
            yield from _mandatory(value[-1])
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0] > 0:
            yield from _mandatory(value[2])


def _has_anchor(tree: Any) -> bool:
    return any(name == "AT" and str(value) not in _WORD_BOUNDARIES for name, value in _nodes(tree))


def _letters(tree: Any) -> str | None:
    """The characters that a match is made of, if they are few and plain; None where not."""
    letters: set[str] = set()
    for name, value in _nodes(tree):
        if name == "LITERAL":
            letters.add(chr(value))
        elif name == "IN":
            for kind, of in value:
                if str(kind) == "LITERAL":
                    letters.add(chr(of))
                elif str(kind) == "RANGE" and of[1] < 128:
                    letters.update(map(chr, range(of[0], of[1] + 1)))
                elif str(kind) == "CATEGORY" and str(of) == "CATEGORY_DIGIT":
                    letters.update("0123456789")
                else:
                    return None
        elif name in ("ANY", "NOT_LITERAL", "CATEGORY", "RANGE", "NEGATE", "GROUPREF"):
            return None
    both = "".join(sorted({*letters, *map(str.lower, letters), *map(str.upper, letters)}))
    return both if both.isascii() else None
