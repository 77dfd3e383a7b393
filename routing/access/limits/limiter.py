"""Lets requests in as far as the limits go, and settles each once it has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, structs

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.dialects.rate_limits import RateLimit
from llama_compat.distribution import OnOutage
from llama_compat.errors import APIError
from llama_compat.types import Usage
from routing.access.limits.memory import Counters, CountersAway, nothing
from routing.access.limits.refusals import counters_away, rate_limits, refused
from routing.access.limits.rules import (
    NO_DEMAND,
    Charge,
    Demand,
    Resource,
    Rules,
    standing,
    used_of,
)
from routing.access.limits.share import LocalShare

Tell = Callable[[Sequence[RateLimit]], None]
"""Called with what is left of the limits a minute, whether a request is let in or not."""


def nobody(limits: Sequence[RateLimit]) -> None:
    """For a request of which nobody is told what is left."""


class Limiter:
    """The way in.

    Args:
        counters: where it is counted.
        on_outage: what to do while they can't be asked.
        wall: seconds since 1970.
        on_spent: told of every settled request what it cost a budget.
        gateways: how many were seen last, this one among them.

    Attributes:
        on_outage: as it is given.
        refusals: how many requests were refused, by what they wanted too much of.
        apart: how many were let in that the counters were not asked about.
        share: this gateway's of the limits, for as long as those can't be asked; None without one.
    """

    def __init__(
        self,
        counters: Counters,
        on_outage: OnOutage = "allow",
        wall: Callable[[], float] = time.time,
        on_spent: Callable[[Charge, float], None] = lambda charge, cost: None,
        gateways: Callable[[], int] = lambda: 1,
    ) -> None:
        self.counters = counters
        self.on_outage = on_outage
        self.apart = 0
        self.refusals: dict[Resource, int] = dict.fromkeys(Resource, 0)
        self._wall = wall
        self._on_spent = on_spent
        self.share = LocalShare(counters, gateways, wall) if on_outage == "local_share" else None

    async def admit(self, rules: Rules, demand: Demand, tell: Tell = nobody) -> Admission:
        """Let a request in, if every rule has room for it.

        Raises:
            APIError: 429, one has not; 503, nobody knows, and the template wants it so.
        """
        now = self._wall()
        charges = rules.charges(demand, now)
        try:
            taken = await self.counters.take(charges)
        except CountersAway as away:
            return await self._admit_apart(rules, demand, now, charges, away.lease)
        tell(rate_limits(charges, taken.levels, now))
        if not taken.lease:
            raise self._refusal(charges, taken.levels, now)
        return Admission(self, taken.lease, rules, charges)

    async def look(self, rules: Rules) -> list[tuple[Charge, float, float]]:
        """What is used and what is reserved of each of `rules`, of which nothing is taken.

        Raises:
            CountersAway: nobody knows.
        """
        charges = [
            structs.replace(each, reserve=0.0, use=0.0)
            for each in rules.charges(NO_DEMAND, self._wall())
        ]
        try:
            taken = await self.counters.take(charges)
        except CountersAway as away:
            if away.lease:
                self.counters.settle(away.lease, charges, [0.0] * len(charges))
            raise
        if taken.lease:
            self.counters.settle(taken.lease, charges, [0.0] * len(charges))
        return [(each, *level) for each, level in zip(charges, taken.levels, strict=True)]

    async def _admit_apart(
        self, rules: Rules, demand: Demand, now: float, charges: Sequence[Charge], lease: str
    ) -> Admission:
        """Let a request in of which the counters hear later, or have heard under `lease`."""
        try:
            return await self._let_in_apart(rules, demand, now, charges, lease)
        except APIError:
            if lease:
                self.counters.settle(lease, charges, [0.0] * len(charges))
            raise

    async def _let_in_apart(
        self, rules: Rules, demand: Demand, now: float, charges: Sequence[Charge], lease: str
    ) -> Admission:
        if self.on_outage == "refuse":
            raise counters_away() from None
        taken, own = "", list[Charge]()
        if self.share is not None:
            own = self.share.charges(rules, demand, now)
            found = await self.share.take(own)
            if not found.lease:
                raise self._refusal(own, found.levels, now)
            taken = found.lease
        self.apart += 1
        lease = self.counters.take_apart(charges, lease)
        return Admission(self, lease, rules, charges, own=taken, own_charges=own)

    def owe(self, rules: Rules, demand: Demand) -> Admission:
        """What has been let in before counts, though nothing is reserved for it now."""
        charges = rules.charges(demand, self._wall())
        return Admission(self, self.counters.later(), rules, charges)

    def _refusal(
        self, charges: Sequence[Charge], levels: Sequence[tuple[float, float]], now: float
    ) -> APIError:
        standings = [
            standing(charge, *level, now) for charge, level in zip(charges, levels, strict=True)
        ]
        for each in standings:
            if each.wait:
                self.refusals[each.charge.rule.resource] += 1
        return refused(standings)

    def spent(self, charges: Sequence[Charge], used: Sequence[float]) -> None:
        """What requests have cost budgets is counted, or never will be."""
        for charge, amount in zip(charges, used, strict=True):
            if charge.rule.resource is Resource.budget:
                self._on_spent(charge, amount)


class Admission(Struct):
    """A request that was let in, to be settled however it ends.

    Attributes:
        limiter: who let it in.
        lease: names what was taken for it, or will be once somebody can count.
        rules: that it met.
        charges: what it took of each.
        is_settled: whether it has been settled.
        own, own_charges: what it took of this gateway's share, where the counters were not asked.
    """

    limiter: Limiter
    lease: str
    rules: Rules
    charges: Sequence[Charge]
    is_settled: bool = False
    own: str = ""
    own_charges: Sequence[Charge] = ()

    def settle_usage(
        self, usage: Usage, cost: Callable[[], int | None] = lambda: None
    ) -> asyncio.Task[None] | None:
        """As `settle`, with what the request used.

        Args:
            usage: its tokens.
            cost: gives what they cost in billionths of a dollar, None where nobody knows; called
                only where a budget wants to know.
        """
        tokens = usage.prompt_tokens + usage.completion_tokens
        nanos = cost() if self.rules.limits_costs else None
        return self.settle(tokens, (nanos or 0) / NANO_DOLLARS)

    def settle(self, tokens: float | None, cost: float | None) -> asyncio.Task[None] | None:
        """It has ended, and used so much; None is all that it reserved. Once is enough.

        Returns:
            What sees to it, if it takes a while.
        """
        if self.is_settled:
            return None
        self.is_settled = True
        limiter, charges = self.limiter, self.charges
        used = used_of(charges, tokens, cost)
        if self.own and limiter.share is not None:
            own = self.own_charges
            limiter.share.settle(self.own, own, used_of(own, tokens, cost))
        counted = nothing
        if self.rules.limits_costs:
            counted = partial(limiter.spent, charges, used)
        return limiter.counters.settle(self.lease, charges, used, counted)
