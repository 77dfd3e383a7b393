"""Filters in one text: what they mean, and what is refused, by name."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.errors import APIError
from llama_compat.hosted.asked.filter_expressions import parse_expression
from llama_compat.hosted.asked.filters import Attributes, passes
from llama_compat.hosted.vocabulary import Comparison, Compound

FILE: Attributes = {"author": "Robert Graves", "year": 1934, "draft": False, "a.b": "x-1"}
AUTHOR = Comparison("eq", "author", "Robert Graves")
YEAR = Comparison("gt", "year", 1930)
X, Y, Z = (Comparison("eq", name, 1) for name in "xyz")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('author = "Robert Graves"', AUTHOR),
        ("author='Robert Graves'", AUTHOR),
        ('author = "Robert Graves" AND year > 1930', Compound("and", (AUTHOR, YEAR))),
        ("x=1 AND y=1 OR z=1", Compound("and", (X, Compound("or", (Y, Z))))),
        ("x=1 OR y=1 AND z=1", Compound("and", (Compound("or", (X, Y)), Z))),
        ("(x=1 AND y=1) OR z=1", Compound("or", (Compound("and", (X, Y)), Z))),
        ("((x=1))", X),
        ("NOT x=1", Compound("none", (X,))),
        ("-x=1", Compound("none", (X,))),
        ("-(x=1 OR y=1)", Compound("none", (Compound("or", (X, Y)),))),
        ("- x = 1", Compound("none", (X,))),
        ("year>=-1.5e1", Comparison("gte", "year", -15.0)),
        ("year != 1934", Comparison("ne", "year", 1934)),
        ("year <= 3", Comparison("lte", "year", 3)),
        ("year < 3", Comparison("lt", "year", 3)),
        ('year = "1934"', Comparison("eq", "year", "1934")),
        ("draft = false", Comparison("eq", "draft", False)),
        ('draft = "false"', Comparison("eq", "draft", "false")),
        ("day > 2024-01-01", Comparison("gt", "day", "2024-01-01")),
        ("author = Graves", Comparison("eq", "author", "Graves")),
        ('"a.b" = x-1', Comparison("eq", "a.b", "x-1")),
        ("\"AND\" = 'OR'", Comparison("eq", "AND", "OR")),
        (r'author = "say \"a\\b\""', Comparison("eq", "author", r'say "a\b"')),
        ('author = ""', Comparison("eq", "author", "")),
    ],
)
def test_what_an_expression_means(expression: str, expected: object) -> None:
    assert parse_expression(expression, "f") == expected


@pytest.mark.parametrize("nothing", [None, "", " \n"])
def test_nothing_is_no_filter(nothing: str | None) -> None:
    assert parse_expression(nothing, "f") is None


@pytest.mark.parametrize(
    ("expression", "meant"),
    [
        ('author = "Robert Graves" AND year > 1930', True),
        ("author = 'Robert Graves' AND year > 1940", False),
        ("year = 1 OR draft = false", True),
        ("NOT year > 1940", True),
        # A file without the attribute is neither more nor less, and so passes when that is negated.
        ("pages > 3 OR pages <= 3", False),
        ("NOT pages > 3", True),
        ('year = "1934"', False),
    ],
)
def test_which_files_pass(expression: str, meant: bool) -> None:
    filter = parse_expression(expression, "f")
    assert filter is not None
    assert passes(filter, FILE) is meant


@pytest.mark.parametrize(
    ("expression", "part", "place"),
    [
        ("author", "ends too early", None),
        ("author =", "ends too early", None),
        ("x=1 AND", "ends too early", None),
        ("x=1 y=1", "y", 5),
        ("x=1 and y=1", "and", 5),
        ("robert graves", "graves", 8),
        ("(x=1", "ends too early", None),
        ("x=1)", ")", 4),
        ("()", ")", 2),
        ("x:1", ":", 2),
        ("meta.x = 1", "meta.x", 1),
        ("size(x) = 1", "(", 5),
        ("x = size(y)", "size", 5),
        ("x = a*", "a*", 5),
        ("x = '*.txt'", "'*.txt'", 5),
        ("x = AND", "AND", 5),
        ("AND x = 1", "AND", 1),
        ("x == 1", "=", 4),
        ("x = 'open", "'", 5),
        ("x = (1)", "(", 5),
        ("NOT NOT x=1", "NOT", 5),
        ("x, y = 1", ",", 2),
        (f"x = {10**25}", str(10**25), 5),
        ("x = 1e999", "1e999", 5),
        (" AND ".join(["x=1"] * 101), "x", 801),
        ("(" * 8 + "x=1" + ")" * 8, "x", 9),
    ],
)
def test_what_is_not_known_is_named(expression: str, part: str, place: int | None) -> None:
    with pytest.raises(APIError) as refused:
        parse_expression(expression, "f")
    error = refused.value
    assert (error.status, error.param) == (400, "f")
    where = part if place is None else f"has '{part}' at character {place}: "
    assert where in error.message


@given(st.text(alphabet="x1 =<>!:()\"'\\ANDORT-.*", max_size=60))
def test_whatever_it_is_it_is_understood_or_refused(expression: str) -> None:
    with suppress(APIError):
        filter = parse_expression(expression, "f")
        assert filter is None or passes(filter, FILE) in (True, False)
