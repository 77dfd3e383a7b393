"""Lets requests in as far as the limits go, and settles each once it has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from msgspec import Struct

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.dialects.rate_limits import RateLimit
from llama_compat.errors import APIError
from llama_compat.types import Usage
from routing.access.limits.memory import Counters, CountersAway, nothing
from routing.access.limits.refusals import counters_away, rate_limits, refused
from routing.access.limits.rules import (
    Charge,
    Demand,
    Resource,
    Rules,
    standing,
    used_of,
)

Tell = Callable[[Sequence[RateLimit]], None]
"""Called with what is left of the limits a minute, whether a request is let in or not."""


def nobody(limits: Sequence[RateLimit]) -> None:
    """For a request of which nobody is told what is left."""


class Limiter:
    """The way in.

    Args:
        counters: where it is counted.
        when_away: what to do while they can't be asked.
        wall: seconds since 1970.
        on_spent: told of every settled request what it cost a budget.

    Attributes:
        refusals: how many requests were refused, by what they wanted too much of.
    """

    def __init__(
        self,
        counters: Counters,
        when_away: Literal["open", "closed"] = "open",
        wall: Callable[[], float] = time.time,
        on_spent: Callable[[Charge, float], None] = lambda charge, cost: None,
    ) -> None:
        self.counters = counters
        self.refusals: dict[Resource, int] = dict.fromkeys(Resource, 0)
        self._when_away = when_away
        self._wall = wall
        self._on_spent = on_spent

    async def admit(self, rules: Rules, demand: Demand, tell: Tell = nobody) -> Admission:
        """Let a request in, if every rule has room for it.

        Raises:
            APIError: 429, one has not; 503, nobody knows, and the template wants it so.
        """
        now = self._wall()
        charges = rules.charges(demand, now)
        try:
            taken = await self.counters.take(charges)
        except CountersAway:
            if self._when_away == "closed":
                raise counters_away() from None
            return Admission(self, "", rules, charges)
        tell(rate_limits(charges, taken.levels, now))
        if not taken.lease:
            raise self._refusal(charges, taken.levels, now)
        return Admission(self, taken.lease, rules, charges)

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

    def settle(
        self, admission: Admission, tokens: float | None, cost: float | None
    ) -> asyncio.Task[None] | None:
        """What the request that was let in has used; None is all that it reserved.

        Returns:
            What sees to it, if it takes a while.
        """
        lease, charges = admission.lease, admission.charges
        used = used_of(charges, tokens, cost)
        counted = nothing
        if admission.rules.limits_costs:
            counted = partial(self._spent, charges, used)
        if lease:
            return self.counters.settle(lease, charges, used, counted)
        counted()
        return None

    def _spent(self, charges: Sequence[Charge], used: Sequence[float]) -> None:
        for charge, amount in zip(charges, used, strict=True):
            if charge.rule.resource is Resource.budget:
                self._on_spent(charge, amount)


class Admission(Struct):
    """A request that was let in, to be settled however it ends.

    Attributes:
        limiter: who let it in.
        lease: names what was taken for it; empty where nobody could count.
        rules: that it met.
        charges: what it took of each.
        is_settled: whether it has been settled.
    """

    limiter: Limiter
    lease: str
    rules: Rules
    charges: Sequence[Charge]
    is_settled: bool = False

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
        return self.limiter.settle(self, tokens, cost)
