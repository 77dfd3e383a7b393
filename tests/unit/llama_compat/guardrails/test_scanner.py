"""What is found in a text is the same wherever it is cut into pieces, and found once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.guardrails.named import NAMED
from llama_compat.guardrails.patterns import Pattern, own_pattern, search_for
from llama_compat.guardrails.scanner import TextScanner, Watch
from tests.examples import examples

PIECES = [
    "alice@example.com",
    "4111 1111 1111 1111",
    "5500-0000-0000-0004",
    "DE89 3704 0044 0532 0130 00",
    "+49 30 1234567",
    "sk-abcdefghijklmnopqrstuv",
    "TICK-12",
    "12",
    "1700000000000",
    "@",
    "-",
    " ",
    ". ",
    "A",
    "é",
    "🌞",
    "I am ",
    "\n",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
CUTS = st.lists(st.integers(0, 200), max_size=8)

NAMED_PATTERNS = [pattern for patterns in NAMED.values() for pattern in patterns]
OWN = [own_pattern("TICKET", "TICK-[0-9]{1,3}"), own_pattern("ANY", "I.{1,5}[0-9@]")]


def cut(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(min(each, len(text)) for each in cuts)})
    return [text[begin:end] for begin, end in pairwise(places)]


class Reading:
    """One text, looked through."""

    def __init__(self, *searches: tuple[list[Pattern], bool]) -> None:
        self.found: list[tuple[int, int, str]] = []
        watches = []
        for number, (patterns, hides) in enumerate(searches):

            def found(of: int, text: str, number: int = number) -> str:
                self.found.append((number, of, text))
                return f"<{of}>"

            watches.append(Watch(search_for(tuple(patterns)), found, hides))
        self.scanner = TextScanner(watches)

    def read(self, pieces: list[str]) -> str:
        """What is shown; where that is another text than came, the scanner has counted it."""
        scanner, came, at = self.scanner, "", 0
        shown = []
        for piece in (*pieces, None):
            before = scanner.hidden
            shown.append(scanner.flush() if piece is None else scanner.push(piece))
            came += piece or ""
            end = len(came) - scanner.held
            assert shown[-1] == came[at:end] or scanner.hidden > before
            at = end
        return "".join(shown)


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS, CUTS)
def test_no_cut_changes_what_is_found_or_shown(text: str, cuts: list[int]) -> None:
    whole, cut_up = (
        Reading((NAMED_PATTERNS, True), (OWN, False), (NAMED_PATTERNS[:3], False)) for _ in range(2)
    )
    assert whole.read([text]) == cut_up.read(cut(text, cuts))
    assert sorted(whole.found) == sorted(cut_up.found)


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS, CUTS)
def test_no_more_is_held_back_than_the_longest_match(text: str, cuts: list[int]) -> None:
    reading = Reading((OWN, False))
    given_to, shown = 0, 0
    for piece in cut(text, cuts):
        given_to += len(piece)
        shown += len(reading.scanner.push(piece))
        assert given_to - shown <= max(each.longest for each in OWN)


def test_what_no_match_can_reach_is_not_held_back() -> None:
    scanner = Reading((NAMED_PATTERNS, True)).scanner
    assert scanner.push("Write to ") == "Write to "
    assert scanner.push("ali") == ""
    assert scanner.push("ce at once, ") == "alice at once, "
    assert not scanner.holds


def test_a_word_does_not_begin_where_a_piece_does() -> None:
    reading = Reading((NAMED_PATTERNS, True))
    assert reading.read(["desk", "-", "sk-abcdefghijklmnopqrstuv"]) == "desk-<0>"
    reading = Reading(([own_pattern("X", r"\bfoo\b")], True))
    assert reading.read(["x", "foo ", "foo", "t foo"]) == "xfoo foot <0>"
