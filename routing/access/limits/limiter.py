"""Lets requests in as far as the limits go, and settles each once it has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.dialects.rate_limits import RateLimit
from llama_compat.types import Usage
from routing.access.limits.memory import Counters, CountersAway
from routing.access.limits.refusals import counters_away, rate_limits, refused
from routing.access.limits.rules import (
    Charge,
    Demand,
    Resource,
    Rule,
    charges_of,
    settled,
    standing,
)

Tell = Callable[[Sequence[RateLimit]], None]
"""Called with what is left of the limits a minute, whether a request is let in or not."""


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

    async def admit(
        self, rules: Sequence[Rule], demand: Demand, tell: Tell = lambda limits: None
    ) -> Admission:
        """Let a request in, if every rule has room for it.

        Raises:
            APIError: 429, one has not; 503, nobody knows, and the template wants it so.
        """
        now = self._wall()
        charges = charges_of(rules, demand, now)
        try:
            lease, levels = await self.counters.take(charges)
        except CountersAway:
            if self._when_away == "closed":
                raise counters_away() from None
            return Admission(self, "", charges)
        tell(rate_limits(charges, levels, now))
        if not lease:
            standings = [
                standing(charge, *level, now) for charge, level in zip(charges, levels, strict=True)
            ]
            for each in standings:
                if each.wait:
                    self.refusals[each.charge.rule.resource] += 1
            raise refused(standings)
        return Admission(self, lease, charges)

    def settle(
        self, lease: str, charges: Sequence[Charge], tokens: float | None, cost: float | None
    ) -> asyncio.Task[None] | None:
        """What the request of a lease has used; None is all that it reserved.

        Returns:
            What sees to it, if it takes a while.
        """
        used = settled(charges, tokens, cost)
        spent = partial(self._spent, charges, used)
        if lease:
            return self.counters.settle(lease, charges, used, spent)
        spent()
        return None

    def _spent(self, charges: Sequence[Charge], used: Sequence[float]) -> None:
        for charge, amount in zip(charges, used, strict=True):
            if charge.rule.resource is Resource.budget:
                self._on_spent(charge, amount)


class Admission:
    """A request that was let in, to be settled however it ends."""

    def __init__(self, limiter: Limiter, lease: str, charges: Sequence[Charge]) -> None:
        self._limiter = limiter
        self._lease = lease
        self._charges: Sequence[Charge] | None = charges

    def settle_usage(self, usage: Usage, cost: int | None) -> asyncio.Task[None] | None:
        """As `settle`, with the cost in billionths of a dollar; None where nobody knows."""
        tokens = usage.prompt_tokens + usage.completion_tokens
        return self.settle(tokens, (cost or 0) / NANO_DOLLARS)

    def settle(self, tokens: float | None, cost: float | None) -> asyncio.Task[None] | None:
        """It has ended, and used so much; None is all that it reserved. Once is enough.

        Returns:
            What sees to it, if it takes a while.
        """
        charges, self._charges = self._charges, None
        return None if charges is None else self._limiter.settle(self._lease, charges, tokens, cost)
