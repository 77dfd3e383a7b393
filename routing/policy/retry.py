"""Retries: how many a provider may be sent, and how long each waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_SECONDS = 10.0
"""What is recent: a request counts for less the longer it was ago, 1/e after so long."""

STEP_SECONDS = 0.01
"""Requests that are less apart came at the same time."""

FREE_RETRIES = 3
"""So many within the window are let through whatever the share, or a server with little to do
could not retry at all."""


class Budget:
    """How often one may ask again: a share of the recent requests, so that asking again does not
    double the load of what is in trouble already. A provider has one for the retries that it is
    sent, and a model's policy one for its hedges.

    After Finagle's and Linkerd's retry budgets, with counts that decay in place of a window's
    buckets.
    """

    __slots__ = ("_at", "_requests", "_retries")

    def __init__(self) -> None:
        self._requests = 0.0
        self._retries = 0.0
        self._at = 0.0

    def request(self, now: float) -> None:
        """A request is sent that is no retry."""
        if now - self._at > STEP_SECONDS:
            self._decay(now)
        self._requests += 1.0

    def allows(self, now: float, share: float) -> bool:
        """Whether one more retry stays within `share` of the recent requests."""
        self._decay(now)
        return self._retries + 1.0 <= max(FREE_RETRIES, share * self._requests) and share > 0

    def retry(self, now: float) -> None:
        """A retry is sent."""
        self._decay(now)
        self._retries += 1.0

    def _decay(self, now: float) -> None:
        kept = math.exp((self._at - now) / WINDOW_SECONDS)
        self._requests *= kept
        self._retries *= kept
        self._at = now


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a retry of the same target waits: twice as long each time, with jitter.

    Attributes:
        first, most: in seconds.
    """

    first: float = 0.25
    most: float = 8.0

    def seconds(self, retries: int, random: Callable[[], float]) -> float:
        """Before the retry that follows `retries` others.

        Args:
            retries: of the same target in the same request.
            random: gives numbers from 0 to 1: half of the time is left to chance, so that many who
                failed together do not come back together.
        """
        longest = min(self.first * 2.0**retries, self.most)
        return float(longest * (0.5 + random() / 2))
