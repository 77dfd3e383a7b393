"""A model as who sees to the memory knows it."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from llama_compat.distribution.residency import ModelStay, idle_seconds
from providers.local.residency.ledger import Sizes

if TYPE_CHECKING:
    from providers.local.residency.residency import Residency


class Loadable(Protocol):
    """What can be brought into memory and taken out of it again: an engine with its model."""

    @property
    def provider(self) -> str:
        """The id of the provider that has it."""

    @property
    def name(self) -> str:
        """What its provider calls it."""

    @property
    def needs(self) -> Sizes:
        """What it takes while it is loaded, at most; known before it is loaded."""

    @property
    def parks(self) -> Sizes:
        """What its weights take in main memory when it is parked; nothing where it can't be."""

    @property
    def max_waiting(self) -> int | None:
        """How many requests may wait for it; None for any number."""

    async def load(self) -> Sizes:
        """Have it answer; what it takes now.

        Raises:
            ProviderStartError: it can't be loaded.
        """

    async def unload(self) -> None:
        """Give its memory back; it has no requests."""

    async def park(self) -> Sizes:
        """As `unload`, but keep its weights; what they take."""

    async def unpark(self) -> Sizes:
        """As `load`, of what was parked."""


class Whereabouts(StrEnum):
    """Where a model is."""

    out = "out"
    loading = "loading"
    ready = "ready"
    leaving = "leaving"
    parked = "parked"


class Waiter(NamedTuple):
    """One who waits for a model, after all whose number is less; `since` on the clock of the event
    loop."""

    number: int
    since: float
    granted: asyncio.Future[ModelLease]


@dataclass(frozen=True)
class ResidentSnapshot:
    """How one model is at a moment.

    Attributes:
        provider, model: which it is.
        state: where.
        sizes: what it takes of each device.
        leases: how many requests it answers.
        waiting: how many wait for it.
        keep: how the template has it stay.
        idle_seconds: since when nobody has asked; None where it is asked, or not there.
        expires_seconds: in how many seconds it goes, if nobody asks; None for never.
        loads: how often it was loaded, or came back from where it was parked.
        load_seconds: how long that took the last time; None before the first.
    """

    provider: str
    model: str
    state: Whereabouts
    sizes: Sizes
    leases: int
    waiting: int
    keep: str
    idle_seconds: float | None
    expires_seconds: float | None
    loads: int
    load_seconds: float | None


class Resident:
    """One model, and what is known of it; all of it is `Residency`'s to change.

    Attributes:
        model: what is loaded and unloaded.
        stay: for how long, as the template has it.
        state: where it is.
        leases: how many requests it answers.
        waiting: who waits for it, first in first served.
        ready_since: when it was loaded.
        idle_since: when its last request ended.
        yields: it takes no more requests, as somebody needs its memory who has waited for longer.
        dismissed: it is to go when its requests have ended, whatever the template says.
        asked_seconds: how long the last client that said so wants it to stay; None for nobody.
        task: what loads or unloads it now.
    """

    def __init__(self, owner: Residency, model: Loadable, stay: ModelStay) -> None:
        self._owner = owner
        self.model = model
        self.stay = stay
        self.state = Whereabouts.out
        self.leases = 0
        self.waiting: deque[Waiter] = deque()
        self.ready_since = self.idle_since = -math.inf
        self.yields = self.dismissed = self.removed = False
        self.asked_seconds: float | None = None
        self.loads = 0
        self.load_seconds: float | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return self.state is Whereabouts.ready and not (self.yields or self.dismissed)

    @property
    def expires(self) -> float | None:
        """When it goes if nobody asks, on the clock of the event loop; None for never, and while
        somebody asks."""
        if self.state is not Whereabouts.ready or self.leases or self.stay.is_pinned:
            return None
        seconds = self.asked_seconds
        if seconds is None:
            seconds = idle_seconds(self.stay.keep)
        return None if seconds is None or math.isinf(seconds) else self.idle_since + seconds

    @property
    def how_soon(self) -> tuple[int, float]:
        """Its place among those that make room, least first: what is parked, who has been idle for
        longest, who is there longest."""
        if self.state is Whereabouts.parked:
            return 0, self.idle_since
        return (2, self.ready_since) if self.leases else (1, self.idle_since)

    async def lease(self, keep_alive: float | None = None) -> ModelLease:
        """Have it there until the lease is released; wait for it, if it is not.

        Args:
            keep_alive: for how many seconds without a request the client wants it to stay after
                this one: 0 for none, infinity for ever; None where it did not say.

        Raises:
            APIError: 429, too many wait; 503, it can't be loaded, or was not in time.
        """
        return await self._owner.lease(self, keep_alive)

    async def load(self) -> None:
        """Have it loaded; it then stays for as long as the template says.

        Raises:
            APIError: as `lease`.
        """
        (await self.lease()).release()

    def dismiss(self) -> None:
        """Have it go, even if it is always kept, as soon as its requests have ended. Those that
        come meanwhile wait until it is back."""
        self._owner.dismiss(self)

    def stays_for(self, seconds: float) -> None:
        """A client says for how long it is to stay when it is idle, which begins now; see `lease`.
        It means nothing for one that is not there."""
        self._owner.stays_for(self, seconds)

    async def remove(self) -> None:
        """Nobody wants it any more: unload it, whatever it is doing."""
        await self._owner.remove(self)

    def forget(self) -> None:
        """Whoever has it shares no memory with others any more: it is there for good."""
        self._owner.forget(self)

    def belongs_to(self, owner: Residency | None) -> bool:
        """Whether it is `owner` who sees to it."""
        return self._owner is owner

    def release(self) -> None:
        """A request of it has ended; see `ModelLease`."""
        self._owner.released(self)

    def snapshot(self) -> ResidentSnapshot:
        """How it is now."""
        now = asyncio.get_running_loop().time()
        is_idle = self.state is Whereabouts.ready and not self.leases
        return ResidentSnapshot(
            self.model.provider,
            self.model.name,
            self.state,
            dict(self._owner.ledger.taken_by(self)),
            self.leases,
            len(self.waiting),
            self.stay.keep,
            now - self.idle_since if is_idle else None,
            None if self.expires is None else max(0.0, self.expires - now),
            self.loads,
            self.load_seconds,
        )


class ModelLease:
    """Keeps a model where it is until it is released.

    Attributes:
        waited: for how many seconds whoever has it waited until the model was there: for room, and
            while it was loaded.
    """

    def __init__(self, resident: Resident, waited: float) -> None:
        self._resident: Resident | None = resident
        self.waited = waited

    def release(self) -> None:
        """The request has ended; more than once is no more than once."""
        resident, self._resident = self._resident, None
        if resident is not None:
            resident.release()
