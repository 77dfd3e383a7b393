"""How long a target takes until its first content: an average that a peak moves at once.

After Finagle's peak EWMA (https://twitter.github.io/finagle/guide/Clients.html): a longer time than
the average replaces it, a shorter one is averaged in, and with nothing new it decays, so that a
target that was slow once is looked at again.
"""

from __future__ import annotations

import math

DECAY_SECONDS = 10.0
"""After so long a time has lost all but 1/e of its weight."""


class PeakAverage:
    """The moving average of one target's times, in seconds."""

    __slots__ = ("_at", "_value")

    def __init__(self) -> None:
        self._value = 0.0
        self._at = 0.0

    def add(self, seconds: float, now: float) -> None:
        """Another request took `seconds`."""
        if seconds < self._value:
            weight = math.exp(-max(now - self._at, 0.0) / DECAY_SECONDS)
            seconds = self._value * weight + seconds * (1 - weight)
        self._value, self._at = seconds, now

    def at(self, now: float) -> float:
        """The average as it counts now; 0 for a target that has not been asked for long."""
        return self._value * math.exp(-max(now - self._at, 0.0) / DECAY_SECONDS)

    @property
    def last(self) -> float:
        """The average as it was when a time was added last."""
        return self._value
