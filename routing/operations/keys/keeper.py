"""What a running server keeps in step with the storage: its keys, and what budgets have come to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from providers.base import ProviderStartError
from routing.operations.keys.ring import Key
from routing.operations.keys.store import KEYS, KeyStore
from routing.operations.limits.memory import Counters, CountersAway
from routing.operations.limits.rules import Charge
from routing.operations.store.storage import Storage, StorageError, open_storage

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often the storage is looked at: so long after a key was revoked it may still be let in."""

SOONEST_SECONDS = 0.2
"""A key that nobody knows makes the storage be looked at at once, but no more often."""


class Keeper:
    """Keys and spending, from `start` to `stop`.

    Where the storage can't be used, the keys are those that were there last, and what is spent is
    added to it later.

    Args:
        address: of the storage.
        counters: where budgets are counted.
        look_seconds: how often the storage is looked at.

    Attributes:
        keys: those in the storage, by digest.
        store: for who changes them.
    """

    def __init__(
        self, address: str, counters: Counters, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self.keys: dict[str, Key] = {}
        self._storage = _open(address)
        self.store = KeyStore(self._storage)
        self._counters = counters
        self._look_seconds = look_seconds
        self._digests: dict[str, str] = {}
        self._revision = 0
        self._spent: dict[str, tuple[float, float]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = 0.0
        self._is_away = False
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Read all keys, and what has been spent.

        Raises:
            ProviderStartError: the storage can't be used.
        """
        try:
            await self._storage.start()
            await self._read_keys()
            await self._write_spent()
        except StorageError as error:
            raise ProviderStartError(f"`server.storage`: {error}") from None
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Write what has been spent."""
        # Not cancelled: nobody would know whether what was being written has been kept.
        self._stopping.set()
        tasks = [task for task in (self._looking, self._refreshing) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        with self._away_is_told():
            await self._write_spent()
        await self._storage.stop()

    def spent(self, charge: Charge, cost: float) -> None:
        """A request has cost a budget so much."""
        if cost:
            before, _ = self._spent.get(charge.counter, (0.0, 0.0))
            self._spent[charge.counter] = (before + cost, charge.ends)

    async def refresh(self, *, at_once: bool = False) -> None:
        """Look for keys that are new; unless `at_once`, only if that was not done a moment ago."""
        if at_once or self._refreshing is None or self._refreshing.done():
            soonest = self._refreshed_at + SOONEST_SECONDS
            if not at_once and asyncio.get_running_loop().time() < soonest:
                return
            self._refreshing = asyncio.create_task(self._refresh(self._refreshing))
        await asyncio.shield(self._refreshing)

    async def _refresh(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        with self._away_is_told():
            await self._read_keys()
        self._refreshed_at = asyncio.get_running_loop().time()

    async def _look(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._look_seconds)
            with self._away_is_told():
                await self._read_keys()
                await self._write_spent()

    @contextmanager
    def _away_is_told(self) -> Iterator[None]:
        try:
            yield
            self._is_away = False
        except StorageError as error:
            if not self._is_away:
                log.error("keys stay as they are, and spending is kept later: %s", error)
            self._is_away = True

    async def _read_keys(self) -> None:
        for stored in await self.store.list(self._revision):
            old = self._digests.get(stored.id)
            if old is not None and old != stored.digest:
                self.keys.pop(old, None)
            self._digests[stored.id] = stored.digest
            self.keys[stored.digest] = stored.key()
            self._revision = max(self._revision, stored.revision)

    async def _write_spent(self) -> None:
        spent, self._spent = self._spent, {}
        try:
            totals = await self.store.spend(spent)
        except StorageError:
            for counter, (amount, ends) in spent.items():
                later, _ = self._spent.get(counter, (0.0, 0.0))
                self._spent[counter] = (amount + later, ends)
            raise
        with suppress(CountersAway):
            await self._counters.set_used(self._with_unwritten(totals))

    def _with_unwritten(
        self, totals: Mapping[str, tuple[float, float]]
    ) -> dict[str, tuple[float, float]]:
        return {
            counter: (amount + self._spent.get(counter, (0.0, 0.0))[0], ends)
            for counter, (amount, ends) in totals.items()
        }


def _open(address: str) -> Storage:
    try:
        return open_storage(address, [KEYS])
    except StorageError as error:
        raise ProviderStartError(f"`server.storage`: {error}") from None
