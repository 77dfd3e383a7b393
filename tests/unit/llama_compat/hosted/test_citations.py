"""Where a text names what was found, however it is cut."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.hosted.citations import Citer, cited_place
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
