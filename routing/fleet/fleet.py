"""One gateway among others: what it tells them, and what it hears."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from llama_compat.distribution import FleetSettings, ServerSettings
from routing.fleet.cooldowns import SharedCooldowns
from routing.fleet.messages import (
    Cooled,
    Drained,
    Message,
    Report,
    Well,
    encode,
    message_of,
    report_of,
)
from routing.fleet.prefixes import SharedPrefixes
from routing.fleet.store import FleetStore, StoreAway
from routing.fleet.templates import Templates
from routing.policy.targets import TargetState
from routing.storage.outage import Outage
from routing.waiting import cancelled, first_of

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
"""How often a gateway says how it is, and hears how the others are."""

GONE_SECONDS = 5.0
"""A gateway that has said nothing for so long is gone."""

AGAIN_SECONDS = 0.5
"""How often one looks whether a store that was away is back."""

MOST_TOLD = 1000
"""So many messages wait for a store that is slow; of more the first are lost, which others find
out themselves."""


class Fleet:
    """This gateway, from `start` to `stop`. One task asks the store, and no request waits for it.

    Args:
        settings: where the store is.
        storage: what says which storage keeps its keys and budgets; any text.
        store: in place of that of `settings`.
        heartbeat: seconds between two reports.
        gone: seconds after which a silent gateway is gone.
        clock: seconds on the clock that policies go by.

    Attributes:
        settings: as they are given.
        gateway: its id: the machine, the process and a number that no other has.
        peers: the other gateways as they were seen last, by id.
        is_away: whether the store can't be asked at the moment.
        templates: which one the fleet serves.
    """

    def __init__(
        self,
        settings: FleetSettings,
        storage: str = "",
        store: FleetStore | None = None,
        heartbeat: float = HEARTBEAT_SECONDS,
        gone: float = GONE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._host = socket.gethostname()
        self.gateway = f"{self._host}:{os.getpid()}:{os.urandom(3).hex()}"
        self._storage = sha256(storage.encode()).hexdigest()[:16]
        self._store = store or _store_at(settings.store.get_secret_value())
        self._heartbeat = heartbeat
        self._gone = gone
        self._clock = clock
        self._began = clock()
        self.peers: Mapping[str, Report] = {}
        self.is_away = True
        self.templates = Templates(self.gateway, self._store, lambda: self.peers)
        self._outage = Outage(
            "the fleet's store is away, each gateway goes by what it knows itself",
            "the fleet's store is back",
        )
        self._wake = asyncio.Event()
        self._cooldowns = SharedCooldowns(self.gateway, self._wake.set, clock)
        self._prefixes = SharedPrefixes()
        self._states: Iterable[TargetState] = ()
        self._watched: list[TargetState] = []
        self._told: deque[Message] = deque(maxlen=MOST_TOLD)
        self._newcomer_at = float("-inf")
        self._warned_of_storage = False
        self._stopping = asyncio.Event()
        self._exchanged = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, settings: ServerSettings) -> Fleet:
        """The fleet that a server's settings name, which have to name one."""
        assert settings.fleet is not None
        address = settings.storage.get_secret_value()
        host = socket.gethostname() if address.startswith("sqlite:") else ""
        return cls(settings.fleet, f"{host} {address}")

    def is_same(self, other: Fleet) -> bool:
        """Whether one can go on in the place of the other."""
        return self.settings == other.settings and self._storage == other._storage

    @property
    def gateways(self) -> int:
        """How many were seen last, this one among them."""
        return len(self.peers) + 1

    async def start(self) -> None:
        """Begin; where the store is away, later.

        Raises:
            ProviderStartError: a package is missing, or the address is none.
        """
        await self._store.start()
        self._running = asyncio.create_task(self._run(), name="fleet")

    async def stop(self) -> None:
        """Say goodbye, and disconnect."""
        self._stopping.set()
        self._wake.set()
        if self._running is not None:
            # Not cancelled: what is being asked takes no longer than it takes to give it up.
            await self._running
        await self.templates.stop()
        if not self.is_away:
            with suppress(StoreAway):
                await self._store.leave(self.gateway)
        self._cooldowns.leave()
        self._forget_loads()
        await self._store.stop()

    def watch(self, states: Iterable[TargetState]) -> None:
        """Tell of these targets from now on, and let them know what the others have there."""
        self._states = states
        self._look_at_targets()

    async def exchanged(self) -> None:
        """Wait until this gateway has heard of the others once more."""
        self._exchanged.clear()
        await self._exchanged.wait()

    def told(self) -> dict[str, Any]:
        """For `/health`."""
        others = [
            {"id": name, "template": each.template, "uptime_seconds": round(each.uptime)}
            for name, each in sorted(self.peers.items())
        ]
        return {
            "id": self.gateway,
            "gateways": self.gateways,
            "store": "away" if self.is_away else "ok",
            "on_outage": self.settings.on_outage,
            "template": self.templates.served,
            "others": others,
        }

    # The one task ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                async with self._store.heard() as messages:
                    listening = asyncio.create_task(self._listen(messages))
                    listening.add_done_callback(lambda _: self._wake.set())
                    try:
                        await self._beat(listening)
                    finally:
                        await cancelled([listening])
            except StoreAway as error:
                self._lose(str(error))
            except Exception as error:
                log.exception("what gateways share may not be right")
                self._lose(type(error).__name__)
            await first_of(self._stopping, AGAIN_SECONDS)

    async def _beat(self, listening: asyncio.Task[None]) -> None:
        clock = asyncio.get_running_loop().time
        joins = True
        while not self._stopping.is_set():
            await self._exchange(joins=joins)
            joins = False
            due = clock() + self._heartbeat
            while not self._stopping.is_set() and (left := due - clock()) > 0:
                self._wake.clear()
                await self._cooldowns.work(self._store, self._told.append)
                while self._told:
                    await self._store.tell(encode(self._told.popleft()))
                if listening.done():
                    await listening
                    raise StoreAway("nothing is heard any more")
                await first_of(self._wake, left)

    async def _exchange(self, *, joins: bool) -> None:
        self._look_at_targets()
        found = await self._store.exchange(self.gateway, encode(self._report()), self._gone)
        told = {name: report_of(data) for name, data in found.items()}
        before, self.peers = self.peers, {name: each for name, each in told.items() if each}
        if self.peers.keys() - before.keys():
            self._newcomer_at = self._clock()
        self._prefixes.gone(before.keys() - self.peers.keys())
        self._hear_reports(joins=joins)
        self.is_away = self._cooldowns.is_away = False
        self._outage.worked(f"{self.gateways} gateways")
        await self.templates.joins()
        self._exchanged.set()

    async def _listen(self, messages: AsyncIterator[bytes]) -> None:
        async for data in messages:
            message = message_of(data)
            if message is None or message.by == self.gateway:
                continue
            if isinstance(message, Cooled | Well | Drained):
                self._cooldowns.hears(message)
            else:
                self.templates.hears(message)

    def _lose(self, why: str) -> None:
        self.is_away = self._cooldowns.is_away = True
        self.templates.parts()
        self._forget_loads()
        self._outage.failed(why, f"on_outage: {self.settings.on_outage}")

    # What is told and heard -----------------------------------------------------------------------

    def _look_at_targets(self) -> None:
        self._watched = list(self._states)
        for each in self._watched:
            self._cooldowns.watch(each)

    def _report(self) -> Report:
        now = self._clock()
        targets = self._watched
        uptime = now - self._began
        # One of all tells a newcomer what is remembered: who is there for longest.
        is_oldest = all(uptime >= each.uptime for each in self.peers.values())
        is_new = now - self._newcomer_at < 4 * self._heartbeat
        return Report(
            template=self.templates.served,
            host=self._host,
            storage=self._storage,
            uptime=uptime,
            in_flight={each.id: each.in_flight for each in targets if each.in_flight},
            cooling=self._cooldowns.cooling(),
            sent=self._prefixes.told(targets),
            held=self._prefixes.held(targets) if is_new and is_oldest and self.peers else None,
            drained=self._cooldowns.drained(),
            turned=self._cooldowns.turned(),
        )

    def _hear_reports(self, *, joins: bool) -> None:
        targets, reports = {each.id: each for each in self._watched}, self.peers
        now = self._clock()
        for target in self._watched:
            name = target.id
            target.elsewhere = sum([each.in_flight.get(name, 0) for each in reports.values()])
        for gateway, report in reports.items():
            self._prefixes.hears(gateway, report.sent, report.held, targets, now)
            if joins:
                for name, seconds in report.cooling.items():
                    self._cooldowns.joins(name, seconds)
                for name in report.drained:
                    if name not in report.turned:
                        self._cooldowns.joins_drained(name)
            for name, age in report.turned.items():
                self._cooldowns.compares(name, age=age, is_drained=name in report.drained)
        self.templates.compare(reports.values())
        self._compare_storages(reports.values())

    def _compare_storages(self, reports: Iterable[Report]) -> None:
        others = [each.host for each in reports if each.storage != self._storage]
        if others and not self._warned_of_storage:
            self._warned_of_storage = True
            log.warning(
                "gateways of this fleet keep keys and budgets in different storages (here and at"
                " %s): name one PostgreSQL for all as `server.storage`",
                others[0],
            )

    def _forget_loads(self) -> None:
        for each in self._watched:
            each.elsewhere = 0


def _store_at(address: str) -> FleetStore:
    if address.startswith(("postgres://", "postgresql://")):
        from routing.fleet.postgres_store import PostgresFleetStore

        return PostgresFleetStore(address)
    from routing.fleet.redis_store import RedisFleetStore

    return RedisFleetStore(address)
