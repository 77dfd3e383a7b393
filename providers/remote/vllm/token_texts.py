"""The bytes of tokens that are told as tokenizers write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_BLANK = "\N{LOWER ONE EIGHTH BLOCK}"


def token_bytes(texts: Sequence[str]) -> Sequence[bytes]:
    """The bytes that each of a prompt's tokens stands for, in either of two ways of writing them:

    - GPT-2's, in which each character is a byte (a blank is `Ġ`); most have it.
    - SentencePiece's, in which a blank is `▁`, and a byte that is no character `<0x0A>`.
    """
    if any(_BLANK in each for each in texts):
        return [_piece(each) for each in texts]
    table = _gpt2_bytes()
    return [
        bytes([table[character] for character in each])
        if all(character in table for character in each)
        else each.encode("utf-8", "surrogatepass")
        for each in texts
    ]


def _piece(text: str) -> bytes:
    if found := _BYTE.fullmatch(text):
        return bytes([int(found[1], 16)])
    return text.replace(_BLANK, " ").encode("utf-8", "surrogatepass")


@cache
def _gpt2_bytes() -> dict[str, int]:
    """The byte of each character (GPT-2's `bytes_to_unicode`): the 188 that can be printed are
    themselves, the others are counted from 256 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in shown}
    others = [byte for byte in range(256) if byte not in set(shown)]
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}
