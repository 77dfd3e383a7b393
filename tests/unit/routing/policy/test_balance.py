"""Which of several targets gets a request."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.policy.balance import (
    BALANCERS,
    NEVER_TOO_BUSY,
    Fastest,
    LeastBusy,
    RoundRobin,
    Sticky,
    Weighted,
)
from routing.policy.group import Group
from routing.policy.targets import LiveTarget
from tests.examples import examples
from tests.unit.routing.policy.models import NOW, target

KEYS = [f"session-{number}" for number in range(3000)]


def pick(balancer, targets: Sequence[LiveTarget], key: str | None = None, *, stream=True) -> str:
    return balancer.pick(Group(targets), NOW, key=key, stream=stream).state.provider.id


def shares(targets: Sequence[LiveTarget], balancer, draws: int = 6000) -> Counter[str]:
    return Counter(pick(balancer, targets) for _ in range(draws))


def assert_three_sigma(counted: Counter[str], targets: Sequence[LiveTarget]) -> None:
    draws, weights = counted.total(), sum(each.weight for each in targets)
    for each in targets:
        share = each.weight / weights
        sigma = (draws * share * (1 - share)) ** 0.5
        assert abs(counted[each.state.provider.id] - draws * share) <= 3 * sigma


@pytest.mark.parametrize("balance", ["weighted", "least_busy", "sticky"])
@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (5, 2, 1)])
def test_idle_targets_are_drawn_by_weight(balance, weights: tuple[int, ...]) -> None:
    targets = [target(f"t{place}", weight=weight) for place, weight in enumerate(weights)]
    balancer = BALANCERS[balance](random.Random(7).random)
    assert_three_sigma(shares(targets, balancer), targets)


def test_sticky_keys_are_spread_by_weight() -> None:
    targets = [target("a", weight=3), target("b"), target("c")]
    balancer = Sticky(random.Random(7).random)
    assert_three_sigma(Counter(pick(balancer, targets, key) for key in KEYS), targets)


@pytest.mark.parametrize("balance", list(BALANCERS))
@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999999])
def test_one_of_those_that_are_there_is_picked(balance, chance: float) -> None:
    targets = [target("a"), target("b", weight=0.1), target("c", weight=7)]
    balancer = BALANCERS[balance](lambda: chance)
    for count in (1, 2, 3):
        picked = balancer.pick(Group(targets[:count]), NOW, key="k", stream=False)
        assert picked in targets[:count]


def test_the_less_busy_of_two_is_picked_for_its_weight() -> None:
    busy, idle, heavy = target("busy"), target("idle"), target("heavy", weight=4)
    busy.state.in_flight, heavy.state.in_flight = 2, 4
    balancer = LeastBusy(lambda: 0.0)  # draws the first, then the first of the others
    assert pick(balancer, [busy, idle]) == "idle"
    assert pick(balancer, [busy, heavy]) == "heavy"
    idle.state.in_flight = 2
    assert pick(balancer, [busy, idle]) == "busy"  # a tie is the first one's
    assert pick(balancer, [idle, busy]) == "idle"


def test_a_target_that_hangs_gets_no_more_than_others() -> None:
    """Those in flight never come back: the others take all that follow."""
    targets = [target("hangs"), target("a"), target("b")]
    balancer = LeastBusy(random.Random(3).random)
    for _ in range(200):
        picked = balancer.pick(Group(targets), NOW, key=None, stream=True)
        picked.state.in_flight += picked is targets[0]
    assert targets[0].state.in_flight == 1


def test_the_fastest_is_the_one_whose_content_comes_first() -> None:
    slow, fast = target("slow"), target("fast")
    slow.state.streams.add(2.0, NOW)
    fast.state.streams.add(0.1, NOW)
    slow.state.wholes.add(1.0, NOW)
    fast.state.wholes.add(3.0, NOW)
    balancer = Fastest(lambda: 0.0)
    assert pick(balancer, [slow, fast]) == "fast"
    assert pick(balancer, [slow, fast], stream=False) == "slow"
    fast.state.in_flight = 20  # 21 * 0.1 s is more than 2 s
    assert pick(balancer, [slow, fast]) == "slow"
    fast.state.in_flight = 18
    assert pick(balancer, [slow, fast]) == "fast"


def test_a_target_that_nobody_has_heard_of_is_tried_by_one() -> None:
    known, new = target("known"), target("new")
    known.state.streams.add(0.1, NOW)
    balancer = Fastest(lambda: 0.0)
    assert pick(balancer, [known, new]) == "new"
    new.state.in_flight = 1
    assert pick(balancer, [known, new]) == "known"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 5))
@settings(max_examples=examples(40))
def test_round_robin_gives_each_its_exact_share(weights: list[int], rounds: int) -> None:
    targets = [target(f"t{place}", weight=weight) for place, weight in enumerate(weights)]
    counted = shares(targets, RoundRobin(random.random), rounds * sum(weights))
    assert counted == {f"t{place}": rounds * weight for place, weight in enumerate(weights)}


def test_round_robin_spreads_a_heavy_target_over_the_round() -> None:
    targets = [target("a", weight=3), target("b"), target("c")]
    balancer = RoundRobin(random.random)
    assert "".join(pick(balancer, targets) for _ in range(5)) == "abaca"


@pytest.mark.parametrize("count", [2, 3, 5])
def test_sticky_moves_only_the_keys_of_the_target_that_leaves(count: int) -> None:
    targets = [target(f"t{place}") for place in range(count)]
    balancer = Sticky(random.random)
    before = {key: pick(balancer, targets, key) for key in KEYS}
    after = {key: pick(balancer, targets[1:], key) for key in KEYS}
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {before[key] for key in moved} == {"t0"}
    slack = 3 * (len(KEYS) * (1 / count) * (1 - 1 / count)) ** 0.5
    assert len(moved) <= len(KEYS) / count + slack
    assert {key: pick(balancer, targets, key) for key in KEYS} == before


def test_sticky_passes_on_what_is_more_than_its_share() -> None:
    targets = [target("a"), target("b")]
    balancer = Sticky(random.random)
    home = pick(balancer, targets, "k")
    at_home = next(each for each in targets if each.state.provider.id == home)
    at_home.state.in_flight = NEVER_TOO_BUSY - 1
    assert pick(balancer, targets, "k") == home  # so few are no crowd
    at_home.state.in_flight = NEVER_TOO_BUSY
    assert pick(balancer, targets, "k") != home
    for each in targets:
        each.state.in_flight = 40  # now that is no more than its share: 1.25 * 81 / 2
    assert pick(balancer, targets, "k") == home
    at_home.state.in_flight = 70
    assert pick(balancer, targets, "k") != home


def test_without_a_key_sticky_draws() -> None:
    assert isinstance(Sticky(lambda: 0.0), Weighted)
    assert pick(Sticky(lambda: 0.0), [target("a"), target("b")]) == "a"
    assert pick(Sticky(lambda: 0.99), [target("a"), target("b")]) == "b"
