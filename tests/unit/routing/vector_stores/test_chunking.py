"""Pieces are all of a text, none too large, each with the end of the one before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.vector_stores.chunking import chunks, token_ends


@given(st.text())
def test_tokens_are_all_of_a_text(text: str) -> None:
    ends = list(token_ends(text))
    assert ends == sorted(set(ends))
    assert (ends[-1] if ends else 0) == len(text)


@given(st.text(max_size=400), st.integers(1, 12), st.data())
def test_pieces_put_together_are_the_text(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size // 2))
    together, end = "", 0
    for chunk in chunks(text, size, overlap):
        assert text[chunk.begins : chunk.begins + len(chunk.text)] == chunk.text
        assert chunk.text.strip()
        assert 0 < len(token_ends(chunk.text)) <= size + 1  # a word may be cut where one began
        assert not text[end : chunk.begins].strip()
        together += text[end : chunk.begins] if chunk.begins > end else ""
        together += chunk.text[max(0, end - chunk.begins) :]
        end = max(end, chunk.begins + len(chunk.text))
    assert not text[end:].strip()
    assert text.startswith(together)


def test_the_defaults_are_openais() -> None:
    text = " ".join(f"word{number % 7}" for number in range(2000))
    found = list(chunks(text, 800, 400))
    tokens = len(token_ends(text))
    assert len(found) == 1 + -(-(tokens - 800) // 400)
    first, second = found[:2]
    ends = token_ends(text)
    assert len(first.text) == ends[799]
    assert second.begins == ends[399]


def test_tokens_are_about_as_many_as_models_have() -> None:
    text = "The quick brown fox jumps over the lazy dog, and 1234 internationalization efforts."
    assert 15 <= len(token_ends(text)) <= 24
    assert 3 <= len(token_ends("日本語の文")) <= 5


def test_a_text_of_white_space_has_no_pieces() -> None:
    assert list(chunks(" \n\t ", 100, 50)) == []
    assert list(chunks("", 100, 50)) == []
