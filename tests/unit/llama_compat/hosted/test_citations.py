"""Where a text names what was found, however it is cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from llama_compat.hosted.citations import Citer
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
