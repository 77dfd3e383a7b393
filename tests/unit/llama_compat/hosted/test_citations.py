"""Where a text names what was found, however it is cut."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.hosted.citations import CitedText, Citer, SaidParts, cited_place
from llama_compat.hosted.vocabulary import Citation, WebSource

A = WebSource("https://a.example/x", "A")
B = WebSource("https://b.example/", "B")

TEXT = (
    "[no] [A](https://a.example/x/#top) and [2], [3] [1](https://b.example) [x](https://c.example)"
    " [unclosed](https://a.example/x [1]"
)
EXPECTED = [
    ("[A](https://a.example/x/#top)", A),
    ("[2]", B),
    ("[1](https://b.example)", B),
    ("[1]", A),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_no_cut_changes_what_is_cited(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(TEXT)]
    citer = Citer([A, B])
    found: list[Citation] = []
    for begin, end in itertools.pairwise(places):
        found += citer.push(TEXT[begin:end])
    found += citer.finish()
    assert [(TEXT[each.start : each.end], each.source) for each in found] == EXPECTED


def test_what_was_said_before_anything_was_found_counts() -> None:
    sources: list[WebSource] = []
    citer = Citer(sources)
    assert list(citer.push("Before. ")) == []
    sources.append(A)
    (citation,) = [*citer.push("[1]"), *citer.finish()]
    assert (citation.start, citation.end) == (8, 11)


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({"start_index": 2, "end_index": 4}, (2, 4, "cd")),
        ({"start_index": 2}, (2, 6, "cdef")),
        ({"start_index": 2, "end_index": 99}, (2, 6, "cdef")),
        ({"start_index": 50, "end_index": 60}, (6, 6, "")),
        ({"start_index": 4, "end_index": 2}, (4, 4, "")),
        ({"start_index": -1, "end_index": 2}, None),
        ({"start_index": True, "end_index": 2}, None),
        ({"start_index": "x", "end_index": 2}, None),
        ({"end_index": 2}, None),
        ({"start_index": 2, "url": None}, None),
    ],
)
def test_a_place_that_a_vendor_names_is_in_the_text(
    told: dict[str, Any], place: tuple[int, int, str] | None
) -> None:
    found = cited_place({"url": A.url, "title": "A", **told}, "abcdef")
    expected = None if place is None else Citation(place[0], place[1], A, place[2])
    assert found == expected


WORDS = ["", "a", "ä" * 700, "\U0001f600b", "c" * 3000, "\ud83d", "é"]


@pytest.mark.parametrize("at_once", [True, False])
def test_places_of_a_text_that_grows_are_those_of_the_whole(at_once: bool) -> None:
    said, whole = CitedText(), ""
    for word in ["".join(WORDS)] if at_once else WORDS:
        said.say(word)
        whole += word
        encoded = whole.encode("utf-8", "replace")
        assert (len(said), said.whole) == (len(whole), whole)
        places = {0, 1, 2, len(whole) // 2, len(whole) - 1, len(whole), len(whole) + 5}
        for place in sorted(places, reverse=True):
            before = whole[: max(0, place)].encode("utf-8", "replace")
            assert said.bytes_before(max(0, place)) == len(before)
            for end in places:
                assert said[place:end] == whole[place:end]
        for place in {0, 1, 3, len(encoded) // 2, len(encoded) - 1, len(encoded), len(encoded) + 5}:
            before = encoded[: max(0, place)].decode("utf-8", "ignore")
            assert said.characters_before(max(0, place)) == len(before)


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ((0, 2), (1, 0, 2)),
        ((1, 9), (1, 1, 3)),
        ((3, 5), (4, 0, 2)),
        ((5, 6), (4, 2, 3)),
        ((6, 7), (6, 0, 1)),
    ],
)
def test_a_place_of_the_whole_is_in_the_part_that_it_begins_in(
    place: tuple[int, int], found: tuple[int, int, int]
) -> None:
    said = SaidParts()
    for part, text in ((1, "abc"), (2, ""), (4, "de"), (4, "f"), (6, "gh")):
        said.say(part, text)
    part, cited = said.placed(Citation(*place, A, "x"))
    assert (part, cited.start, cited.end) == found
    assert said.begin(part) + cited.start == place[0]
