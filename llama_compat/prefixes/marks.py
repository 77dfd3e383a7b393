"""Which of a prompt's tokens each block of its characters stands for.

    what the client sent   {"role":"user","content":"It was a dark and ..."}
    blocks of its bytes    |    block 0     |    block 1     |  block 2 ...
    what the model reads   <|im_start|>user\\nIt was a dark and ...
    tokens                 [  t0  ][ t1 ][t2][t3][t4] ...

The strings of the JSON are looked for in what the model reads, one after the other. A block that
ends inside a string that is found there ends at that character; one that ends elsewhere (between
two strings, in one that the template has rewritten) at the end of the last string before it. So a
mark never counts a token that whoever shares the block might not share, unless a template has what
comes later write something before it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from llama_compat.exchange import Call
from llama_compat.prefixes.chain import BLOCK_BYTES, Chain, chain_over, text_of

Mark = tuple[bytes, int]
"""A block of a prompt's characters, and how many of the prompt's tokens lie before its end."""

Marks = Sequence[Mark]

SHORTEST = 32
"""Bytes of a string that is looked for: shorter ones may be found where they are not."""

MOST_MISSES = 32
"""After so many strings that are not there the rest is not looked for: it takes as long as the
prompt is, for each."""

_STRING = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"?(:?)')
"""A string; one before a colon is the name of a member."""

_LONGEST_ESCAPE = 12
"""Two surrogates: `\\ud83d\\ude00`."""


def marks_of(call: Call, tokens: Sequence[bytes]) -> Marks:
    """The marks of the one prompt of `call`.

    Args:
        call: what is asked.
        tokens: the bytes of each token of what the model reads.
    """
    text = text_of(call)
    return marks_over(text, chain_over(text, call), tokens)


def marks_over(text: bytes, chain: Chain, tokens: Sequence[bytes]) -> Marks:
    """The marks of a prompt.

    Args:
        text: what the chain is of.
        chain: the prompt's.
        tokens: the bytes of each token of what the model reads.

    Returns:
        For as many blocks as have a token, in their order.
    """
    read = b"".join(tokens)
    ends = list(accumulate(map(len, tokens)))
    marks = []
    for block, end in zip(chain, _places(text[: len(chain) * BLOCK_BYTES], read), strict=True):
        # Up to the last token that ends there or before.
        if count := bisect_right(ends, end):
            marks.append((block, count))
    return marks


def _places(text: bytes, read: bytes) -> Iterator[int]:
    """Where each full block of `text` ends in `read`."""
    due, at, misses = BLOCK_BYTES, 0, 0
    for found in _STRING.finditer(text):
        begin, end = found.span(1)
        while due <= begin:  # between two strings
            yield at
            due += BLOCK_BYTES
        if found[2] or end - begin < SHORTEST or misses >= MOST_MISSES:
            continue
        pieces = _decoded(text, begin, end, due)
        said = b"".join(pieces)
        place, left_out, length = _find(said, read, at)
        if place < 0:
            misses += 1
            continue
        for length_so_far in accumulate(map(len, pieces[:-1])):
            yield place + min(max(0, length_so_far - left_out), length)
            due += BLOCK_BYTES
        at = place + length
    while due <= len(text):
        yield at
        due += BLOCK_BYTES


def _find(said: bytes, read: bytes, at: int) -> tuple[int, int, int]:
    """Where a string is in what the model reads, from `at` on (-1: nowhere), how much white space
    at its beginning the template has left out, and how long it is there."""
    bare = said.strip()
    if len(bare) < SHORTEST:
        return -1, 0, 0
    place = read.find(said, at)
    if place >= 0:
        return place, 0, len(said)
    return read.find(bare, at), len(said) - len(said.lstrip()), len(bare)


def _decoded(text: bytes, begin: int, end: int, due: int) -> Sequence[bytes]:
    """What the string between `begin` and `end` says, cut where a block ends; nothing, if it has
    half a character in it."""
    pieces = []
    while due <= end:
        # Neither an escape nor a character is cut in two.
        for cut in range(due, max(begin, due - _LONGEST_ESCAPE) - 1, -1):
            if (piece := _reads(text[begin:cut])) is not None:
                break
        else:
            return ()
        pieces.append(piece)
        begin, due = cut, due + BLOCK_BYTES
    return [*pieces, _reads(text[begin:end]) or b""]


def _reads(raw: bytes) -> bytes | None:
    """What a piece of a JSON string says; None if an escape or a character is cut in two."""
    try:
        return msgspec.json.decode(b'"%b"' % raw, type=str).encode()
    except (msgspec.DecodeError, UnicodeError):
        return None
