"""The limits and budgets of who asks, of their team and of the model."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from llama_compat.exchange import Reply
from llama_compat.types import Usage
from routing.access.limits.rules import NO_DEMAND, Resource, Rules
from routing.request import Handler, Request

if TYPE_CHECKING:
    from routing.access.limits.limiter import Admission
    from routing.access.limits.requests import RequestLimits
    from routing.observability.records.ledger import Ledger

log = logging.getLogger(__name__)


class LimitsLayer:
    """Reserves what a request may come to, and settles it when that has ended, however it ends.

    Args:
        next: answers it then.
        limits: which hold for whom.
        ledger: what requests have come to.
    """

    def __init__(self, next: Handler, limits: RequestLimits, ledger: Ledger) -> None:
        self._next = next
        self._limits = limits
        self._ledger = ledger

    async def __call__(self, request: Request) -> Reply:
        """Answer a request.

        Raises:
            APIError: 429, a limit is reached; 503, nobody knows, and the template wants it so.
        """
        call, route = request.call, request.route
        assert call is not None
        assert route is not None

        rules = self._limits.rules(call.principal, route.name)
        if rules:
            most = partial(self._ledger.most, route)
            admission = await self._limits.admit(rules, call, most, request.meets)
            request.reserves(partial(_settle, self._ledger, admission))
        return await self._next(request)


_KNOWN_LATER = (Resource.tokens, Resource.budget)
"""What is counted as a request ends; all else is when it is let in, or ends with its process."""


def owe(limits: RequestLimits, ledger: Ledger, request: Request) -> None:
    """Have a request count as it ends that a process let in which is gone."""
    principal, name = request.principal, "" if request.route is None else request.route.name
    assert principal is not None
    rules = limits.rules(principal, name)
    counted = Rules(each for each in rules if each.resource in _KNOWN_LATER)
    if counted:
        request.reserves(partial(_settle, ledger, limits.owe(counted, NO_DEMAND)))


def _settle(ledger: Ledger, admission: Admission, request: Request) -> asyncio.Task[None] | None:
    try:
        usage = ledger.spent(request).usage or Usage()
        return admission.settle_usage(usage, partial(ledger.cost, request))
    except Exception:
        log.exception("what request %s used is not known", request.request_id)
        return admission.settle(None, None)
