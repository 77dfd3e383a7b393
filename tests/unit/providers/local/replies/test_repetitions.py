"""What patterns demand with their repetitions written out."""

from __future__ import annotations

import pytest

from providers.local.replies.repetitions import LONGEST, spelt_out


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("", 0),
        ("abc", 3),
        ("a{5}b", 6),
        ("a{5,}b{2,9}", 7),
        ("a{0,5}", 1),
        ("a*b+c?", 3),
        ("(ab){3}c", 7),
        ("(?:ab|cde){4}", 12),
        ("(?P<name>a{2}){3}(?<other>b){2}", 8),
        ("(?i)a{2}(?i:b){3}", 5),
        ("(a{2}(b{3}|c){4}){5}", 70),
        (r"\p{Greek}{3}\x{41}{2}\d{4}", 9),
        (r"\({3}\){3}", 6),
        ("[](){9}]{3}", 3),
        (r"[^\](]{3}", 3),
        ("a{5}{4}", 20),
        ("a{000003}", 3),
        ("(((a{2}", 2),
        ("a{2})b", 3),
        ("|a{3}|", 3),
        ("(a{100}){163}", 16_300),
    ],
)
def test_what_stands_in_a_row(pattern: str, length: int) -> None:
    assert spelt_out(pattern) == length


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1000}){1000}",
        "b?((a{300}){300}|c)",
        "((((a{99}){99}){99}){99}){99}",
        "a{99999999999999999999}",
        "a{" + "9" * 5000 + "}",
        "(a{1000}|b){17}c",
    ],
)
def test_what_demands_too_much(pattern: str) -> None:
    assert spelt_out(pattern) == LONGEST + 1
