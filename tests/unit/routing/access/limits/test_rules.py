"""What is charged to which counter, and how long who is refused has to wait."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import pytest

from llama_compat.distribution import BudgetSettings, LimitSettings
from routing.access.limits.rules import (
    Charge,
    Demand,
    Resource,
    Rule,
    Rules,
    forecast,
    period_at,
    period_began,
    rules_of,
    standing,
    used_of,
)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("period", "now", "name", "end"),
    [
        ("day", "2026-11-21T00:00:00", "day-2026-11-21", "2026-11-22T00:00:00"),
        ("day", "2026-11-21T23:59:59", "day-2026-11-21", "2026-11-22T00:00:00"),
        ("week", "2026-11-22T12:00:00", "week-2026-11-16", "2026-11-23T00:00:00"),
        ("week", "2026-11-23T00:00:00", "week-2026-11-23", "2026-11-30T00:00:00"),
        ("month", "2026-12-31T23:00:00", "month-2026-12-01", "2027-01-01T00:00:00"),
        ("month", "2028-02-01T00:00:00", "month-2028-02-01", "2028-03-01T00:00:00"),
    ],
)
def test_periods_are_utc_s(period: str, now: str, name: str, end: str) -> None:
    assert period_at(period, at(now)) == (name, at(end))  # type: ignore[arg-type]


def test_ever_has_no_end() -> None:
    assert period_at("ever", at("2026-11-21")) == ("ever", 0.0)


def test_settings_become_rules() -> None:
    limits = LimitSettings(requests_per_minute=60, tokens_per_minute=1000, concurrent=2)
    budget = BudgetSettings(amount=5, period="day")
    rules = Rules(rules_of("key:a", "key 'a'", limits, budget))
    assert [(each.resource, each.limit, each.drains) for each in rules] == [
        (Resource.requests, 60, 1.0),
        (Resource.tokens, 1000, 1000 / 60),
        (Resource.concurrent, 2, 0.0),
        (Resource.budget, 5, 0.0),
    ]
    assert rules[3].period == "day"
    assert Rules(rules_of("key:a", "key 'a'", None)) == ()
    assert Rules(rules_of("key:a", "key 'a'", LimitSettings())) == ()


def test_what_is_charged() -> None:
    limits = LimitSettings(requests_per_minute=60, tokens_per_minute=1000, concurrent=2)
    rules = Rules(rules_of("key:a", "key 'a'", limits, BudgetSettings(amount=5, period="day")))
    charges = rules.charges(Demand(300, is_guess=False, cost=0.5), at("2026-11-21T10:00:00"))
    assert [(each.counter, each.reserve, each.use, each.ends) for each in charges] == [
        ("key:a:requests", 0, 1, 0),
        ("key:a:tokens", 300, 0, 0),
        ("key:a:concurrent", 1, 0, 0),
        ("key:a:budget:day-2026-11-21", 0.5, 0, at("2026-11-22")),
    ]
    assert used_of(charges, 70, 0.25) == [0, 70, 0, 0.25]


@pytest.mark.parametrize(("is_guess", "reserved"), [(True, 1000), (False, 1500)])
def test_a_guess_is_no_more_than_the_limit(is_guess: bool, reserved: float) -> None:
    rules = Rules(rules_of("key:a", "key 'a'", LimitSettings(tokens_per_minute=1000)))
    (charge,) = rules.charges(Demand(1500, is_guess=is_guess), 0)
    assert charge.reserve == reserved


MINUTELY = Rule("key:a", Resource.tokens, 60, "key 'a'")
AT_A_TIME = Rule("key:a", Resource.concurrent, 2, "key 'a'")
BUDGET = Rule("key:a", Resource.budget, 10, "key 'a'", "day")
FOR_EVER = Rule("key:a", Resource.budget, 10, "key 'a'", "ever")


@pytest.mark.parametrize(
    ("charge", "used", "reserved", "wait"),
    [
        (Charge(MINUTELY, "c", reserve=10), 50, 0, 0),
        (Charge(MINUTELY, "c", reserve=10), 51, 0, 1),
        (Charge(MINUTELY, "c", reserve=60), 30, 0, 30),
        (Charge(MINUTELY, "c", reserve=61), 0, 0, inf),
        (Charge(MINUTELY, "c", reserve=10), 20, 40, 10),
        # What is used up drains in five seconds; how long the others take nobody knows.
        (Charge(MINUTELY, "c", reserve=20), 5, 55, 5),
        (Charge(MINUTELY, "c", reserve=20), 0, 55, 1),
        (Charge(AT_A_TIME, "c", reserve=1), 0, 1, 0),
        (Charge(AT_A_TIME, "c", reserve=1), 0, 2, 1),
        (Charge(BUDGET, "c", reserve=1, ends=500), 9, 0, 0),
        (Charge(BUDGET, "c", reserve=1, ends=500), 9.5, 0, 400),
        (Charge(BUDGET, "c", reserve=1, ends=500), 8.5, 1, 1),
        (Charge(BUDGET, "c", reserve=11, ends=500), 0, 0, inf),
        (Charge(FOR_EVER, "c", reserve=1), 9.5, 0, inf),
    ],
)
def test_how_long_to_wait(charge: Charge, used: float, reserved: float, wait: float) -> None:
    assert standing(charge, used, reserved, 100).wait == pytest.approx(wait)


def test_what_is_left() -> None:
    found = standing(Charge(MINUTELY, "c", reserve=10), 15, 25, 0)
    assert (found.remaining, found.reset, found.wait) == (20, 15, 0)
    over = standing(Charge(MINUTELY, "c", reserve=10), 90, 0, 0)
    assert (over.remaining, over.reset, over.wait) == (0, 90, 40)
    budget = standing(Charge(BUDGET, "c", reserve=1, ends=500), 2, 1, 100)
    assert (budget.remaining, budget.reset) == (7, 400)


def budget(period: str, amount: float = 30) -> Rule:
    return Rule("key:a", Resource.budget, amount, "key 'a'", period)  # type: ignore[arg-type]


def test_a_budget_goes_on_as_it_has() -> None:
    # A third of November is over.
    now = at("2026-11-11T00:00:00")
    assert period_began("month", now) == at("2026-11-01T00:00:00")
    calm = forecast(budget("month"), 5, now)
    assert calm is not None
    assert (calm.amount, calm.spent_at) == (pytest.approx(15), None)
    fast = forecast(budget("month"), 15, now)
    assert fast is not None
    assert fast.amount == pytest.approx(45)
    assert fast.spent_at == pytest.approx(at("2026-11-21T00:00:00"))
    spent = forecast(budget("month"), 60, now)
    assert spent is not None
    assert spent.spent_at == now


@pytest.mark.parametrize(
    ("rule", "now"),
    [
        (budget("ever"), "2026-11-11T00:00:00"),
        (budget("month"), "2026-11-01T12:00:00"),
        (budget("day"), "2026-11-11T00:20:00"),
        (Rule("key:a", Resource.requests, 60, "key 'a'"), "2026-11-11T00:00:00"),
    ],
)
def test_of_some_nobody_knows_what_they_will_come_to(rule: Rule, now: str) -> None:
    assert forecast(rule, 5, at(now)) is None


def test_a_budget_of_nothing_is_spent_and_one_of_which_nothing_was_used_is_not() -> None:
    now = at("2026-11-11T00:00:00")
    unused = forecast(budget("month"), 0, now)
    assert unused is not None
    assert (unused.amount, unused.spent_at) == (0, None)
    nothing = forecast(budget("month", 0), 1, now)
    assert nothing is not None
    assert nothing.spent_at == now
