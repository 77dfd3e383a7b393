"""What gateways tell each other of the prompts that they sent."""

from __future__ import annotations

import pytest

from routing.fleet import prefixes
from routing.fleet.prefixes import SharedPrefixes
from routing.policy.prefix.affinity import sent_to
from routing.policy.targets import States
from tests.unit.routing.fleet.test_fleet import states, target

ONE, TWO, THREE = (bytes([each]) * 8 for each in range(3))


def held(of: States, *chain: bytes, since: float = -1.0) -> int:
    return sent_to(target(of, "a")).held(chain, since)


def hear(heard: SharedPrefixes, of: States, now: float, *sent: tuple[int, bytes]) -> None:
    told = [(number, {"a/m": blocks}) for number, blocks in sent]
    heard.hears("other", told, None, {"a/m": target(of, "a")}, now)


def test_what_is_told_again_is_heard_once() -> None:
    heard, of = SharedPrefixes(), states("a")
    hear(heard, of, 1.0, (1, ONE))
    hear(heard, of, 100.0, (1, ONE), (2, TWO))
    assert held(of, ONE, since=50.0) == 0
    assert held(of, ONE, TWO) == 2
    # Whoever is gone and comes back begins to count anew.
    heard.gone(["other"])
    hear(heard, of, 200.0, (1, ONE))
    assert held(of, ONE, since=150.0) == 1


def test_all_that_is_remembered_is_heard_once() -> None:
    heard, of = SharedPrefixes(), states("a")
    targets = {"a/m": target(of, "a")}
    heard.hears("other", [], {"a/m": ONE}, targets, 1.0)
    heard.hears("another", [], {"a/m": TWO}, targets, 1.0)
    assert (held(of, ONE), held(of, TWO)) == (1, 0)


def test_no_more_is_told_at_a_time_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MOST_BLOCKS", 3)
    of = states("a", "b")
    known = [target(of, name) for name in ("a", "b")]
    tells = SharedPrefixes()
    for each in known:
        sent_to(each)
    assert tells.told(known) == []
    for each in known:
        sent_to(each).add([ONE, TWO], 1e9, 0.0, 100)
    (number, news), *_ = tells.told(known)
    assert (number, sum(map(len, news.values()))) == (1, 3 * 8)
    *_, (number, news) = tells.told(known)
    assert (number, sum(map(len, news.values()))) == (2, 8)
