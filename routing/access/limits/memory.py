"""The counters of one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from msgspec import Struct

from routing.access.limits.rules import Charge, fits

OTHERS = "others"
"""Names what is reserved in `MemoryCounters.begin`."""


def nothing() -> None:
    """Nobody wants to know."""


class Taken(Struct, frozen=True):
    """What became of a request's charges: all were taken, or none.

    Attributes:
        lease: names what was taken, until it is settled; empty if nothing was.
        levels: what is used and what is reserved of each rule then, in the order of the charges.
    """

    lease: str
    levels: Sequence[tuple[float, float]]


class CountersAway(Exception):
    """The counters can't be asked at the moment.

    Args:
        was_asked: whether they may have heard the question.

    Attributes:
        was_asked: as it is given.
        lease: what was asked for and may have been taken all the same, as there was no answer: it
            is to be settled. Empty where they were known to be away.
    """

    def __init__(self, *, was_asked: bool = False) -> None:
        super().__init__()
        self.was_asked = was_asked
        self.lease = ""


class Counters(Protocol):
    """Where limits are counted. What is taken and settled is so in one step, or not at all."""

    @property
    def store(self) -> str:
        """Where they are, for people."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether they can't be asked at the moment."""
        ...

    def when_back(self, tell: Callable[[], Awaitable[None]]) -> None:
        """Have `tell` called, to call `set_used`, before they are asked again after they were
        away."""
        ...

    async def start(self) -> None:
        """Connect to where they are."""
        ...

    async def stop(self) -> None:
        """Settle what is left, and disconnect."""
        ...

    async def take(self, charges: Sequence[Charge]) -> Taken:
        """Take all of `charges`, each of another counter, if there is room for each.

        Raises:
            CountersAway: nobody knows.
        """
        ...

    def settle(
        self,
        lease: str,
        charges: Sequence[Charge],
        used: Sequence[float],
        counted: Callable[[], None] = nothing,
        *,
        is_apart: bool = False,
    ) -> asyncio.Task[None] | None:
        """What a lease reserved is free again, and of each charge so much is used.

        Args:
            lease, charges: as they were taken.
            used: of each charge.
            counted: called once that is counted here, or where it won't be: from then on
                `set_used` may say it.
            is_apart: whether nobody knows if the lease was taken. If it was not, what the charges
                use at once is counted now.

        Returns:
            What sees to it, for who wants to wait; None if that is so already.
        """
        ...

    def take_apart(self, charges: Sequence[Charge], lease: str = "") -> str:
        """Let a request in while they can't be asked, of which they hear as soon as they can.

        Args:
            charges: of the request.
            lease: that of `CountersAway`, which is settled by that.

        Returns:
            A lease to be settled like any other.
        """
        ...

    def later(self) -> str:
        """A lease for what can't be taken now, to be settled like any other."""
        ...

    @property
    def outages(self) -> int:
        """How many times they could not be asked any more."""
        ...

    def held(self, counter: str) -> float:
        """How many of this process's requests run that `counter` counts at the same time."""
        ...

    def known(self, counter: str) -> float:
        """What is used and reserved by all, as it was last heard here; of what runs at a time it is
        not known."""
        ...

    async def set_used(self, budgets: Mapping[str, tuple[float, float]]) -> None:
        """Of budgets so much has been used so far, by what has been kept of them.

        Args:
            budgets: by counter, what was used, and when its period ends (or 0).

        Raises:
            CountersAway: nobody can be told.
        """
        ...


@dataclass(slots=True)
class _Counter:
    """One rule's: what is used, as of `at`, and what each lease reserves."""

    at: float
    ends: float
    used: float = 0.0
    leases: dict[str, float] = field(default_factory=dict)
    reserved: float = 0.0

    def drain(self, now: float, rate: float) -> None:
        """Let what is used become less by `rate` a second until `now`."""
        used = self.used - (now - self.at) * rate
        self.used = used if used > 0.0 else 0.0
        self.at = now

    def release(self, lease: str) -> None:
        """Free what a lease reserves."""
        amount = self.leases.pop(lease, 0.0)
        # What is left over of fractions ends with the last lease.
        self.reserved = self.reserved - amount if self.leases else 0.0


class MemoryCounters:
    """Counters that end with the process.

    This is the generic cell rate algorithm in its form of a continuous-state leaky bucket (ITU-T
    I.371, annex A), with what runs held apart, so that it can be given back exactly.

    Args:
        clock: seconds of anything that moves on.
        wall: seconds since 1970.
    """

    store = "memory"
    is_away = False
    outages = 0

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._seen = clock()
        self._elapsed = 0.0
        self._wall = wall
        self._counters: dict[str, _Counter] = {}
        self._numbers = count(1)
        self._open: set[str] = set()

    def when_back(self, tell: Callable[[], Awaitable[None]]) -> None:
        """They are never away."""

    async def start(self) -> None:
        """Nothing has to be done."""

    async def stop(self) -> None:
        """Nothing has to be done."""

    async def take(self, charges: Sequence[Charge]) -> Taken:
        """Take all of `charges`, if there is room for each."""
        now, known = self._now(), self._counters
        counters, levels, has_room = [], [], True
        for charge in charges:
            rule = charge.rule
            counter = known.get(charge.counter) or self._counter(charge.counter, charge.ends)
            if rule.drains and now > counter.at:
                counter.drain(now, rule.drains)
            counters.append(counter)
            # Mostly there is room: then this is what is used and reserved afterwards.
            used, reserved = counter.used + charge.use, counter.reserved + charge.reserve
            excess = used + reserved - rule.limit
            if excess > 0.0 and not fits(excess, rule.limit):
                has_room = False
            levels.append((used, reserved))
        if not has_room:
            return Taken("", [(each.used, each.reserved) for each in counters])
        lease = str(next(self._numbers))
        self._open.add(lease)
        for place, charge in enumerate(charges):
            counter = counters[place]
            counter.used, counter.reserved = levels[place]
            if charge.reserve:
                counter.leases[lease] = charge.reserve
        return Taken(lease, levels)

    def settle(
        self,
        lease: str,
        charges: Sequence[Charge],
        used: Sequence[float],
        counted: Callable[[], None] = nothing,
        *,
        is_apart: bool = False,
    ) -> None:
        """Free what a lease reserved, and count what was used; a second time changes nothing."""
        if lease not in self._open:
            return
        self._open.remove(lease)
        now, known = self._now(), self._counters
        for place, charge in enumerate(charges):
            if not charge.use:
                rate = charge.rule.drains
                counter = known.get(charge.counter) or self._counter(charge.counter, charge.ends)
                if rate and now > counter.at:
                    counter.drain(now, rate)
                counter.release(lease)
                counter.used += used[place]
        if counted is not nothing:
            counted()

    def take_apart(self, charges: Sequence[Charge], lease: str = "") -> str:
        """They can always be asked: there is nothing to hear of."""
        return self.later()

    def later(self) -> str:
        """A lease that takes nothing."""
        lease = str(next(self._numbers))
        self._open.add(lease)
        return lease

    def held(self, counter: str) -> float:
        """How many requests run that `counter` counts."""
        found = self._counters.get(counter)
        return found.reserved if found is not None else 0.0

    def known(self, counter: str) -> float:
        """What is used and reserved of a budget."""
        found = self._counters.get(counter)
        return found.used + found.reserved if found is not None else 0.0

    def raise_to(self, charge: Charge, used: float, reserved: float) -> None:
        """Let so much be used at least of what is charged, and reserved, by whomever; what others
        than those who took it here reserve may be less another time."""
        found, now = self._counter(charge.counter, charge.ends), self._now()
        if now > found.at:
            found.drain(now, charge.rule.drains)
        found.used = max(found.used, used)
        found.release(OTHERS)
        if (others := reserved - found.reserved) > 0.0:
            found.leases[OTHERS] = others
            found.reserved += others

    def set_level(self, charge: Charge, level: float) -> None:
        """Let so much be used and reserved of a budget, with what is reserved of it here."""
        found = self._counter(charge.counter, charge.ends)
        found.used = max(0.0, level - found.reserved)

    async def set_used(self, budgets: Mapping[str, tuple[float, float]]) -> None:
        """Set what is used of budgets."""
        for counter, (used, ends) in budgets.items():
            self._counter(counter, ends).used = used

    def _now(self) -> float:
        """Seconds since the beginning; a clock that goes back is a clock that stands still."""
        seen, self._seen = self._seen, self._clock()
        if self._seen > seen:
            self._elapsed += self._seen - seen
        return self._elapsed

    def _counter(self, name: str, ends: float) -> _Counter:
        counter = self._counters.get(name)
        if counter is None:
            if ends:
                self._forget_old()
            counter = self._counters[name] = _Counter(self._elapsed, ends)
        return counter

    def _forget_old(self) -> None:
        now = self._wall()
        old = [name for name, each in self._counters.items() if each.ends and each.ends < now]
        for name in old:
            if not self._counters[name].leases:
                del self._counters[name]
