"""Cooldowns that all gateways know of, what is drained at all of them, and probes of which there is
one in the whole fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from routing.fleet.messages import Cooled, Drained, Message, Well

if TYPE_CHECKING:
    from routing.fleet.store import FleetStore
    from routing.policy.targets import TargetState

CLAIM_SECONDS = 5.0
"""So long a gateway is the only one that may probe a target. One that is probing then still says so
again; of one that has died another takes over."""

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
            self._watched[target.id] = target.cooldown.watcher = SharedCooldown(target, self)

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
