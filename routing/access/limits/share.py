"""What one of several gateways lets in by itself while nobody can count for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from routing.access.limits.memory import Counters, MemoryCounters, Taken
from routing.access.limits.rules import Charge, Demand, Resource, Rule, Rules

_AT_LEAST_ONE = (Resource.requests, Resource.concurrent)


class LocalShare:
    """Each limit divided by the gateways that were seen last.

    Of a limit a minute and of one at a time the share is its n-th part: of requests at least one,
    and what runs here already counts. Of a budget it is the n-th part of what was left when it was
    last heard here how much all had used and reserved: so all shares together are what was left.

    A share is for one outage, and the next one begins with a new one.

    Args:
        counters: those that can't be asked at the moment.
        gateways: how many were seen last, this one among them.
        wall: seconds since 1970.
    """

    def __init__(
        self, counters: Counters, gateways: Callable[[], int], wall: Callable[[], float]
    ) -> None:
        self._counters = counters
        self._gateways = gateways
        self._wall = wall
        self._outage = -1
        self._n = 1
        self._own = MemoryCounters(wall=wall)
        self._begun: set[str] = set()

    def charges(self, rules: Rules, demand: Demand, now: float) -> list[Charge]:
        """What a request charges to the shares of `rules`; `now` is in seconds since 1970."""
        if self._outage != self._counters.outages:
            self._outage = self._counters.outages
            self._n = max(1, self._gateways())
            self._own, self._begun = MemoryCounters(wall=self._wall), set()
        charges = Rules(self._share_of(each) for each in rules).charges(demand, now)
        for each in charges:
            self._begin(each)
        return charges

    async def take(self, charges: Sequence[Charge]) -> Taken:
        """Take them, if there is room for each."""
        return await self._own.take(charges)

    def settle(self, lease: str, charges: Sequence[Charge], used: Sequence[float]) -> None:
        """A request has ended that was let in here; nothing, if that was in another outage."""
        self._own.settle(lease, charges, used)

    def _share_of(self, rule: Rule) -> Rule:
        if self._n == 1:
            return rule
        name = f"{rule.name} at this gateway, one of {self._n} while the store is away"
        if rule.resource is Resource.budget:
            return replace(rule, name=name)
        share = rule.limit / self._n
        if rule.resource in _AT_LEAST_ONE:
            share = max(1.0, share)
        return replace(rule, name=name, limit=share)

    def _begin(self, charge: Charge) -> None:
        rule, counter = charge.rule, charge.counter
        if rule.resource is Resource.concurrent:
            self._own.begin(counter, 0.0, self._counters.held(counter), charge.ends)
        elif rule.resource is Resource.budget and counter not in self._begun:
            self._begun.add(counter)
            left = max(0.0, rule.limit - self._counters.known(counter))
            self._own.begin(counter, rule.limit - left / self._n, 0.0, charge.ends)
