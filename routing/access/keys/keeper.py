"""What a running server keeps in step with the storage: its keys, and what budgets have come to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from llama_compat.going_on import going_on
from providers.base import ProviderStartError
from routing.access.keys.ring import Key
from routing.access.keys.store import KEYS, KeyStore, StoredKey, unreadable
from routing.access.limits.memory import Counters, CountersAway
from routing.access.limits.rules import Charge
from routing.storage.outage import Outage
from routing.storage.storage import Storage, StorageAway, StorageError, open_storage
from routing.waiting import first_of

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often the storage is looked at: so long after a key was revoked it may still be let in."""

WHOLE_SECONDS = 60.0
"""How often all keys are read, and not those alone that have changed: where a copy took the place
of the storage, nobody who is not in it is let in for longer."""

SOONEST_SECONDS = 0.2
"""A key that nobody knows makes the storage be looked at, but no more often."""

STOP_SECONDS = 10.0
"""So long the last spending gets to be written."""

ANSWER_SECONDS = 1.0
"""Who brings a key that nobody knows waits for the storage no longer."""


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
        counters.when_back(self._write_spent)
        self._look_seconds = look_seconds
        self._known: dict[str, StoredKey] = {}
        self._revision = 0
        self._whole_at = -WHOLE_SECONDS
        self._reading = asyncio.Lock()
        self._unread = Outage("stored keys stay as they are known", "stored keys are read again")
        self._unkept = Outage("spending is kept later", "spending is kept again")
        self._spent: dict[str, tuple[float, float]] = {}
        self._totals: Mapping[str, tuple[float, float]] = {}
        self._turn = asyncio.Lock()
        self._writing: tuple[int, dict[str, tuple[float, float]]] | None = None
        self._tending: list[asyncio.Task[None]] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._looks = False
        self._refreshed_at = -SOONEST_SECONDS
        self._stopping = asyncio.Event()

    @property
    def is_away(self) -> bool:
        """Whether the keys can't be read at the moment."""
        return bool(self._unread.why)

    async def start(self, *, waits: bool = True) -> None:
        """Read all keys, and what has been spent.

        Args:
            waits: whether to start where the storage is away, and to read it once it is there.

        Raises:
            ProviderStartError: the storage can't be used.
        """
        try:
            await self._storage.start()
            await self._read_keys()
        except StorageError as error:
            if not waits or not isinstance(error, StorageAway):
                raise ProviderStartError(f"`server.storage`: {error}") from None
            self._unread.failed(str(error))
        else:
            await self._write_spent()
        pause = partial(first_of, self._stopping)
        self._tending = [
            asyncio.create_task(going_on(what, partial(self._tend, work), pause))
            for what, work in (("stored keys", self._look), ("spending", self._write_spent))
        ]

    async def stop(self) -> None:
        """Write what has been spent."""
        self._stopping.set()
        tasks = [*self._tending, *([self._refreshing] if self._refreshing else [])]
        ending = asyncio.create_task(self._write_last(tasks))
        await asyncio.wait([ending], timeout=STOP_SECONDS)
        lost = sum(amount for amount, _ in self._unwritten().values())
        if lost:
            log.error("spending of $%.6g was never kept", lost)
        await self._storage.stop()
        # Of a storage that hangs nobody waits for the answer.
        for task in (ending, *tasks):
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)

    async def _write_last(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        # Not cancelled: what is half written would only be written again.
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._write_spent()
        if self._spent and not self._unkept.why:
            await self._write_spent()

    def spent(self, charge: Charge, cost: float) -> None:
        """A request has cost a budget so much."""
        if cost:
            before, _ = self._spent.get(charge.counter, (0.0, 0.0))
            self._spent[charge.counter] = (before + cost, charge.ends)

    async def refresh(self, *, at_once: bool = False) -> None:
        """Look for keys that are new, unless `at_once` `SOONEST_SECONDS` after the last look.

        It takes one that begins from now on: one that goes on may have missed them.

        Raises:
            StorageError: they can't be read now, or not within `ANSWER_SECONDS`. Until they can be,
                nobody waits for that but who wants it `at_once`.
        """
        if not at_once:
            self._raise_away()
        if at_once or self._refreshing is None or self._looks:
            self._looks = False
            soonest = self._refreshed_at + (0.0 if at_once else SOONEST_SECONDS)
            self._refreshing = asyncio.create_task(self._refresh(self._refreshing, soonest))
        within = ANSWER_SECONDS + (0.0 if at_once else SOONEST_SECONDS)
        done, _ = await asyncio.wait([self._refreshing], timeout=within)
        if not done:
            self._unread.failed(f"{self._storage.shown} takes longer than {ANSWER_SECONDS:g} s")
        self._raise_away()

    def _raise_away(self) -> None:
        if self._unread.why:
            raise StorageAway(self._unread.why)

    async def _refresh(self, before: asyncio.Task[None] | None, soonest: float) -> None:
        loop = asyncio.get_running_loop()
        if before is not None:
            await asyncio.wait([before])
        await first_of(self._stopping, soonest - loop.time())
        self._looks = True
        await self._look()
        self._refreshed_at = loop.time()

    async def _tend(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping.is_set():
            await first_of(self._stopping, self._look_seconds)
            await work()

    async def _look(self) -> None:
        try:
            await self._read_keys()
        except StorageError as error:
            self._unread.failed(str(error))
        else:
            self._unread.worked(f"{len(self.keys)} there are")

    async def _read_keys(self) -> None:
        # One after the other: what was read first must not come after what was read later.
        async with self._reading:
            now = asyncio.get_running_loop().time()
            whole = bool(self._unread.why) or now >= self._whole_at + WHOLE_SECONDS
            found = await self.store.list(0 if whole else self._revision)
            if whole:
                self._whole_at = now
                for gone in self._known.keys() - {each.id for each in found}:
                    self.keys.pop(self._known.pop(gone).digest, None)
            for stored in found:
                self._learn(stored)
            self._revision = max((each.revision for each in self._known.values()), default=0)

    def _learn(self, stored: StoredKey) -> None:
        before = self._known.get(stored.id)
        if before == stored:
            return
        if before is not None and before.digest != stored.digest:
            self.keys.pop(before.digest, None)
        if not stored.is_readable:
            log.error("%s", unreadable(stored))
        self._known[stored.id] = stored
        self.keys[stored.digest] = stored.key()

    async def _write_spent(self) -> None:
        """Write what has been spent, and tell the counters what all have."""
        async with self._turn:
            await self._write_spending()

    async def _write_spending(self) -> None:
        try:
            if self._writing is None and self._spent:
                self._writing = self.store.next_batch(), self._spent
                self._spent = {}
            if self._writing is not None:
                number, amounts = self._writing
                await self.store.spend(number, amounts)
                self._writing, self._totals = None, _sum(self._totals, amounts)
            self._totals = await self.store.spent()
        except StorageError as error:
            self._unkept.failed(str(error))
        else:
            self._unkept.worked()
        # Counters that have lost what they had are told at least what is known here.
        with suppress(CountersAway):
            await self._counters.set_used(_sum(self._totals, self._unwritten()))

    def _unwritten(self) -> dict[str, tuple[float, float]]:
        return _sum(self._writing[1] if self._writing else {}, self._spent)


def _sum(
    some: Mapping[str, tuple[float, float]], others: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """What both say of each counter together, and when it ends."""
    total = dict(some)
    for counter, (amount, ends) in others.items():
        before, _ = total.get(counter, (0.0, ends))
        total[counter] = (before + amount, ends)
    return total


def _open(address: str) -> Storage:
    try:
        return open_storage(address, [KEYS])
    except StorageError as error:
        raise ProviderStartError(f"`server.storage`: {error}") from None
