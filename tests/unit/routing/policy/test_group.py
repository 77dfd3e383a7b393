"""The targets of a model, and what is worked out about them once."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from routing.policy.group import Group, Targets
from tests.unit.routing.policy.models import NOW, target


@pytest.mark.parametrize(
    ("chance", "place"), [(0.0, 0), (0.124, 0), (0.125, 1), (0.374, 1), (0.375, 2), (0.999, 2)]
)
def test_a_place_is_drawn_in_proportion_to_its_weight(chance: float, place: int) -> None:
    group = Group([target("a"), target("b", weight=2), target("c", weight=5)])
    assert group.weight == 8
    assert group.draw(lambda: chance) == place


@pytest.mark.parametrize(
    ("first", "chance", "place"),
    [
        (0, 0.0, 1),
        (0, 0.28, 1),
        (0, 0.29, 2),
        (0, 0.999, 2),
        (1, 0.0, 0),
        (1, 0.16, 0),
        (1, 0.17, 2),
        (2, 0.33, 0),
        (2, 0.34, 1),
        (2, 0.999, 1),
    ],
)
def test_another_is_drawn_as_if_the_first_were_not_there(
    first: int, chance: float, place: int
) -> None:
    group = Group([target("a"), target("b", weight=2), target("c", weight=5)])
    assert group.draw_another(first, lambda: chance) == place


def test_pairs_come_as_often_as_their_weights_say() -> None:
    group, chance = Group([target("a", weight=3), target("b"), target("c")]), random.Random(2)
    drawn = Counter()
    for _ in range(6000):
        first = group.draw(chance.random)
        drawn[first, group.draw_another(first, chance.random)] += 1
    assert all(first != second for first, second in drawn)
    for (first, second), expected in {(0, 1): 0.3, (1, 0): 0.15, (1, 2): 0.05}.items():
        sigma = (6000 * expected * (1 - expected)) ** 0.5
        assert abs(drawn[first, second] - 6000 * expected) <= 3 * sigma


def test_the_first_are_those_of_the_least_priority_wherever_they_stand() -> None:
    late, a, b = target("late", priority=2), target("a", priority=1), target("b", priority=1)
    targets = Targets([late, a, b])
    assert targets.first.targets == [a, b]
    assert list(targets) == [late, a, b]


def test_the_first_are_free_while_none_cools_or_is_full_or_too_small() -> None:
    small, gated = target("small", room=100), target("gated", max_concurrent=1, max_waiting=9)
    later = target("later", priority=1, room=1)
    targets = Targets([small, gated, later])
    gate = gated.state.provider.gate
    assert gate is not None
    assert targets.first_are_free(None)
    assert targets.first_are_free(100)
    assert not targets.first_are_free(101)
    gate.running = 1
    assert not targets.first_are_free(None)
    gate.running = 0
    later.state.cooldown.until = NOW
    assert targets.first_are_free(None)
    gated.state.cooldown.until = NOW
    assert not targets.first_are_free(None)


def test_those_of_one_model_are_of_the_first_that_would_be_asked() -> None:
    other, a = target("other", model="y", priority=1), target("a", model="x")
    b = target("b", model="vendor/X", priority=2)
    assert list(Targets([other, a, b]).of_one_model) == [a, b]
    alike = Targets([a, b])
    assert alike.of_one_model is alike
