"""What was heard of counters drains, ends and is forgotten as they do."""

from __future__ import annotations

from routing.access.limits.heard import Heard
from routing.access.limits.rules import Charge, Resource, Rule

REQUESTS = Rule("key:r", Resource.requests, 60, "key 'r'")  # one drains in a second
A_MINUTE = Charge(REQUESTS, REQUESTS.counter, use=1.0)
BUDGET = Charge(Rule("key:b", Resource.budget, 9, "key 'b'"), "day", reserve=0.1, ends=2000.0)
PLACE = Charge(Rule("key:c", Resource.concurrent, 4, "key 'c'"), "c", reserve=1.0)


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_used_of_a_limit_a_minute_drains() -> None:
    time = Time()
    heard = Heard(time, Time())
    assert heard.level(A_MINUTE.counter) == 0
    heard.of(A_MINUTE, 30.0)
    time.now += 10
    assert heard.level(A_MINUTE.counter) == 20
    heard.forget_old()
    assert heard.level(A_MINUTE.counter) == 20
    time.now += 20
    heard.forget_old()
    assert not heard._heard


def test_what_is_used_of_a_budget_stays_until_its_period_ends() -> None:
    time, wall = Time(), Time()
    heard = Heard(time, wall)
    heard.of(BUDGET, 3.0)
    time.now += 1e6
    wall.now = 1999.0
    heard.forget_old()
    assert heard.level("day") == 3
    wall.now = 2001.0
    heard.forget_old()
    assert heard.level("day") == 0


def test_the_more_of_what_was_heard_and_what_was_kept_counts() -> None:
    heard = Heard(Time(), Time())
    heard.kept = {"day": (2.0, 2000.0)}
    assert heard.level("day") == 2
    heard.of_budget("day", 1.0, 2000.0)
    assert heard.level("day") == 2
    heard.of_budget("day", 2.5, 2000.0)
    assert heard.level("day") == 2.5


def test_what_runs_at_a_time_is_not_known() -> None:
    heard = Heard(Time(), Time())
    heard.of(PLACE, 3.0)
    assert heard.level("c") == 0
