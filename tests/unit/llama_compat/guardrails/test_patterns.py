"""What is looked for, and patterns that can't be."""

from __future__ import annotations

import pytest

from llama_compat.guardrails.named import NAMED, NamedSet
from llama_compat.guardrails.patterns import (
    LONGEST,
    MOST_NEAR_MISSES,
    Search,
    TooManyNearMisses,
    UnusablePattern,
    own_pattern,
)


def found(name: NamedSet, text: str) -> list[str]:
    search = Search(NAMED[name])
    return [text[each.start : each.end] for each in search.find(text, 0, len(text))]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cards", "4111 1111 1111 1111", ["4111 1111 1111 1111"]),
        ("cards", "x 378282246310005.", ["378282246310005"]),
        ("cards", "12 4111-1111-1111-1111 12", ["4111-1111-1111-1111"]),
        ("cards", "4111 1111 1111 1112", []),
        ("cards", "0000 0000 0000 0000", []),
        ("cards", "1700000000000000000000", []),
        ("ibans", "to DE89 3704 0044 0532 0130 00 AND", ["DE89 3704 0044 0532 0130 00"]),
        ("ibans", "GB82WEST12345698765432", ["GB82WEST12345698765432"]),
        ("ibans", "GB82WEST12345698765431", []),
        ("emails", "<a.b+c@mail.example.co.uk>!", ["a.b+c@mail.example.co.uk"]),
        ("emails", "a@b, @example.com, x@localhost", []),
        ("phone_numbers", "+49 (0)30 1234-567, (212) 555-0100", ["(212) 555-0100"]),
        ("phone_numbers", "+44 20 7946 0958 or 212.555.0100", ["+44 20 7946 0958", "212.555.0100"]),
        ("api_keys", "AKIAIOSFODNN7EXAMPLE", ["AKIAIOSFODNN7EXAMPLE"]),
        ("api_keys", "a sk-proj-abcdefghijklmnopqrst", ["sk-proj-abcdefghijklmnopqrst"]),
        ("api_keys", "task-force-of-twenty-people-or-so", []),
        (
            "api_keys",
            "-----BEGIN RSA PRIVATE KEY-----",
            ["-----BEGIN RSA PRIVATE KEY-----"],
        ),
    ],
)
def test_named_sets(name: NamedSet, text: str, expected: list[str]) -> None:
    if text.startswith("+49 (0)"):
        expected = ["+49 (0)30 1234-567", *expected]
    assert found(name, text) == expected


@pytest.mark.parametrize("name", NAMED)
def test_a_set_says_no_less_of_its_matches_than_there_is(name: NamedSet) -> None:
    """What streams are held back by is what the expressions say."""
    for pattern in NAMED[name]:
        own = own_pattern(pattern.label, pattern.expression)
        assert own.longest <= pattern.longest
        assert own.letters is not None
        assert pattern.letters is not None
        # Those of a word that is written out may stand in any case, which a rule can't tell.
        assert set(own.letters.upper()) <= set(pattern.letters.upper())


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("[0-9]+", "upper bound"),
        (f"a{{{LONGEST}}}b", "upper bound"),
        ("^a", "no place"),
        ("a$", "no place"),
        ("a?", "nothing at all"),
        ("(a", "can't read it"),
        (r"(a)\1", "can't read it"),
        ("(?=a)b", "can't read it"),
    ],
)
def test_what_can_t_be_looked_for(expression: str, why: str) -> None:
    with pytest.raises(UnusablePattern, match=why):
        own_pattern("X", expression)


def test_matches_are_told_in_characters() -> None:
    search = Search([own_pattern("X", "ö.{2}")])
    text = "é🌞ö🌞é, öab"
    assert [text[each.start : each.end] for each in search.find(text, 0, len(text))] == [
        "ö🌞é",
        "öab",
    ]


def test_nobody_looks_on_for_ever() -> None:
    search = Search(NAMED["cards"])
    text = "1700000000001 x " * (MOST_NEAR_MISSES + 1)
    with pytest.raises(TooManyNearMisses):
        list(search.find(text, 0, len(text)))
