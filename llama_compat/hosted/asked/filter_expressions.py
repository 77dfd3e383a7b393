"""Filters of files as Google's clients write them, in one text: wire -> vocabulary.

Of https://google.aip.dev/160 (read 2026-11-28) that of which attributes of files know something:

    expression = factor { "AND" factor }
    factor     = term { "OR" term }
    term       = [ "NOT" | "-" ] ( comparison | "(" expression ")" )
    comparison = name operator value
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">="
    name       = a word without dots | a text in quotes
    value      = a number | "true" | "false" | a word | a text in quotes

So `OR` binds more than `AND`, as there. Functions, members of members, `:`, wildcards, and words
beside each other, which mean a search there, are refused by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.hosted.asked.filters import (
    MAX_COMPARISONS,
    MAX_DEPTH,
    MAX_INTEGER,
    AttributeValue,
)
from llama_compat.hosted.vocabulary import AttributeFilter, Comparison, Compound

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<sign><=|>=|!=|[<>=:(),])"""
    r"""|(?P<word>[^\s"'<>=!:(),]+)"""
    r"""|(?P<other>\S))""",
    re.DOTALL,
)

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)

_NUMBER: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")

_OPERATORS: Final[Mapping[str, Literal["eq", "ne", "gt", "gte", "lt", "lte"]]] = {
    "=": "eq",
    "!=": "ne",
    ">": "gt",
    ">=": "gte",
    "<": "lt",
    "<=": "lte",
}

_JOINING: Final = ("AND", "OR", "NOT")

_SHOWN: Final = 40
"""Characters of what is wrong that an error repeats."""


class _Token(Struct, frozen=True):
    """A word, a text in quotes, or a sign of an expression, and where it begins."""

    kind: Literal["text", "word", "sign", "other", "end"]
    written: str
    place: int


def parse_expression(expression: str | None, path: str) -> AttributeFilter | None:
    """A filter that is written as one text; None where there is none.

    Raises:
        APIError: 400, it has what is not known here, which is named.
    """
    # White space behind the last token would be tried from each of its characters on.
    expression = (expression or "").rstrip()
    return _Parser(expression, path).parsed() if expression else None


def _tokens(expression: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(expression):
        kind = match.lastgroup
        assert kind is not None
        yield _Token(kind, match[kind], match.start(kind))  # type: ignore[arg-type]
    yield _Token("end", "", len(expression))


class _Parser:
    """One expression.

    Args:
        expression: it.
        path: where it is.
    """

    def __init__(self, expression: str, path: str) -> None:
        self._path = path
        self._tokens = _tokens(expression)
        self._next = next(self._tokens)
        self._comparisons = 0

    def parsed(self) -> AttributeFilter:
        """All of it."""
        found = self._expression(1)
        if self._next.kind != "end":
            raise self._refused(self._next, "AND or OR must stand between two comparisons")
        return found

    def _expression(self, depth: int) -> AttributeFilter:
        if depth > MAX_DEPTH:
            raise self._refused(self._next, f"more than {MAX_DEPTH} parentheses within each other")
        factors = [self._factor(depth)]
        while self._takes("AND"):
            factors.append(self._factor(depth))
        return _joined("and", factors)

    def _factor(self, depth: int) -> AttributeFilter:
        terms = [self._term(depth)]
        while self._takes("OR"):
            terms.append(self._term(depth))
        return _joined("or", terms)

    def _term(self, depth: int) -> AttributeFilter:
        is_negated = self._takes("NOT")
        word = self._next
        if not is_negated and word.kind == "word" and word.written[0] == "-":
            is_negated = True
            if word.written == "-":
                self._take()
            else:
                self._next = _Token("word", word.written[1:], word.place + 1)
        if self._takes("("):
            found = self._expression(depth + 1)
            if not self._takes(")"):
                raise self._refused(self._next, "a parenthesis is not closed before it")
        else:
            found = self._comparison()
        return Compound("none", (found,)) if is_negated else found

    def _comparison(self) -> Comparison:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise self._refused(self._next, f"more than {MAX_COMPARISONS} comparisons")
        key, sign = self._name(), self._take()
        operator = _OPERATORS.get(sign.written) if sign.kind == "sign" else None
        if operator is None:
            whys = {"(": "functions are not known here", ":": "attributes are no lists"}
            wanted = f"one of {' '.join(_OPERATORS)} must follow the name '{key[:_SHOWN]}'"
            raise self._refused(sign, whys.get(sign.written, wanted))
        return Comparison(operator, key, self._value())

    def _name(self) -> str:
        token = self._take()
        if token.kind == "text":
            return _unquoted(token)
        if token.kind != "word" or token.written in _JOINING:
            raise self._refused(token, "the name of an attribute must stand here")
        if "." in token.written:
            why = "attributes have no members; a name with a dot must stand in quotes"
            raise self._refused(token, why)
        return token.written

    def _value(self) -> AttributeValue:
        token = self._take()
        if token.kind == "word" and self._next.written == "(" and self._next.kind == "sign":
            raise self._refused(token, "functions are not known here")
        if token.kind not in ("word", "text") or token.written in _JOINING:
            raise self._refused(token, "a number, a text, true or false must stand here")
        if "*" in token.written:
            raise self._refused(token, "wildcards are not known here")
        if token.kind == "text":
            return _unquoted(token)
        if token.written in ("true", "false"):
            return token.written == "true"
        return self._number(token) if _NUMBER.fullmatch(token.written) else token.written

    def _number(self, token: _Token) -> float:
        is_whole = token.written.lstrip("-").isdecimal()
        number = int(token.written) if is_whole else float(token.written)
        if not math.isfinite(number) or (is_whole and abs(number) > MAX_INTEGER):
            raise self._refused(token, "the number is too large")
        return number

    def _take(self) -> _Token:
        taken = self._next
        if taken.kind != "end":
            self._next = next(self._tokens)
        return taken

    def _takes(self, written: str) -> bool:
        """Whether this comes next, which is taken then."""
        if self._next.kind == "text" or self._next.written != written:
            return False
        self._take()
        return True

    def _refused(self, token: _Token, why: str) -> APIError:
        where = f"has '{token.written[:_SHOWN]}' at character {token.place + 1}"
        if token.kind == "end":
            where = "ends too early"
        return invalid_parameter(self._path, f"'{self._path}' {where}: {why}.")


def _unquoted(token: _Token) -> str:
    return _ESCAPED.sub(r"\1", token.written[1:-1])


def _joined(operator: Literal["and", "or"], filters: list[AttributeFilter]) -> AttributeFilter:
    return filters[0] if len(filters) == 1 else Compound(operator, tuple(filters))
