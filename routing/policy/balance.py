"""Which of several targets that are as good as each other gets a request."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from llama_compat.distribution.routing import Balance
from routing.policy.group import Group, Random
from routing.policy.targets import LiveTarget, hashed
from routing.policy.wanted import Key

UNTRIED_SECONDS = 1e6
"""What is assumed of a target that nobody has heard of yet while it is busy with its first
request."""

LOAD_FACTOR = 1.25
"""A target takes up to so many times its share of the requests in flight from those that stick to
it (V. Mirrokni, M. Thorup, M. Zadimoghaddam: Consistent Hashing with Bounded Loads, 2016)."""

NEVER_TOO_BUSY = 8
"""With fewer requests than this in flight it takes any: so few say nothing of shares."""

MAX_KEYS = 4096
"""Of so many that stick to a target it is remembered for each model; of others it is worked out."""

_64_BITS = 2**64 - 1


class Balancer(Protocol):
    """Picks a target; it may remember what it picked before."""

    def pick(self, group: Group, now: float, key: Key | None, stream: bool) -> LiveTarget:
        """One of `group`.

        Args:
            group: what there is to choose from.
            now: the time.
            key: what the request has in common with others that belong together: a text, or the
                chain of its prompt.
            stream: whether the client wants a stream.
        """
        ...


class Weighted:
    """By chance, in proportion to the weights."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pick(self, group: Group, now: float, key: Key | None, stream: bool) -> LiveTarget:
        """Draw one."""
        return group.targets[group.draw(self._random)]


class LeastBusy:
    """The less busy of two drawn by chance, which is nearly as even as the least busy of all and
    does not send everybody to the same one (M. Mitzenmacher: The Power of Two Choices, 2001)."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pick(self, group: Group, now: float, key: Key | None, stream: bool) -> LiveTarget:
        """Draw two, take the less busy for its weight; the first of two that are equal."""
        targets = group.targets
        if len(targets) == 1:
            return targets[0]
        place = group.draw(self._random)
        first, second = targets[place], targets[group.draw_another(place, self._random)]
        is_less = self.cost(second, now, stream) < self.cost(first, now, stream)
        return second if is_less else first

    def cost(self, target: LiveTarget, now: float, stream: bool) -> float:
        """What counts against a target."""
        return target.state.busy / target.weight


class Fastest(LeastBusy):
    """The one of two drawn by chance that will probably answer first: by the moving average of its
    time to first content, and by how much it has to do."""

    def cost(self, target: LiveTarget, now: float, stream: bool) -> float:
        """The seconds that a request would take there."""
        state = target.state
        seconds = (state.streams if stream else state.wholes).at(now)
        if not seconds:
            return UNTRIED_SECONDS * state.busy
        return seconds * (state.busy + 1) / target.weight


class RoundRobin:
    """One after the other, heavier ones more often and evenly in between (as nginx does)."""

    def __init__(self, random: Random) -> None:
        self._due: defaultdict[str, float] = defaultdict(float)

    def pick(self, group: Group, now: float, key: Key | None, stream: bool) -> LiveTarget:
        """The one that has waited longest for its share."""
        due, picked, longest = self._due, group.targets[0], -math.inf
        for target in group.targets:
            name = target.state.id
            due[name] = waited = due[name] + target.weight
            if waited > longest:
                picked, longest = target, waited
        due[picked.state.id] -= group.weight
        return picked


class Sticky(Weighted):
    """The same one for the same key, as long as it is there: weighted rendezvous hashing, in which
    a target that leaves gives away its own keys and no others, and gets them back. One that has far
    more than its share to do passes a request on to the key's next."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        # Who has a key asks again. What is kept of it is no longer than its hash.
        self._in_order = lru_cache(MAX_KEYS)(_in_order)

    def pick(self, group: Group, now: float, key: Key | None, stream: bool) -> LiveTarget:
        """The key's first target that is not too busy; by chance without a key."""
        if not isinstance(key, str):
            return super().pick(group, now, key, stream)
        targets = self._in_order(group, hashed(key))
        if targets[0].state.busy < NEVER_TOO_BUSY:
            return targets[0]
        flying = sum([each.state.busy for each in targets]) + 1
        most = LOAD_FACTOR * flying / group.weight
        for target in targets:
            busy = target.state.busy
            if busy < NEVER_TOO_BUSY or busy < most * target.weight:
                return target
        return targets[0]


def _in_order(group: Group, key: int) -> Sequence[LiveTarget]:
    """The targets as they come for the key with this hash: the first, the next if that leaves."""

    def distance(target: LiveTarget) -> float:
        # A multiplier for each target makes as many hashes of one (multiply-shift hashing,
        # M. Dietzfelbinger and others, 1997), and -ln(u) / weight of a uniform u is least for a
        # target with the probability of its weight.
        mixed = key * target.state.multiplier & _64_BITS
        return -math.log((mixed + 1) / 2**64) / target.weight

    return sorted(group.targets, key=distance)


# `prefix`, which has settings of its own, is in `routing.policy.prefix.affinity`.
BALANCERS: dict[Balance, Callable[[Random], Balancer]] = {
    "weighted": Weighted,
    "least_busy": LeastBusy,
    "fastest": Fastest,
    "sticky": Sticky,
    "round_robin": RoundRobin,
}
