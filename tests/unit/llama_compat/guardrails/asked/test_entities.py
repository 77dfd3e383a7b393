"""Entities are found the same wherever a text is cut, and nothing is shown before."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.guardrails.asked.entities import EntityScanner
from llama_compat.guardrails.asked.presidio import Entity
from tests.examples import examples
from tests.unit.llama_compat.guardrails.test_scanner import CUTS, cut

NAME = re.compile(r"Ann(?: Lee)?|Bob|<X_1>")
TEXTS = st.lists(
    st.sampled_from(["Ann Lee", "Ann", "Bob", " ", ", ", "x" * 37, "<X_1>", "é\n", '"']),
    max_size=60,
).map("".join)


def names(text: str) -> Sequence[Entity]:
    return [Entity(*match.span(), "NAME") for match in NAME.finditer(text)]


class Reading:
    """One text, looked through."""

    def __init__(self, window: int, *, in_json: bool = False) -> None:
        self.found: list[str] = []
        self.looked_at = 0
        self.scanner = EntityScanner(names, self._found, window, in_json=in_json)

    def _found(self, kind: str, text: str) -> str:
        self.found.append(text)
        return f"<{kind}>"

    def read(self, pieces: Sequence[str]) -> str:
        shown = "".join(map(self.scanner.push, pieces))
        shown += self.scanner.flush()
        assert not self.scanner.holds
        return shown


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS, CUTS, st.sampled_from([40, 100, 1000]))
def test_no_cut_changes_what_is_found(text: str, cuts: list[int], window: int) -> None:
    once, again, long = Reading(window), Reading(window), Reading(10_000)
    assert once.read([text]) == again.read(cut(text, cuts))
    assert once.found == again.found
    # Nor does the window: what it cuts in two is looked at again with the next one.
    assert once.read([text]) == long.read([text])


def test_no_more_than_a_window_is_held_back() -> None:
    reading = Reading(100)
    shown = 0
    for number in range(1, 1000):
        shown += len(reading.scanner.push("x"))
        assert number - shown <= 100
        assert reading.scanner.room == 100 - (number - shown)


def test_what_is_in_place_of_something_is_not_looked_at_again() -> None:
    assert Reading(100).read(["<X_1> and Ann"]) == "<X_1> and <NAME>"


@pytest.mark.parametrize("name", ["Ann Lee", "Ann"])
def test_json_stays_json(name: str) -> None:
    def greedy(text: str) -> Sequence[Entity]:
        start = text.index("Ann")
        return [Entity(start, len(text) - 4, "NAME")]

    scanner = EntityScanner(greedy, lambda kind, text: f"<{kind}>", 1000, in_json=True)
    text = json.dumps({"a": name, "b": "is here"})
    shown = json.loads(scanner.push(text) + scanner.flush())
    assert shown["a"] == "<NAME>"
