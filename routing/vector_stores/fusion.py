"""One order of several: reciprocal rank fusion.

Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
Learning Methods", SIGIR 2009, from which the constant is, too.
"""

from __future__ import annotations

from collections.abc import Sequence

CONSTANT = 60
"""How little the very first places count more than those after them."""


def fused(orders: Sequence[tuple[float, Sequence[int]]]) -> dict[int, float]:
    """What each place in `orders` comes to together, from 0 to 1, which is first in all of them;
    the best first, and where two are equal the one that was there sooner.

    Args:
        orders: each with its weight; one with nothing in it has no say.
    """
    counting = [(weight, order) for weight, order in orders if weight > 0 and order]
    total = sum(weight for weight, _ in counting)
    scores: dict[int, float] = {}
    for weight, order in counting:
        for rank, each in enumerate(order, 1):
            share = weight / total * (CONSTANT + 1) / (CONSTANT + rank)
            scores[each] = scores.get(each, 0.0) + share
    return dict(sorted(scores.items(), key=lambda item: -item[1]))
