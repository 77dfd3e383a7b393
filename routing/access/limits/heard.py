"""What one of several gateways has heard of the counters that all share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from routing.access.limits.rules import Charge, Resource


class _Heard(Struct, frozen=True):
    """Of one counter: what was used and reserved of it at a time, and what drains of that."""

    level: float
    at: float
    drains: float
    ends: float


class Heard:
    """What was used and reserved of each counter when it was last asked, less what has drained
    since; and what has been kept of budgets.

    Args:
        clock: seconds of anything that moves on.
        wall: seconds since 1970.

    Attributes:
        kept: of budgets what has been used, and when their period ends (or 0), by counter.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.kept: Mapping[str, tuple[float, float]] = {}
        self._clock = clock
        self._wall = wall
        self._heard: dict[str, _Heard] = {}

    def of(self, charge: Charge, level: float) -> None:
        """So much is used and reserved of what a request charges. What runs at a time is no use
        to know: it is another number a moment later."""
        rule = charge.rule
        if rule.resource is not Resource.concurrent:
            now = self._clock()
            self._heard[charge.counter] = _Heard(level, now, rule.drains, charge.ends)

    def of_budget(self, counter: str, level: float, ends: float) -> None:
        """So much is used and reserved of a budget, whose period ends then (or 0)."""
        self._heard[counter] = _Heard(level, self._clock(), 0.0, ends)

    def level(self, counter: str) -> float:
        """What is used and reserved by all, as far as it is known here."""
        kept, _ = self.kept.get(counter, (0.0, 0.0))
        heard = self._heard.get(counter)
        if heard is None:
            return kept
        return max(kept, heard.level - (self._clock() - heard.at) * heard.drains)

    def forget_old(self) -> None:
        """Forget what says nothing any more: a period is over, or all has drained."""
        now, wall = self._clock(), self._wall()
        for name, each in list(self._heard.items()):
            is_over = each.ends and each.ends < wall
            if is_over or (each.drains and each.level <= (now - each.at) * each.drains):
                del self._heard[name]
