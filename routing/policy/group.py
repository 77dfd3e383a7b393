"""The targets of a model, and what is worked out about them once, when the template is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from routing.policy.abilities import Abilities
from routing.policy.wanted import same_model

if TYPE_CHECKING:
    from routing.policy.targets import LiveTarget

Random = Callable[[], float]
"""Gives numbers from 0 up to 1."""


class Group:
    """Targets that are as good as each other: what a balancer picks from.

    Args:
        targets: at least one.

    Attributes:
        targets: they.
        weight: what their weights come to.
    """

    __slots__ = ("_begins", "_ends", "targets", "weight")

    def __init__(self, targets: Sequence[LiveTarget]) -> None:
        self.targets = targets
        *ends, self.weight = accumulate(each.weight for each in targets)
        self._ends = ends  # all but the last, which whatever is left belongs to
        self._begins = [0.0, *ends]

    def draw(self, random: Random) -> int:
        """The place of one, by chance, in proportion to the weights."""
        return bisect_right(self._ends, random() * self.weight)

    def draw_another(self, first: int, random: Random) -> int:
        """The same of one of the others than that at the place `first`."""
        weight = self.targets[first].weight
        drawn = random() * (self.weight - weight)
        return bisect_right(self._ends, drawn + weight if drawn >= self._begins[first] else drawn)


class Targets(tuple["LiveTarget", ...]):
    """All targets of one public model, at least one, in the order of the file.

    Attributes:
        first: those of the first priority.
    """

    def __init__(self, targets: Iterable[LiveTarget]) -> None:
        priority = min(each.priority for each in self)
        self.first = Group([each for each in self if each.priority == priority])
        states = [each.state for each in self.first.targets]
        self._cooldowns = [each.cooldown for each in states]
        self._gates = [each.provider.gate for each in states if each.provider.gate is not None]

    def first_are_free(self, tokens: int | None) -> bool:
        """Whether each of the first would take a request at once: none cools or is drained, none is
        full, none is known to hold less than the `tokens` that may be generated."""
        for cooldown in self._cooldowns:
            if cooldown.until or cooldown.is_drained:
                return False
        for gate in self._gates:
            if not gate.has_room:
                return False
        if tokens:
            for target in self.first.targets:
                if not target.holds(tokens):
                    return False
        return True

    @cached_property
    def abilities(self) -> Abilities:
        """What differs between what they can do."""
        return Abilities(self)

    @cached_property
    def of_one_model(self) -> Targets:
        """Those of the same model as the first one that would be asked."""
        name = self.first.targets[0].target.model
        same = [each for each in self if same_model(each.target.model, name)]
        return self if len(same) == len(self) else Targets(same)
