"""Samples of one rate made into those of another.

Each new sample is a sum of the old ones around its place, weighed by a sinc under a window
(Blackman and Harris, of four terms).
(Julius O. Smith, Digital Audio Resampling, https://ccrma.stanford.edu/~jos/resample/)
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, gcd
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Samples = numpy.ndarray[Any, numpy.dtype[numpy.float32]]

ZEROS = 64
"""Of the sinc on each side of its middle: so steep is the filter's edge."""

EDGE = 0.94
"""Where the middle of that edge is, as a share of half the lower rate: all up to 0.88 of it comes
through, and of what is beyond it nothing."""

WINDOW = (0.35875, 0.48829, 0.14128, 0.01168)
"""Weights of cosines. (Harris, On the use of windows for harmonic analysis, 1978)"""

PERIODS = 1024
"""How many are computed at once."""

KEPT_RATES = 4
"""Pairs of rates whose weights are kept, of at most 2 MB each: those of a compact disc for 16,000 a
second take nearly as long as half a minute of its sound."""


def resampled(samples: Samples, rate: int, wanted: int) -> Samples:
    """The same sound with `wanted` samples a second.

    Args:
        samples: float32 `[samples]`.
        rate: how many of them there are a second.
        wanted: how many there are to be. What both are multiples of should be large: what is
            computed beforehand grows with what is left.

    Returns:
        float32 `[ceil(samples * wanted / rate)]`.
    """
    import numpy

    if rate == wanted or not len(samples):
        return samples
    # After so many old samples, and as many new ones, both lie as they lay at first.
    down, up = rate // gcd(rate, wanted), wanted // gcd(rate, wanted)
    weights, half = _weights(down, up)
    count = -(-len(samples) * up // down)
    periods = -(-count // up)
    span = len(weights)
    padded = numpy.pad(samples, (half, periods * down + span - len(samples)))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, span)[::down]
    found = numpy.empty((periods, up), numpy.float32)
    for first in range(0, periods, PERIODS):
        last = min(first + PERIODS, periods)
        found[first:last] = numpy.ascontiguousarray(windows[first:last]) @ weights
    return found.ravel()[:count]


@lru_cache(KEPT_RATES)
def _weights(down: int, up: int) -> tuple[Samples, int]:
    """Those of the old samples around a period in each of its new ones, `[old, new]`, and how many
    of the old lie before it."""
    import numpy

    cutoff = EDGE * min(1.0, up / down)
    half = ceil(ZEROS / cutoff)
    places = numpy.arange(up) * (down / up)
    away = numpy.arange(-half, down + half)[:, None] - places
    turn = numpy.pi * away / half
    window = sum(each * numpy.cos(times * turn) for times, each in enumerate(WINDOW))
    weights = numpy.where(abs(away) < half, numpy.sinc(cutoff * away) * window, 0)
    return (weights / weights.sum(axis=0)).astype(numpy.float32), half
