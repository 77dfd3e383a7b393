"""What is limited: rules, and what one request charges to their counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from llama_compat.distribution import BudgetSettings, LimitSettings, Period

MINUTE = 60.0


class Resource(StrEnum):
    """What a rule counts."""

    requests = "requests"
    tokens = "tokens"
    concurrent = "concurrent"
    budget = "budget"


_TOKENS, _BUDGET = Resource.tokens, Resource.budget


class Rule(Struct, frozen=True):
    """One limit of one subject.

    Attributes:
        subject: whose counter it is, such as `key:ID`.
        resource: what is counted.
        limit: requests or tokens a minute, requests at a time, or US dollars a period.
        name: the subject for people, as in "key 'ci'".
        period: of a budget.
        drains: by how much what is used becomes less in a second.
        told: what clients are told that it limits a minute; empty where they are not.
        counter: its counter's name; a budget has one for each period, whose name follows this one.
    """

    subject: str
    resource: Resource
    limit: float
    name: str
    period: Period = "ever"
    drains: float = 0.0
    told: str = ""
    counter: str = ""

    def __post_init__(self) -> None:
        # It is compared with what is used, a fraction: with a whole number that takes long.
        force_setattr(self, "limit", float(self.limit))
        if self.resource in (Resource.requests, Resource.tokens):
            force_setattr(self, "drains", self.limit / MINUTE)
            force_setattr(self, "told", self.resource.value)
        force_setattr(self, "counter", f"{self.subject}:{self.resource}")


def rules_of(
    subject: str, name: str, limits: LimitSettings | None, budget: BudgetSettings | None = None
) -> Iterator[Rule]:
    """The rules that a subject's settings come to."""
    if limits is not None:
        amounts = {
            Resource.requests: limits.requests_per_minute,
            Resource.tokens: limits.tokens_per_minute,
            Resource.concurrent: limits.concurrent,
        }
        for resource, limit in amounts.items():
            if limit is not None:
                yield Rule(subject, resource, limit, name)
    if budget is not None:
        yield Rule(subject, Resource.budget, budget.amount, name, budget.period)


class Demand(Struct, frozen=True):
    """What a request may come to.

    Attributes:
        tokens: of prompt and completion.
        is_guess: whether the request leaves open how long its completion may be; such a request is
            never too large for a limit.
        cost: in US dollars, 0 where nobody knows the price.
    """

    tokens: int = 0
    is_guess: bool = True
    cost: float = 0.0


NO_DEMAND = Demand()
"""Of a request where nothing is limited that it may come to more or less of."""

MOST = 2.0**53
"""The largest amount that is counted: of all smaller ones, 1 more is more."""


def countable(amount: float) -> float:
    """`amount` as it is counted: from 0 to `MOST`, and 0 for what is no number."""
    if 0.0 <= amount <= MOST:
        return float(amount)
    return MOST if amount > 0 else 0.0


class Charge(Struct, frozen=True):
    """What one request takes of one rule.

    `Rules` makes them: whatever a request says, no amount is below zero, which would make room for
    others, and none is too large to be counted.

    Attributes:
        rule: which.
        counter: the counter's name.
        reserve: what is reserved until the request ends.
        use: what is used at once; of such a charge there is no more to say at the end.
        ends: when the counter is of no use any more, in seconds since 1970; 0 for never.
    """

    rule: Rule
    counter: str
    reserve: float = 0.0
    use: float = 0.0
    ends: float = 0.0

    @property
    def amount(self) -> float:
        """All of it."""
        return self.reserve + self.use


class Rules(tuple[Rule, ...]):
    """The rules that a request meets together, and what is the same of them for every request.

    Attributes:
        limits_tokens, limits_costs: whether it matters how many tokens a request has, and what it
            costs.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        resources = {each.resource for each in self}
        self.limits_tokens = Resource.tokens in resources
        self.limits_costs = Resource.budget in resources
        self._charged = [(each, _same_charge(each)) for each in self]

    def charges(self, demand: Demand, now: float) -> list[Charge]:
        """What a request charges to each of them; `now` is in seconds since 1970."""
        return [same or _charge(rule, demand, now) for rule, same in self._charged]


def _same_charge(rule: Rule) -> Charge | None:
    """What every request charges to `rule`; None where it depends on the request."""
    if rule.resource is Resource.requests:
        return Charge(rule, rule.counter, use=1.0)
    if rule.resource is Resource.concurrent:
        return Charge(rule, rule.counter, reserve=1.0)
    return None


def _charge(rule: Rule, demand: Demand, now: float) -> Charge:
    if rule.resource is _TOKENS:
        tokens: float = demand.tokens
        if demand.is_guess and tokens > rule.limit:
            tokens = rule.limit
        # `countable`, which most are, without its call.
        reserve = float(tokens) if 0 <= tokens <= MOST else countable(tokens)
        return Charge(rule, rule.counter, reserve)
    began, ends = period_at(rule.period, now)
    return Charge(rule, f"{rule.counter}:{began}", countable(demand.cost), ends=ends)


def used_of(charges: Sequence[Charge], tokens: float | None, cost: float | None) -> list[float]:
    """What has been used of each charge's rule in the end, but for what was used at once; None is
    all that was reserved."""
    used = []
    for charge in charges:
        if charge.use:
            used.append(0.0)
            continue
        resource = charge.rule.resource
        if resource is _TOKENS:
            used.append(charge.reserve if tokens is None else countable(tokens))
        elif resource is _BUDGET:
            used.append(charge.reserve if cost is None else countable(cost))
        else:
            used.append(0.0)
    return used


def period_at(period: Period, now: float) -> tuple[str, float]:
    """The name of the period that `now` is in, and its end, both in UTC.

    The end is in seconds since 1970, and 0 where there is none. Weeks begin on Monday.
    """
    if period == "ever":
        return "ever", 0.0
    begin, end = _bounds(period, now)
    return f"{period}-{begin:%Y-%m-%d}", end.timestamp()


def period_began(period: Period, now: float) -> float:
    """When the period began that `now` is in, in seconds since 1970; 0 for one without beginning
    and end."""
    return 0.0 if period == "ever" else _bounds(period, now)[0].timestamp()


def _bounds(period: Period, now: float) -> tuple[datetime, datetime]:
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return day, day + timedelta(days=1)
    if period == "week":
        begin = day - timedelta(days=day.weekday())
        return begin, begin + timedelta(days=7)
    begin = day.replace(day=1)
    return begin, (begin + timedelta(days=32)).replace(day=1)


FORESEEN_FROM = 0.02
"""So much of a period has to be over before one says what it will come to: half an hour of a day,
fourteen hours of a month."""


class Forecast(Struct, frozen=True):
    """What a budget will come to if it goes on as it has since its period began.

    Attributes:
        amount: at the end of the period.
        spent_at: when all of it is used, in seconds since 1970; None if that is not in this period.
    """

    amount: float
    spent_at: float | None


def forecast(rule: Rule, used: float, now: float) -> Forecast | None:
    """What a budget will come to; None for what is no budget of a period, or where it is too early
    to say.

    Args:
        rule: the budget.
        used: of it so far.
        now: in seconds since 1970.
    """
    if rule.resource is not _BUDGET or rule.period == "ever":
        return None
    began, (_, ends) = period_began(rule.period, now), period_at(rule.period, now)
    over = (now - began) / (ends - began)
    if over < FORESEEN_FROM:
        return None
    amount = used / over
    if amount <= rule.limit:
        return Forecast(amount, None)
    return Forecast(amount, max(now, began + (now - began) * rule.limit / used))


class Standing(Struct, frozen=True):
    """How a rule stands that a request was held against.

    Attributes:
        charge: the request's.
        remaining: what is left of the limit, at least 0.
        reset: seconds until nothing is used of it, if nothing more is asked.
        wait: seconds until the request could be let in; 0 if it is, infinite if never.
    """

    charge: Charge
    remaining: float
    reset: float
    wait: float = 0.0


SETTLE_SECONDS = 1.0
"""What is told to who has to wait for the end of other requests, which nobody knows."""


def standing(charge: Charge, used: float, reserved: float, now: float) -> Standing:
    """How `charge`'s rule stands before it is taken.

    Args:
        charge: what is asked.
        used, reserved: of the rule.
        now: in seconds since 1970.
    """
    rule = charge.rule
    remaining = max(0.0, rule.limit - used - reserved)
    if rule.drains:
        reset = used / rule.drains
    else:
        reset = max(0.0, charge.ends - now) if charge.ends else 0.0
    excess = used + reserved + charge.amount - rule.limit
    if fits(excess, rule.limit):
        return Standing(charge, remaining, reset)
    return Standing(charge, remaining, reset, _wait(charge, used, excess, reset))


def fits(excess: float, limit: float) -> bool:
    """Whether so much over a limit is no more than what floating point makes of nothing."""
    return excess <= 1e-9 * limit


def _wait(charge: Charge, used: float, excess: float, reset: float) -> float:
    rule = charge.rule
    if not fits(charge.amount - rule.limit, rule.limit):
        return float("inf")
    if rule.drains:
        return excess / rule.drains if excess <= used else max(reset, SETTLE_SECONDS)
    # Of a budget, what is used stays; what is reserved by others may not all be used.
    if fits(used + charge.amount - rule.limit, rule.limit):
        return SETTLE_SECONDS
    return reset or float("inf")
