"""Draws: right shares, and the same token for weights that are nearly the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from providers.local.draw import draw, draw_key, uniform

IDS = np.arange(64, dtype=np.uint32)


def chi_squared(found: np.ndarray, expected: np.ndarray) -> float:
    return float(((found - expected) ** 2 / expected).sum())


def test_shares_are_the_weights() -> None:
    weights = np.exp(-np.arange(20, dtype=np.float32) / 3)
    draws = 20_000
    found = np.bincount(
        [draw(weights, IDS[:20], draw_key(5, place)) for place in range(draws)], minlength=20
    )
    # The 99.99th percentile for 19 degrees of freedom.
    assert chi_squared(found, draws * weights / weights.sum()) < 52.4


@pytest.mark.parametrize("seeds", [range(300), range(2**63, 2**63 + 300)], ids=["low", "high"])
def test_numbers_are_spread_evenly_and_know_nothing_of_each_other(seeds: range) -> None:
    """Over tokens, places and seeds that lie side by side."""
    numbers = np.stack([uniform(IDS, draw_key(seed, at)) for seed in seeds for at in range(60)])
    assert numbers.min() > 0
    assert numbers.max() < 1
    found, _ = np.histogram(numbers, 100, (0, 1))
    # The 99.99th percentile for 99 degrees of freedom.
    assert chi_squared(found, np.full(100, numbers.size / 100)) < 161.3
    correlations = np.corrcoef(numbers.T) - np.eye(len(IDS))
    assert np.abs(correlations).max() < 6 / np.sqrt(len(numbers))
    following = np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]
    assert abs(following) < 4 / np.sqrt(len(numbers))


def test_the_least_numbers_are_as_many_as_they_should_be() -> None:
    """They are the ones that win where a token is unlikely."""
    many = np.arange(2**16, dtype=np.uint32)
    small = sum(int((uniform(many, draw_key(seed, 0)) < 1e-4).sum()) for seed in range(300))
    assert small == pytest.approx(300 * 6.5536, abs=4 * np.sqrt(300 * 6.5536))


def test_the_highest_number_is_below_one() -> None:
    from providers.local.draw import HALF, SCALE

    assert np.float32(np.float32(2**32) * np.float32(SCALE)) + np.float32(HALF) < 1


def test_what_weighs_nothing_never_wins_and_one_alone_always_does() -> None:
    weights = np.zeros(64, np.float32)
    weights[17] = 1
    assert {draw(weights, IDS, draw_key(seed, 0)) for seed in range(2000)} == {17}


def test_the_winner_does_not_depend_on_the_order() -> None:
    """Candidates come sorted, or as the vocabulary has them."""
    chosen = np.random.default_rng(0)
    weights = np.exp(chosen.normal(0, 2, 64)).astype(np.float32)
    for seed in range(200):
        order = chosen.permutation(64)
        [first, second] = (
            ids[draw(weights[ids], ids, draw_key(seed, 3))]
            for ids in (IDS, order.astype(np.uint32))
        )
        assert first == second


def test_seeds_and_places_are_told_apart() -> None:
    keys = {
        draw_key(seed, place)
        for seed, place in itertools.product((-5, 0, 5, 2**63 - 1, 2**64 - 1), range(200))
    }
    assert len(keys) == 5 * 200


def test_weights_that_are_a_thousandth_off_rarely_change_the_winner() -> None:
    chosen = np.random.default_rng(1)
    ids = np.arange(5000, dtype=np.uint32)
    changed = 0
    for place in range(1000):
        logits = chosen.normal(0, 3, len(ids))
        moved = logits + chosen.normal(0, 1e-3, len(ids))
        winners = {
            draw(np.exp(each - each.max()).astype(np.float32), ids, draw_key(9, place))
            for each in (logits, moved)
        }
        changed += len(winners) - 1
    # An inverse of the cumulated weights changes some forty.
    assert changed <= 5
