"""A text in pieces of about so many tokens, each of which begins with the end of the one before.

What a token is differs from model to model, and a tokenizer is not at hand for those of vendors.
So tokens are estimated by the shape of the text: a word of up to eight Latin letters with the blank
before it is one, as are three digits, and one or two letters of other scripts.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

from msgspec import Struct

_TOKEN = re.compile(
    r"[^\S\n]?[A-Za-zÀ-ɏ]{1,8}|\d{1,3}|[^\W\d_A-Za-zÀ-ɏ]{1,2}|(?:[^\w\s]|_){1,3}|\s{1,8}"
)


class TextChunk(Struct, frozen=True):
    """A piece of a text, and where in that it begins, in characters."""

    begins: int
    text: str


def token_ends(text: str) -> array[int]:
    """Where each token of `text` ends; together they are all of it."""
    return array("Q", (match.end() for match in _TOKEN.finditer(text)))


def chunks(text: str, size: int, overlap: int) -> Iterator[TextChunk]:
    """The pieces of `text`; those of white space alone are left out.

    Args:
        text: all of it.
        size: tokens of a piece.
        overlap: tokens that two pieces have in common, half of `size` at most.
    """
    ends = token_ends(text)
    first = 0
    while first < len(ends):
        last = min(first + size, len(ends))
        begins = ends[first - 1] if first else 0
        piece = text[begins : ends[last - 1]]
        if piece.strip():
            yield TextChunk(begins, piece)
        if last == len(ends):
            return
        first = last - overlap
