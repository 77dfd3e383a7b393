"""Tokens drawn by chance: a race of all that may come, each with a number of its own.

A token's number follows from the seed, from its place in the reply and from the token itself, and
from nothing else: by exponential numbers divided by the tokens' weights, the least of which wins,
each wins as often as its weight says (this is what is known as Gumbel-max). A weight that is off by
a thousandth, as it is in another batch, changes who wins about as seldom as that, where a sum of
weights up to a number would pass it at another token for any change before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Weights = np.ndarray[Any, np.dtype[np.float32]]
TokenIds = np.ndarray[Any, np.dtype[np.uint32]]

STRIDE, FIRST, SECOND = 0x9E3779B1, 0x21F0AAAD, 0x735A2D97
"""What a token's number is multiplied by on its way; the kernels for GPUs have the same."""

SCALE = 2.0**-32 * (1 - 2.0**-24)
"""Of 32 bits, so that what comes of them is below 1 even when it is rounded up."""

HALF = 2.0**-33
"""Of the distance of two such numbers: what keeps the least from being 0."""

LOWEST_TEMPERATURE = 1e-5
"""Below this, float32 can't tell the likeliest token's share from 1 any more."""

DrawKey = tuple[int, int]
"""What all numbers of one draw have in common, of 32 bits each."""


def draw_key(seed: int, place: int) -> DrawKey:
    """The key of a draw.

    Args:
        seed: of the reply, of up to 64 bits; a number and its negative are two.
        place: how many tokens the reply has already.
    """
    mixed = _mixed(_mixed(seed % 2**64) + place)
    return mixed & 0xFFFFFFFF, mixed >> 32


def _mixed(number: int) -> int:
    """Another number of 64 bits, of which half the bits are others for any bit that is."""
    number = (number + 0x9E3779B97F4A7C15) % 2**64
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)


def uniform(token_ids: TokenIds, key: DrawKey) -> Weights:
    """A number between 0 and 1 for each token; neither of them itself."""
    first, second = map(np.uint32, key)
    bits = token_ids * np.uint32(STRIDE)
    bits += first
    bits ^= bits >> np.uint32(16)
    bits *= np.uint32(FIRST)
    bits ^= second
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(SECOND)
    bits ^= bits >> np.uint32(15)
    numbers = bits.astype(np.float32)
    numbers *= np.float32(SCALE)
    numbers += np.float32(HALF)
    return numbers


def draw(weights: Weights, token_ids: TokenIds, key: DrawKey) -> int:
    """Where the token lies that wins.

    Args:
        weights: how likely each is, as parts of the likeliest; 0 where it may not come.
        token_ids: which they are.
        key: of the draw.
    """
    numbers = uniform(token_ids, key)
    # An exponential number is -log(1 - u), which is more than u: who is behind by u alone has lost,
    # so that logarithms are needed of a few only.
    at_best = weights / numbers
    ahead = int(at_best.argmax())
    reached = weights[ahead] / -np.log1p(-numbers[ahead])
    close = np.flatnonzero(at_best >= reached)
    return int(close[(weights[close] / -np.log1p(-numbers[close])).argmax()])
