"""What requests have come to: the record of each, made once, whoever asks for it."""

from __future__ import annotations

import time

from msgspec import UNSET, structs

from llama_compat.text.one_line import one_line
from llama_compat.types import Usage
from routing.ingress.disconnect import CLIENT_LEFT
from routing.models import Route
from routing.observability.records.estimate import counted_or_estimated
from routing.observability.records.prices import Prices
from routing.observability.records.record import Record
from routing.observability.records.trail import trail_of
from routing.observability.sample import finish_reason
from routing.policy.attempts import Attempt
from routing.request import Request, Spent

CACHE = "llama-compat-cache"
"""What is recorded as the provider of a reply that was asked for before, or by another."""

MAX_MODEL = 200
MAX_MESSAGE = 500
"""Of a model's name and of an error so many characters are recorded."""

_NOTHING_COUNTED = (None, None, None, None, None, None, False)


_READ_ONLY = frozenset({"embedding", "rerank", "moderation", "speech"})
"""What is asked here has a prompt, and no reply of tokens."""


class Ledger:
    """Makes records of requests that have ended.

    Args:
        prices: what they cost.
    """

    def __init__(self, prices: Prices) -> None:
        self.prices = prices

    def most(self, route: Route, usage: Usage) -> int | None:
        """What a request of `route` with this usage costs at most, in billionths of a dollar; None
        where nobody knows."""
        costs = [
            self.prices.cost(route.name, each.provider.id, each.target.model, usage)
            for each in route.targets
        ]
        return max((cost for cost in costs if cost is not None), default=None)

    def spent(self, request: Request) -> Spent:
        """What a request that has ended, or is about to, has used; the same from then on."""
        if request.spent is None:
            request.spent = Spent(*_usage(request, request.attempts.last))
        return request.spent

    def cost(self, request: Request) -> int | None:
        """What that cost, in billionths of a dollar; None where nobody knows. The same from then
        on."""
        spent = request.spent or self.spent(request)
        cost = spent.cost
        if cost is UNSET:
            cost = spent.cost = self._cost(request, spent.usage)
        return cost

    def _cost(self, request: Request, usage: Usage | None) -> int | None:
        if usage is None:
            return None
        if request.cached:
            return 0
        last, route = request.attempts.last, request.route
        name = "" if route is None else route.name
        if last is None:
            return self.prices.cost(name, "", "", usage)
        provider, model = last.target.provider.id, last.target.model
        in_batch = request.deferral is not None
        return self.prices.cost(name, provider, model, usage, batch=in_batch)

    def record(self, request: Request) -> Record:
        """The record of `request`, which has ended."""
        begun, call, route, error = request.begun, request.call, request.route, request.error
        attempts, operation, principal = request.attempts, request.operation, request.principal
        stream = call is not None and call.stream
        name = "" if route is None else route.name
        served = provider = target_id = finished = ""
        last = attempts.last
        spent, cost = self.spent(request), self.cost(request)
        usage = spent.usage
        if last is not None:
            target = last.target
            served, provider, target_id = target.model, target.provider.id, target.id
            if last.content:
                finished = one_line(finish_reason(request.tail))
        if request.cached:
            provider, finished = CACHE, one_line(finish_reason(request.tail))
        counts = _NOTHING_COUNTED if usage is None else structs.astuple(usage)
        prompt, completion, cached, reasoning, written, units, _ = counts
        # What is given again was searched for before.
        known = None if units is None or request.cached else units.searches
        searches = None if known is None else round(known)
        first_content, overhead = _waits(request)
        return Record(
            time.time() - time.monotonic() + begun,
            request.request_id,
            "" if principal is None else principal.id,
            operation.dialect.name,
            operation.name,
            name,
            one_line(request.model, MAX_MODEL) if request.model != name else name,
            served,
            provider,
            target_id,
            attempts.sent,
            request.status or CLIENT_LEFT,
            "" if error is None else error.error_class.value,
            "" if error is None else one_line(error.message, MAX_MESSAGE),
            1 if stream else 0,
            1 if request.cancelled else 0,
            finished,
            prompt,
            cached,
            written,
            completion,
            reasoning,
            1 if spent.estimated else 0,
            first_content if stream else None,
            request.ended - begun,
            overhead,
            cost,
            request.told_verdicts if request.verdicts else "",
            trail_of(attempts.made, request.parts, begun, request.ended)
            if request.parts or len(attempts.made) > 1
            else "",
            searches,
            sum(part.kind == "tool" for part in request.parts),
        )


def _waits(request: Request) -> tuple[float | None, float | None]:
    """Seconds until the first content was there, and those of them and of sending it that were this
    server's own; None where nothing came."""
    attempts = request.attempts
    content = 0.0 if attempts.last is None else attempts.last.content
    if not content:
        return None, None
    overhead = attempts.made[0].begun - request.begun + max(0.0, request.first_sent - content)
    return content - request.begun, overhead


def _usage(request: Request, last: Attempt | None) -> tuple[Usage | None, bool]:
    """What it used, and whether that is estimated; None where nothing was generated.

    Args:
        request: that has ended.
        last: the attempt whose answer the client got.
    """
    reply, call, kind = request.reply, request.call, request.operation.kind
    if reply is None or call is None or kind == "token_count":
        return None, False
    # An attempt reads what its reply used once; a reply as often as it is asked.
    counted = None if last is None else last.usage
    if counted is None:
        counted = reply.usage
    units = counted.units if counted is not None and counted.units else call.extent.units
    if kind in _READ_ONLY and not (counted and counted.prompt_tokens):
        return Usage(call.extent.prompt.tokens, units=units), True
    if units is not None:
        counted = structs.replace(counted or Usage(), units=units)
    # A whole reply has been paid for, whether the client got it or not.
    complete = request.complete or reply.is_complete
    return counted_or_estimated(
        counted, call.extent.prompt, lambda: request.sample, complete=complete
    )
