"""Ends of requests that could not be counted yet."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from routing.access.limits.memory import nothing
from routing.access.limits.rules import Charge, Resource

log = logging.getLogger(__name__)

MAX_UNSETTLED = 10_000
"""So many ends of requests are kept for when the store is back."""

HELD_BACK_SECONDS = 2.0
"""So long what a request has cost waits for a store that is away: it is told that itself where it
is away for a moment. After that it is written to the storage, which those tell who come later."""


class Settlement(Struct, eq=False):
    """The end of a request.

    What budgets have come to is counted in the store and kept in the storage, from which the store
    is told what it does not know. So that nothing is counted twice, it is decided once where it
    goes first: what has been sent to the store is in the storage only after there was an answer,
    and what could not be sent for a while is sent later without it.

    Attributes:
        lease, charges, used, is_apart: as `Counters.settle` has them.
        counted: to be called once what is used is counted here, or not to be.
        is_sent: whether the store may have counted it.
        ended: when, in seconds of a clock that moves on.
    """

    lease: str
    charges: Sequence[Charge]
    used: Sequence[float]
    counted: Callable[[], None]
    is_apart: bool
    is_sent: bool = False
    ended: float = 0.0

    def is_counted(self) -> None:
        """Say so, once."""
        counted, self.counted = self.counted, nothing
        counted()

    def leave_out_budgets(self) -> None:
        """Have what budgets have come to counted elsewhere."""
        self.used = [
            0.0 if charge.rule.resource is Resource.budget else amount
            for charge, amount in zip(self.charges, self.used, strict=True)
        ]
        self.is_counted()


class Unsettled:
    """Those that wait for the store, first in first out.

    Args:
        clock: seconds of anything that moves on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[Settlement] = deque()
        self._dropped = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def keep(self, settlement: Settlement) -> None:
        """Have it wait; of too many, the oldest is counted here alone."""
        if len(self._waiting) == MAX_UNSETTLED:
            self._waiting.popleft().is_counted()
            self._dropped += 1
        settlement.ended = settlement.ended or self._clock()
        self._waiting.append(settlement)

    def next(self, most: int) -> list[Settlement]:
        """The first ones, which wait no more."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def again(self, settlements: Sequence[Settlement]) -> None:
        """They wait still, before all others."""
        self._waiting.extendleft(reversed(settlements))

    def write_old_ones(self) -> None:
        """Have the storage told of what was spent a while ago, and has not been sent."""
        until = self._clock() - HELD_BACK_SECONDS
        for each in self._waiting:
            if each.ended > until:
                break
            if not each.is_sent:
                each.leave_out_budgets()

    def are_counted(self) -> None:
        """Nobody will settle what waits: it is counted here alone."""
        for each in self._waiting:
            each.is_counted()

    def tell_dropped(self, store: str) -> None:
        """Say in the log how many were too many."""
        if self._dropped:
            log.error("%s ends of requests were never counted in %s", self._dropped, store)
            self._dropped = 0
