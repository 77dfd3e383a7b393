"""The one writer of records: a bounded queue in front of the storage."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import structs

from llama_compat.distribution import RecordsSettings
from routing.operations.drops import Drops
from routing.operations.records.bodies import Body, Redaction
from routing.operations.records.record import COLUMNS, ROLLUP_KEYS, SUMS, Record
from routing.operations.store.storage import Row, Storage, StorageError, Transaction, surely

if TYPE_CHECKING:
    from routing.operations.observer import Batch, Observed

log = logging.getLogger(__name__)

BATCH = 1000
"""So many records are written in one transaction at most."""

GATHER_SECONDS = 0.25
"""How long records wait for others to be written with."""

RETRY_SECONDS = 2.0
"""A storage that failed is left alone for so long."""

POISON_TRIES = 3
"""A batch that a storage refuses so often, while it takes others, is dropped."""

STOP_SECONDS = 10.0
"""So long the last records get to be written."""

SWEEP_SECONDS = 3600.0
SWEEP_ROWS = 2000
"""So many rows are deleted at a time, so that nobody has to wait long."""

DAY_SECONDS = 86400

QUEUED_BODIES = 256
"""So many bodies wait at most: they are larger than records."""

BODIES_BATCH = 32

_BODY_COLUMNS = ("time", "request_id", "request", "reply")
_ADD_UP = (
    f"INSERT INTO rollups ({', '.join(ROLLUP_KEYS + SUMS)})"
    f" VALUES ({', '.join('?' for _ in ROLLUP_KEYS + SUMS)})"
    f" ON CONFLICT ({', '.join(ROLLUP_KEYS)}) DO UPDATE SET "
    + ", ".join(f"{each} = rollups.{each} + excluded.{each}" for each in SUMS)
)


class Recorder:
    """Brings records into a storage, from `start` to `stop`.

    Whoever hands one over never waits, and never learns whether it was kept: a storage that is away
    is tried again while there is room in the queue, and what has no room is counted and dropped.

    Args:
        storage: where to; it is opened and closed here.
        settings: how much may wait, and how long is kept what.
        clock: the time in seconds since 1970.

    Attributes:
        storage: where to; others may read there.
        written, dropped: how many records there were of each.
        sample_bytes, begun, closing: see `Observer`; bodies are kept of what is closing.
    """

    def __init__(
        self, storage: Storage, settings: RecordsSettings, clock: Callable[[], float] = time.time
    ) -> None:
        self.storage = storage
        self._settings = settings
        self._clock = clock
        self._records: deque[Record] = deque()
        self._bodies: deque[Body] = deque()
        self._redaction = Redaction(settings.redact, settings.body_max_bytes)
        self._arrived = asyncio.Event()
        self._stopping = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._drops = Drops("records of requests")
        self.written = 0
        self.sample_bytes = self._redaction.sample_bytes if settings.record_bodies else 0
        self.begun = None
        self.closing = self._keep_body if settings.record_bodies else None

    @property
    def dropped(self) -> int:
        """How many records were not kept."""
        return self._drops.count

    @property
    def waiting(self) -> int:
        """How many records wait to be written."""
        return len(self._records)

    def _keep_body(self, observed: Observed, record: Record) -> None:
        if self._settings.record_bodies == "errors" and not record.error:
            return
        enough, sample = self.sample_bytes, observed.sample
        self.put_body(
            Body(
                record.time,
                record.request_id,
                observed.body[:enough],
                sample.head,
                request_cut=len(observed.body) > enough,
                reply_cut=sample.size > enough,
                streamed=bool(record.stream),
            )
        )

    def ended(self, batch: Batch) -> None:
        """Have requests recorded."""
        self.put(*batch.records)

    async def start(self) -> None:
        """Open the storage, and begin to write; also if it can't be opened now."""
        try:
            await self.storage.start()
        except StorageError as error:
            log.error("requests are not recorded until it can be used: %s", error)
        self._writing = asyncio.create_task(self._write())
        self._sweeping = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Write what is left, and close the storage."""
        tasks = [each for each in (self._writing, self._sweeping) if each is not None]
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._stopping.set()
        self._arrived.set()
        if tasks:
            await surely(asyncio.gather(self._end(tasks), return_exceptions=True))
        await self.storage.stop()

    async def _end(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        self._drop(len(self._records))
        self._drops.log(now=True)

    def put(self, *records: Record) -> None:
        """Have `records` written, as far as there is room."""
        room = self._room
        self._records.extend(records[:room])
        self._drop(len(records[room:]))
        self._wake()

    def put_body(self, body: Body) -> None:
        """Have the bodies of one request written, if there is room for it too."""
        if self._room and len(self._bodies) < QUEUED_BODIES:
            self._bodies.append(body)
            self._wake()

    @property
    def _room(self) -> int:
        return max(self._settings.queue - len(self._records), 0)

    def _wake(self) -> None:
        if not self._arrived.is_set():
            self._arrived.set()

    def _drop(self, count: int) -> None:
        self._drops.add(count)

    async def _write(self) -> None:
        tries = 0
        last_try = False
        while True:
            if not self._records and not self._bodies:
                self._drops.log()
                if self._stopping.is_set():
                    return
                self._arrived.clear()
                await self._arrived.wait()
                await self._pause(GATHER_SECONDS)
            batch = list(islice(self._records, BATCH))
            bodies = list(islice(self._bodies, BODIES_BATCH))
            try:
                await self._write_batch(batch, bodies)
            except StorageError as error:
                self._drops.log(str(error))
                if last_try:
                    return
                last_try = self._stopping.is_set()
                if last_try:
                    continue
                tries = tries + 1 if await self._is_well() else 0
                if tries < POISON_TRIES:
                    await self._pause(RETRY_SECONDS)
                    continue
                self._drop(len(batch))
            except Exception:
                log.exception("records could not be written")
                self._drop(len(batch))
            else:
                self.written += len(batch)
            tries = 0
            for _ in batch:
                self._records.popleft()
            for _ in bodies:
                self._bodies.popleft()

    async def _write_batch(self, batch: Sequence[Record], bodies: Sequence[Body]) -> None:
        rows, sums, kept = await asyncio.to_thread(self._rows, batch, bodies)
        async with self.storage.transaction() as transaction:
            await transaction.insert("records", COLUMNS, rows)
            await transaction.execute_many(_ADD_UP, sums)
            await transaction.insert("bodies", _BODY_COLUMNS, kept)

    def _rows(
        self, batch: Sequence[Record], bodies: Sequence[Body]
    ) -> tuple[list[Row], list[Row], list[Row]]:
        rows = [structs.astuple(each) for each in batch]
        return rows, daily_sums(batch), [self._redaction.row(each) for each in bodies]

    async def _is_well(self) -> bool:
        try:
            async with self.storage.transaction() as transaction:
                await transaction.fetch("SELECT 1")
        except StorageError:
            return False
        return True

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    # What is old ----------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> None:
        """Forget what is older than the template says."""
        for table, days in (
            ("records", self._settings.keep_days),
            ("bodies", self._settings.body_keep_days),
        ):
            before = self._clock() - days * DAY_SECONDS
            try:
                while await self._forget(table, before) == SWEEP_ROWS:
                    pass
            except StorageError as error:
                log.warning("old %s stay until they can be deleted: %s", table, error)

    async def _forget(self, table: str, before: float) -> int:
        async with self.storage.transaction() as transaction:
            return await _forget(transaction, table, before)


async def _forget(transaction: Transaction, table: str, before: float) -> int:
    deleted = await transaction.fetch(
        f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE time < ? LIMIT"
        f" {SWEEP_ROWS}) RETURNING id",
        before,
    )
    return len(deleted)


def daily_sums(records: Iterable[Record]) -> list[Row]:
    """What is to be added to the sums of the days, a row each, in the order of their keys.

    Two processes that add to several sums at once take them in the same order, or each would wait
    for the other.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for each in records:
        key = (int(each.time // DAY_SECONDS), each.key, each.route, each.provider)
        group = groups.get(key)
        if group is None:
            group = groups[key] = []
        group.append(each)
    return [(*key, *_sums(groups[key])) for key in sorted(groups)]


_SUMMED = ("cancelled", *SUMS[SUMS.index("input_tokens") : SUMS.index("unpriced")], "duration")
_summed = attrgetter("error", *_SUMMED)


def _sums(records: Sequence[Record]) -> tuple[int, ...]:
    """`SUMS` of some records."""
    errors, *columns = zip(*map(_summed, records), strict=True)
    sums = [sum(filter(None, column)) for column in columns]
    seconds = sums.pop()
    unpriced = sum(1 for each in records if each.cost is None and each.input_tokens is not None)
    return len(records), sum(map(bool, errors)), *sums, unpriced, round(seconds * 1000)
