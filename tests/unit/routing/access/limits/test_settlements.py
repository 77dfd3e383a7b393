"""Ends of requests wait in the order in which they came, and what they cost for a while."""

from __future__ import annotations

import logging

import pytest

from routing.access.limits import settlements as module
from routing.access.limits.rules import Charge, Resource, Rule
from routing.access.limits.settlements import HELD_BACK_SECONDS, Settlement, Unsettled

TOKENS = Charge(Rule("key:t", Resource.tokens, 60, "key 't'"), "t", reserve=10.0)
BUDGET = Charge(Rule("key:b", Resource.budget, 9, "key 'b'"), "b", reserve=1.0)


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def end(told: list[str], name: str) -> Settlement:
    return Settlement(name, [TOKENS, BUDGET], [7.0, 0.5], lambda: told.append(name), False)


def test_they_come_in_the_order_in_which_they_ended() -> None:
    told: list[str] = []
    waiting = Unsettled(Time())
    assert not waiting
    for name in "abcd":
        waiting.keep(end(told, name))
    first = waiting.next(3)
    assert [each.lease for each in first] == ["a", "b", "c"]
    waiting.again(first[1:])
    assert [each.lease for each in waiting.next(9)] == ["b", "c", "d"]
    assert not waiting
    assert told == []


def test_what_they_cost_is_written_after_a_while_unless_it_was_sent() -> None:
    told: list[str] = []
    time = Time()
    waiting = Unsettled(time)
    old, sent, new = (end(told, name) for name in ("old", "sent", "new"))
    waiting.keep(old)
    waiting.keep(sent)
    sent.is_sent = True
    time.now += HELD_BACK_SECONDS
    waiting.keep(new)
    for _ in range(2):
        waiting.write_old_ones()
        assert told == ["old"]
    assert [each.used for each in (old, sent, new)] == [[7.0, 0.0], [7.0, 0.5], [7.0, 0.5]]
    # It ended when it did, however often it was tried since.
    waiting.again(waiting.next(9))
    waiting.keep(waiting.next(9)[-1])
    time.now += HELD_BACK_SECONDS
    waiting.write_old_ones()
    assert told == ["old", "new"]


def test_of_too_many_the_oldest_is_counted_here_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_UNSETTLED", 2)
    told: list[str] = []
    waiting = Unsettled(Time())
    for name in "abc":
        waiting.keep(end(told, name))
    assert told == ["a"]
    with caplog.at_level(logging.ERROR):
        waiting.tell_dropped("Redis")
        waiting.tell_dropped("Redis")
    assert [each.getMessage() for each in caplog.records] == [
        "1 ends of requests were never counted in Redis"
    ]
    waiting.are_counted()
    assert told == ["a", "b", "c"]
