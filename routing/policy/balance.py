"""Which of several targets that are as good as each other gets a request."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

from llama_compat.distribution.routing import Balance
from routing.policy.targets import LiveTarget

Random = Callable[[], float]
"""Gives numbers from 0 up to 1."""

UNTRIED_SECONDS = 1e6
"""What is assumed of a target that nobody has heard of yet while it is busy with its first
request."""

LOAD_FACTOR = 1.25
"""A target takes up to so many times its share of the requests in flight from those that stick to
it (V. Mirrokni, M. Thorup, M. Zadimoghaddam: Consistent Hashing with Bounded Loads, 2016)."""

NEVER_TOO_BUSY = 8
"""With fewer requests than this in flight it takes any: so few say nothing of shares."""


class Balancer(Protocol):
    """Picks a target; it may remember what it picked before."""

    def pick(
        self, targets: Sequence[LiveTarget], now: float, *, key: str | None, stream: bool
    ) -> LiveTarget:
        """One of `targets`, of which there is at least one.

        Args:
            targets: what there is to choose from.
            now: the time.
            key: what the request has in common with others that belong together.
            stream: whether the client wants a stream.
        """
        ...


class Weighted:
    """By chance, in proportion to the weights."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pick(
        self, targets: Sequence[LiveTarget], now: float, *, key: str | None, stream: bool
    ) -> LiveTarget:
        """Draw one."""
        return draw(targets, self._random)


class LeastBusy:
    """The less busy of two drawn by chance, which is nearly as even as the least busy of all and
    does not send everybody to the same one (M. Mitzenmacher: The Power of Two Choices, 2001)."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pick(
        self, targets: Sequence[LiveTarget], now: float, *, key: str | None, stream: bool
    ) -> LiveTarget:
        """Draw two, take the less busy for its weight; the first of two that are equal."""
        if len(targets) == 1:
            return targets[0]
        first = draw(targets, self._random)
        second = draw([each for each in targets if each is not first], self._random)
        costs = self.cost(first, now, stream=stream), self.cost(second, now, stream=stream)
        return second if costs[1] < costs[0] else first

    def cost(self, target: LiveTarget, now: float, *, stream: bool) -> float:
        """What counts against a target."""
        return target.state.in_flight / target.weight


class Fastest(LeastBusy):
    """The one of two drawn by chance that will probably answer first: by the moving average of its
    time to first content, and by how much it has to do."""

    def cost(self, target: LiveTarget, now: float, *, stream: bool) -> float:
        """The seconds that a request would take there."""
        state = target.state
        seconds = (state.streams if stream else state.wholes).at(now)
        if not seconds:
            return UNTRIED_SECONDS * state.in_flight
        return seconds * (state.in_flight + 1) / target.weight


class RoundRobin:
    """One after the other, heavier ones more often and evenly in between (as nginx does)."""

    def __init__(self, random: Random) -> None:
        self._due: dict[str, float] = {}

    def pick(
        self, targets: Sequence[LiveTarget], now: float, *, key: str | None, stream: bool
    ) -> LiveTarget:
        """The one that has waited longest for its share."""
        due = self._due
        for target in targets:
            due[target.id] = due.get(target.id, 0.0) + target.weight
        picked = max(targets, key=lambda each: due[each.id])
        due[picked.id] -= sum(each.weight for each in targets)
        return picked


class Sticky(Weighted):
    """The same one for the same key, as long as it is there: weighted rendezvous hashing, in which
    a target that leaves gives away its own keys and no others, and gets them back. One that has far
    more than its share to do passes a request on to the key's next."""

    def pick(
        self, targets: Sequence[LiveTarget], now: float, *, key: str | None, stream: bool
    ) -> LiveTarget:
        """The key's first target that is not too busy; by chance without a key."""
        if key is None:
            return super().pick(targets, now, key=key, stream=stream)
        place = _hashed(key)
        first = min(targets, key=lambda each: _distance(place, each))
        if first.state.in_flight < NEVER_TOO_BUSY:
            return first
        flying = sum(each.state.in_flight for each in targets) + 1
        weights = sum(each.weight for each in targets)
        for target in sorted(targets, key=lambda each: _distance(place, each)):
            share = math.ceil(LOAD_FACTOR * flying * target.weight / weights)
            if target.state.in_flight < max(share, NEVER_TOO_BUSY):
                return target
        return first


BALANCERS: dict[Balance, Callable[[Random], Balancer]] = {
    "weighted": Weighted,
    "least_busy": LeastBusy,
    "fastest": Fastest,
    "sticky": Sticky,
    "round_robin": RoundRobin,
}


def draw(targets: Sequence[LiveTarget], random: Random) -> LiveTarget:
    """One of `targets` by chance, in proportion to the weights."""
    if len(targets) == 1:
        return targets[0]
    weights = 0.0
    for target in targets:
        weights += target.weight
    left = random() * weights
    for target in targets:
        left -= target.weight
        if left < 0:
            return target
    return targets[-1]


def _hashed(text: str) -> int:
    hashed = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(hashed.digest())


_hashed_id = lru_cache(4096)(_hashed)


def _distance(place: int, target: LiveTarget) -> float:
    # Two hashes made one by the finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, 2014).
    mixed = place ^ _hashed_id(target.id)
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _64_BITS
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _64_BITS
    mixed ^= mixed >> 31
    # -ln(u) / weight of a uniform u is least for a target with the probability of its weight.
    return -math.log((mixed + 1) / 2**64) / target.weight


_64_BITS = 2**64 - 1
