"""What orders take of limits and budgets.

A line is held against the limits of a minute when it is handed over, and counts as all that it may
come to. Of budgets an order reserves what it may cost, until its lines have been read. How many
requests run at a time is no matter of lines that run elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.errors import APIError
from routing.access.limits.rules import Demand, Resource, Rules

if TYPE_CHECKING:
    from llama_compat.exchange import Principal
    from routing.access.limits.limiter import Admission
    from routing.access.limits.requests import RequestLimits
    from routing.batches.vendors.lines import HandedLine

_A_MINUTE = (Resource.requests, Resource.tokens)


class OrderLimits:
    """Those that hold for the lines of one order.

    Args:
        limits: of the template; None where there are none.
        principal: whose batch it is.
        route: the model that is asked.
    """

    def __init__(self, limits: RequestLimits | None, principal: Principal, route: str) -> None:
        rules = Rules() if limits is None else limits.rules(principal, route)
        self._limits = limits
        self._a_minute = Rules(each for each in rules if each.resource in _A_MINUTE)
        self._budgets = Rules(each for each in rules if each.resource is Resource.budget)

    async def let_in(self, line: HandedLine) -> None:
        """Count a line.

        Raises:
            APIError: 429, there is no room for it now, or never.
        """
        if self._a_minute and self._limits is not None:
            demand = Demand(line.tokens, line.is_guess)
            admission = await self._limits.take(self._a_minute, demand)
            admission.settle(None, None)

    async def reserve(self, cost: int) -> Admission | None:
        """Reserve of the budgets what lines may cost, in billionths of a dollar; None where there
        are none.

        Raises:
            APIError: 429, they are used up.
        """
        if not self._budgets or self._limits is None:
            return None
        return await self._limits.take(self._budgets, Demand(cost=cost / NANO_DOLLARS))

    async def hold(self, cost: int) -> Admission | None:
        """The same of what has been handed over: it counts, whether there is room or not."""
        if not self._budgets or self._limits is None:
            return None
        try:
            return await self.reserve(cost)
        except APIError:
            return self._limits.owe(self._budgets, Demand(cost=cost / NANO_DOLLARS))
