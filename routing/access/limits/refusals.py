"""What clients are told of limits: errors, and what is left."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llama_compat.dialects.rate_limits import RateLimit
from llama_compat.errors import APIError
from llama_compat.wire.retry_after import retry_after, retry_never
from routing.access.limits.rules import Charge, Resource, Standing

_UNITS = {
    Resource.requests: "requests a minute",
    Resource.tokens: "tokens a minute",
    Resource.concurrent: "requests at a time",
}

LONGEST_RETRY_SECONDS = 3600.0
"""Nobody waits any longer for an answer: `retry-after` is not sent then."""


def refused(standings: Sequence[Standing]) -> APIError:
    """429 for a request that has to wait, by the limit that it waits for longest."""
    worst = max(standings, key=lambda each: each.wait)
    if worst.charge.rule.resource is Resource.budget:
        return _over_budget(worst)
    return _over_limit(worst)


def _over_limit(standing: Standing) -> APIError:
    rule, wait = standing.charge.rule, standing.wait
    message = (
        f"Rate limit reached for {rule.name}: {rule.limit:g} {_UNITS[rule.resource]},"
        f" {int(standing.remaining)} left, {math.ceil(standing.charge.amount)} asked for."
    )
    if math.isinf(wait):
        message += " So much is never let in: lower max_tokens or shorten the prompt."
    else:
        message += f" Try again in {wait:.3g} s."
    return APIError(
        429,
        message,
        type="tokens" if rule.resource is Resource.tokens else "requests",
        code="rate_limit_exceeded",
        headers=_retry_headers(wait),
    )


def _over_budget(standing: Standing) -> APIError:
    rule = standing.charge.rule
    period = "in all" if rule.period == "ever" else f"a {rule.period}"
    return APIError(
        429,
        f"The budget of {rule.name} is used up: ${rule.limit:g} {period},"
        f" ${standing.remaining:.2g} left, and this request may cost"
        f" ${standing.charge.amount:.2g}. Whoever runs this server can raise it.",
        type="insufficient_quota",
        code="insufficient_quota",
        headers=_retry_headers(standing.wait),
    )


def _retry_headers(wait: float) -> dict[str, str]:
    if wait > LONGEST_RETRY_SECONDS:
        return retry_never()
    return retry_after(wait)


def counters_away() -> APIError:
    """503: limits can't be counted, and the template wants nothing let in then."""
    return APIError(
        503,
        "This server's limits can't be counted at the moment. Ask again in a moment.",
        code="limits_unavailable",
        headers=retry_after(1),
    )


def rate_limits(
    charges: Sequence[Charge], levels: Sequence[tuple[float, float]], now: float
) -> list[RateLimit]:
    """Of requests and of tokens, the limit of which least is left.

    Args:
        charges: a request's.
        levels: what is used and reserved of each one's rule.
        now: in seconds since 1970.
    """
    tightest: dict[str, RateLimit] = {}
    for place, (used, reserved) in enumerate(levels):
        rule = charges[place].rule
        told = rule.told
        if told:
            left = rule.limit - used - reserved
            remaining = int(left) if left > 0.0 else 0
            other = tightest.get(told)
            if other is None or remaining < other.remaining:
                reset = used / rule.drains
                tightest[told] = RateLimit(told, int(rule.limit), remaining, reset, now + reset)
    return list(tightest.values())
