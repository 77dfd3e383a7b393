"""What is high in several orders is high in all of them together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.vector_stores.fusion import CONSTANT, fused

orders = st.lists(
    st.tuples(st.sampled_from([0, 0.1, 1, 10]), st.lists(st.integers(0, 30), unique=True)),
    max_size=5,
)


@given(orders)
def test_scores_are_in_bounds_and_in_order(found: list[tuple[float, list[int]]]) -> None:
    scores = list(fused(found).values())
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 + 1e-9 for score in scores)
    there = {each for weight, order in found if weight > 0 for each in order}
    assert set(fused(found)) == there


@given(st.lists(st.integers(), unique=True, min_size=1), st.floats(0.1, 5))
def test_one_order_stays_as_it_is(order: list[int], weight: float) -> None:
    scores = fused([(weight, order)])
    assert list(scores) == order
    assert abs(scores[order[0]] - 1) < 1e-9


def test_who_is_first_in_both_has_one() -> None:
    scores = fused([(1, [7, 8]), (1, [7, 9])])
    assert scores[7] == 1
    assert scores[8] == scores[9] == 0.5 * (CONSTANT + 1) / (CONSTANT + 2)


def test_weights_say_which_order_counts() -> None:
    by_meaning, by_words = [1, 2], [2, 1]
    assert next(iter(fused([(3, by_meaning), (1, by_words)]))) == 1
    assert next(iter(fused([(1, by_meaning), (3, by_words)]))) == 2


def test_an_order_with_nothing_in_it_has_no_say() -> None:
    assert fused([(1, [5]), (1, [])]) == {5: 1.0}
