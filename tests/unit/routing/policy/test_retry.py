"""Retry budgets and waits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.policy.retry import FREE_RETRIES, WINDOW_SECONDS, Backoff, Budget


def test_a_few_retries_are_free() -> None:
    budget = Budget()
    for _ in range(FREE_RETRIES):
        assert budget.allows(0, 0.2)
        budget.retry(0)
    assert not budget.allows(0, 0.2)


def test_a_budget_of_nothing_allows_nothing() -> None:
    budget = Budget()
    budget.request(0)
    assert not budget.allows(0, 0)


@given(st.integers(20, 400), st.sampled_from([0.1, 0.2, 0.5]))
def test_retries_stay_within_their_share(requests: int, share: float) -> None:
    budget, retries = Budget(), 0
    for number in range(requests):
        now = number * 1e-6
        budget.request(now)
        if budget.allows(now, share):
            budget.retry(now)
            retries += 1
    assert retries <= max(FREE_RETRIES, share * requests)
    assert retries >= math.floor(share * requests * 0.99)


def test_what_was_long_ago_counts_for_less() -> None:
    budget = Budget()
    for _ in range(FREE_RETRIES):
        budget.retry(0)
    assert not budget.allows(WINDOW_SECONDS / 10, 0.2)
    assert budget.allows(WINDOW_SECONDS, 0.2)
    for _ in range(100):
        budget.request(100)
    assert budget.allows(100, 0.2)
    assert not Budget().allows(100, 0)


@pytest.mark.parametrize(
    ("retries", "least", "most"), [(0, 0.125, 0.25), (1, 0.25, 0.5), (4, 2, 4), (9, 4, 8)]
)
def test_waits_double_up_to_the_longest_and_half_is_chance(
    retries: int, least: float, most: float
) -> None:
    backoff = Backoff(0.25, 8)
    assert backoff.seconds(retries, lambda: 0.0) == least
    assert backoff.seconds(retries, lambda: 1.0) == most
