"""Which target has most of a prompt, and when that does not count."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.distribution.routing import PrefixSettings
from routing.policy.balance import LeastBusy
from routing.policy.group import Group
from routing.policy.prefix.affinity import POPULAR_SECONDS, PrefixAffinity
from routing.policy.targets import LiveTarget
from tests.examples import examples
from tests.unit.routing.policy.models import NOW, target


def chain(prompt: str) -> list[bytes]:
    return [prompt[: end + 1].encode() for end in range(len(prompt))]


class Asked:
    """Targets that are asked in turn, at times that are given."""

    def __init__(self, count: int = 3, **config: Any) -> None:
        self.targets = [target(f"t{place}") for place in range(count)]
        self.balancer = PrefixAffinity(random.Random(3).random, PrefixSettings(**config))

    def pick(self, prompt: str, now: float = NOW) -> LiveTarget:
        return self.balancer.pick(Group(self.targets), now, chain(prompt), True)


LATER = NOW + POPULAR_SECONDS


def test_a_prompt_goes_to_who_has_most_of_it() -> None:
    asked = Asked()
    first = asked.pick("abcd")
    first.state.in_flight = 2
    other = asked.pick("xyz")
    assert other is not first
    first.state.in_flight = 0
    assert asked.pick("abcdef", LATER) is first
    assert asked.pick("xyzw", LATER) is other


def test_a_few_blocks_do_not_weigh_more_than_what_is_in_flight() -> None:
    asked = Asked(2)
    home = asked.pick("abc" + "-" * 20)
    home.state.in_flight = 3
    assert asked.pick("abcd", LATER) is not home
    assert asked.pick("abc" + "-" * 20, LATER) is home


@pytest.mark.parametrize(
    ("at_home", "at_the_other", "stays"),
    [(4, 0, True), (5, 0, False), (30, 20, True), (31, 20, False)],  # 4 more, or half as many again
)
def test_whoever_is_far_busier_is_not_asked_whatever_it_has(
    at_home: int, at_the_other: int, stays: bool
) -> None:
    asked = Asked(2, busier_by=4, busier_times=1.5)
    home = asked.pick("-" * 100)
    (other,) = [each for each in asked.targets if each is not home]
    home.state.in_flight, other.state.in_flight = at_home, at_the_other
    assert (asked.pick("-" * 100, LATER) is home) == stays


def test_what_everybody_asks_for_is_soon_everywhere() -> None:
    asked, now = Asked(4), NOW
    for _ in range(40):
        asked.pick("-" * 20, now).state.in_flight += 1
        now += POPULAR_SECONDS / 50
    assert min(each.state.in_flight for each in asked.targets) >= 8


def test_what_was_sent_long_ago_is_taken_for_gone() -> None:
    asked = Asked(2, keep=60)
    home = asked.pick("-" * 20)
    home.state.in_flight = 1
    assert asked.pick("-" * 20, NOW + 60) is home
    assert asked.pick("-" * 20, NOW + 121) is not home


def test_a_heavier_target_may_have_more_in_flight() -> None:
    heavy, light = target("heavy", weight=10), target("light")
    balancer = PrefixAffinity(lambda: 0.0, PrefixSettings())
    assert balancer.pick(Group([heavy, light]), NOW, chain("-" * 5), True) is heavy
    heavy.state.in_flight = 30
    assert balancer.pick(Group([heavy, light]), LATER, chain("-" * 5), True) is heavy


def test_its_memory_is_as_large_as_the_targets_cache() -> None:
    asked = Asked(1, cache_tokens=1280)  # ten blocks of 512 bytes, at four to a token
    for number in range(30):
        asked.pick(f"{number} ---")
    (only,) = asked.targets
    assert only.state.prefixes is not None
    assert len(only.state.prefixes) == 10


LOADS = st.lists(st.integers(0, 200), min_size=1, max_size=6)


@settings(max_examples=examples(200))
@given(LOADS, st.integers(0, 10**6), st.lists(st.sampled_from(["abc", "abd", "xyz"]), max_size=5))
def test_a_prompt_that_nobody_has_goes_where_the_least_busy_would_send_it(
    loads: list[int], seed: int, before: list[str]
) -> None:
    asked = Asked(len(loads))
    for prompt in before:
        asked.pick(prompt)
    for each, load in zip(asked.targets, loads, strict=True):
        each.state.in_flight = load
    asked.balancer._random = random.Random(seed).random
    least_busy = LeastBusy(random.Random(seed).random)
    expected = least_busy.pick(Group(asked.targets), NOW, None, True)
    assert asked.pick("new") is expected


@settings(max_examples=examples(200))
@given(LOADS, st.lists(st.text("ab", min_size=1, max_size=9), max_size=20), st.floats(0, 100))
def test_nobody_is_asked_who_is_too_busy(loads: list[int], before: list[str], pause: float) -> None:
    asked = Asked(len(loads), busier_by=8, busier_times=1.5)
    for prompt in before:
        asked.pick(prompt)
    for each, load in zip(asked.targets, loads, strict=True):
        each.state.in_flight = load
    nearest = asked.balancer._nearest(Group(asked.targets), chain("abab"), NOW + pause, 0.0)
    least = min(loads)
    assert nearest is None or nearest.state.in_flight <= max(least + 8, least * 1.5)
