"""Cooldowns that all gateways know of, what is drained at all of them, and probes of which there is
one in the whole fleet."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from routing.fleet.messages import Cooled, Drained, Message, Well

if TYPE_CHECKING:
    from routing.fleet.store import FleetStore
    from routing.policy.targets import TargetState

CLAIM_SECONDS = 5.0
"""So long a gateway is the only one that may probe a target. One that is probing then still says so
again; of one that has died another takes over."""

APART_SECONDS = 5.0
"""Two words on whether a target is drained that are no further apart are said at the same time, as
far as gateways can tell by reports; one that has just been said may not have been heard yet."""

LOOK_AGAIN_SECONDS = 1.0
"""So long one waits that was not let probe, and hears nothing of it, before it asks again."""


class SharedCooldown:
    """What the cooldown of one target tells the fleet, and asks it.

    No request waits for the store: one that might probe has the gateway ask for that, and goes
    elsewhere; the next one probes, if it is this gateway's turn. While the store is away each
    gateway probes for itself.

    Args:
        target: whose cooldown it is.
        fleet: who it is told.
    """

    def __init__(self, target: TargetState, fleet: SharedCooldowns) -> None:
        self.target = target
        self._fleet = fleet
        self._granted = 0.0
        self._not_before = 0.0
        self._is_asking = False
        self.turned_at: float | None = None
        """When it was last drained or opened, as far as is known here."""

    # What the cooldown says -----------------------------------------------------------------------

    def cooled(self, seconds: float) -> None:
        """The target is left alone from now on."""
        self.turned()
        self._fleet.say(Cooled(self._fleet.gateway, self.target.id, seconds), self)

    def well(self) -> None:
        """The target is well again."""
        self.turned()
        self._fleet.say(Well(self._fleet.gateway, self.target.id), self)

    def may_probe(self, now: float) -> bool:
        """Whether a request of this gateway may show how the target is."""
        if self._fleet.is_away or now < self._granted:
            return True
        if not self._is_asking and now >= self._not_before:
            self._is_asking = True
            self._fleet.ask(self)
        return False

    def turned_away(self, *, is_drained: bool) -> None:
        """Somebody has drained the target at this gateway, or opened it again."""
        self.turned_at = self._fleet.now()
        self._fleet.say(Drained(self._fleet.gateway, self.target.id, is_drained), self)

    # What the fleet says --------------------------------------------------------------------------

    def turned(self) -> None:
        """Whatever was agreed about a probe is over."""
        self._granted = self._not_before = 0.0

    def answered(self, now: float, *, granted: bool) -> None:
        """The store has said whether it is this gateway's turn."""
        self._is_asking = False
        if granted:
            self._granted = now + CLAIM_SECONDS
        else:
            self._not_before = now + LOOK_AGAIN_SECONDS

    def gave_up(self) -> None:
        """The store could not be asked."""
        self._is_asking = False

    def is_probing(self, now: float) -> bool:
        """Whether a request of this gateway is about to show how the target is."""
        return now < self._granted and self.target.cooldown.is_probed(now)


class SharedCooldowns:
    """Those of all targets of one gateway.

    Args:
        gateway: its id.
        wake: has `work` called soon.
        clock: seconds on the clock of the cooldowns.

    Attributes:
        is_away: whether the store can't be asked.
    """

    def __init__(self, gateway: str, wake: Callable[[], None], clock: Callable[[], float]) -> None:
        self.gateway = gateway
        self.is_away = True
        self._wake = wake
        self._clock = clock
        self._watched: dict[str, SharedCooldown] = {}
        self._told: list[tuple[Message, SharedCooldown]] = []
        self._asked: list[SharedCooldown] = []

    def watch(self, target: TargetState) -> None:
        """Tell of a target from now on."""
        found = self._watched.get(target.id)
        if found is None or found.target is not target:
            shared = self._watched[target.id] = SharedCooldown(target, self)
            target.cooldown.watcher = shared
            if found is not None:
                shared.turned_at = found.turned_at

    def leave(self) -> None:
        """Tell of none any more."""
        self.is_away = True
        for each in self._watched.values():
            if each.target.cooldown.watcher is each:
                each.target.cooldown.watcher = None
        self._watched.clear()

    def say(self, message: Message, about: SharedCooldown) -> None:
        """Have the others told."""
        if not self.is_away:
            self._told.append((message, about))
            self._wake()

    def ask(self, about: SharedCooldown) -> None:
        """Have the store asked whether it is this gateway's turn to probe."""
        self._asked.append(about)
        self._wake()

    def hears(self, message: Cooled | Well | Drained) -> None:
        """Another gateway has told of a target."""
        watched = self._watched.get(message.target)
        if watched is None:
            return
        if isinstance(message, Drained):
            watched.turned_at = self.now()
            watched.target.cooldown.learn_drained(is_drained=message.is_drained)
            return
        watched.turned()
        if isinstance(message, Well):
            watched.target.cooldown.learn(0.0)
        else:
            watched.target.cooldown.learn(self._clock() + message.seconds)

    def joins(self, target: str, seconds: float) -> None:
        """What another says of a target while this gateway could not hear."""
        watched = self._watched.get(target)
        if watched is not None and not watched.target.cooldown.until:
            watched.target.cooldown.learn(self._clock() + seconds)

    def joins_drained(self, target: str) -> None:
        """Another had drained a target while this gateway could not hear."""
        watched = self._watched.get(target)
        if watched is not None:
            watched.target.cooldown.learn_drained(is_drained=True)

    def compares(self, target: str, *, age: float, is_drained: bool) -> None:
        """Another says of a target how it was turned so many seconds ago: the later word counts,
        whoever was cut off when it was said. Of two at about the same time all agree that it is
        drained."""
        watched = self._watched.get(target)
        if watched is None or watched.target.cooldown.is_drained == is_drained:
            return
        now, at = self.now(), watched.turned_at
        own = inf if at is None else now - at
        is_later = own - age > APART_SECONDS
        is_undecided = abs(own - age) <= APART_SECONDS < min(own, age) / 2
        if is_later or (is_undecided and is_drained):
            watched.turned_at = now - age
            watched.target.cooldown.learn_drained(is_drained=is_drained)

    def now(self) -> float:
        """The time, by the clock of the cooldowns."""
        return self._clock()

    def turned(self) -> dict[str, float]:
        """The targets that were drained or opened, and how many seconds ago."""
        now = self.now()
        return {
            name: now - each.turned_at
            for name, each in self._watched.items()
            if each.turned_at is not None
        }

    def drained(self) -> list[str]:
        """The targets that somebody wants left alone."""
        return [name for name, each in self._watched.items() if each.target.cooldown.is_drained]

    def cooling(self) -> dict[str, float]:
        """The targets that are left alone, and for how many seconds."""
        now = self._clock()
        return {
            name: each.target.cooldown.until - now
            for name, each in self._watched.items()
            if each.target.cooldown.until > now
        }

    async def work(self, store: FleetStore, tell: Callable[[Message], None]) -> None:
        """Say and ask what is due.

        Raises:
            StoreAway: it can't be.
        """
        told, self._told = self._told, []
        for message, about in told:
            tell(message)
            await store.release(_probe(about), self.gateway)
        asked, self._asked = self._asked, []
        now = self._clock()
        probing = [each for each in self._watched.values() if each.is_probing(now)]
        try:
            for each in {*asked, *probing}:
                granted = await store.claim(_probe(each), self.gateway, CLAIM_SECONDS)
                each.answered(self._clock(), granted=granted)
        finally:
            for each in asked:
                each.gave_up()


def _probe(about: SharedCooldown) -> str:
    return f"probe:{about.target.id}"
