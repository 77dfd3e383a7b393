"""What one of several gateways lets in by itself while nobody can count for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from routing.access.limits.memory import Counters, MemoryCounters, Taken
from routing.access.limits.rules import Charge, Demand, Resource, Rule, Rules

_AT_LEAST_ONE = (Resource.requests, Resource.concurrent)


class LocalShare:
    """Each limit divided by the gateways that were seen last.

    Of a limit a minute and of one at a time the share is its n-th part, of requests at least one.
    Of a limit a minute the n-th part of what all had used and reserved counts, as it was last heard
    here; of one at a time what runs here. Of a budget it is the n-th part of what was left then: so
    all shares together are what was left.

    A share of a budget is for one outage: before the next one begins all have told what they spent,
    and have heard what is left. Nobody hears of every limit a minute in between, so what was let in
    by an earlier outage counts until it has drained.

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
            self._begun = set()
        charges = Rules(self._share_of(each) for each in rules).charges(demand, now)
        for each in charges:
            self._begin(each)
        return charges

    async def take(self, charges: Sequence[Charge]) -> Taken:
        """Take them, if there is room for each."""
        return await self._own.take(charges)

    def settle(self, lease: str, charges: Sequence[Charge], used: Sequence[float]) -> None:
        """A request has ended that was let in here, in this outage or in an earlier one."""
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
            self._own.raise_to(charge, 0.0, self._counters.held(counter))
        elif counter not in self._begun:
            self._begun.add(counter)
            known = self._counters.known(counter)
            if rule.resource is Resource.budget:
                left = max(0.0, rule.limit - known)
                self._own.set_level(charge, rule.limit - left / self._n)
            else:
                self._own.raise_to(charge, known / self._n, 0.0)
