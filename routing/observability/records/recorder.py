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

from msgspec import Struct, structs

from llama_compat.distribution import RecordsSettings
from llama_compat.going_on import going_on
from routing.observability.drops import Drops
from routing.observability.records.bodies import Body, Redaction
from routing.observability.records.partitions import DAY_SECONDS, Partitions
from routing.observability.records.record import COLUMNS, HOURLY_KEYS, ROLLUP_KEYS, SUMS, Record
from routing.storage.once import BatchWriter
from routing.storage.outage import Outage
from routing.storage.storage import (
    Row,
    RowRefused,
    Storage,
    StorageError,
    Transaction,
    surely,
)
from routing.waiting import first_of

if TYPE_CHECKING:
    from routing.observability.observers import Batch
    from routing.request import Request

log = logging.getLogger(__name__)

BATCH = 1000
"""So many records are written in one transaction at most."""

GATHER_SECONDS = 0.25
"""How long records wait for others to be written with."""

RETRY_SECONDS = 2.0
"""A storage that failed is left alone for so long."""

STOP_SECONDS = 10.0
"""So long the last records get to be written."""

SWEEP_SECONDS = 3600.0
SWEEP_ROWS = 2000
"""So many rows are deleted at a time, so that nobody has to wait long."""

SWEEP_PAUSE_SECONDS = 0.02
"""Between two times, for those who write."""

SWEEP_MOST = 100
"""So many times in a row: what is left is for the next sweep, which comes sooner then."""

SWEEP_AGAIN_SECONDS = 60.0

HOUR_SECONDS = 3600

QUEUED_BODIES_BYTES = 64 * 1024 * 1024
"""So much memory the bodies take that wait."""

BODIES_BATCH_BYTES = 4 * 1024 * 1024
"""So much of them is written in one transaction, or a little more."""

BODY_BYTES = 512
"""What a body takes beside its bytes, about."""

_BODY_COLUMNS = ("time", "request_id", "request", "reply", "headers")


def _adding(table: str, keys: Sequence[str]) -> str:
    return (
        f"INSERT INTO {table} ({', '.join((*keys, *SUMS))})"
        f" VALUES ({', '.join('?' for _ in (*keys, *SUMS))})"
        f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET "
        + ", ".join(f"{each} = {table}.{each} + excluded.{each}" for each in SUMS)
    )


_ADD_DAYS = _adding("rollups", ROLLUP_KEYS)
_ADD_HOURS = _adding("hourly_rollups", HOURLY_KEYS)


class _Batch(Struct):
    """What is written in one transaction, and again until it is known whether it was.

    Attributes:
        number: of the writer's.
        records, bodies: those that wait longest.
        rows: of records, of the sums of hours and of days, and of bodies; None while they are not
            worked out.
    """

    number: int
    records: Sequence[Record]
    bodies: Sequence[Body]
    rows: tuple[list[Row], list[Row], list[Row], list[Row]] | None = None


class Recorder:
    """Brings records into a storage, from `start` to `stop`.

    Whoever hands one over never waits, and never learns whether it was kept. What the storage does
    not take because it is away, full, locked or read-only is written again until it does; what has
    no room in the queue meanwhile is counted and dropped, as is a row that it will never take.

    Args:
        storage: where to; it is opened and closed here.
        settings: how much may wait, and how long is kept what.
        clock: the time in seconds since 1970.

    Attributes:
        storage: where to; others may read there.
        written, dropped: how many records there were of each.
        bodies_dropped: how many bodies were not kept.
        sample_bytes, closing: see `Observer`; bodies are kept of what is closing.
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
        self._bodies_bytes = 0
        self._drops = Drops("records of requests")
        self._body_drops = Drops("bodies of requests")
        self._outage = Outage(
            "records of requests wait to be written", "records of requests are written again"
        )
        self._writer = BatchWriter("record_writers", clock)
        self.written = 0
        self.sample_bytes = self._redaction.sample_bytes if settings.record_bodies else 0
        self.closing = self._keep_body if settings.record_bodies else None

    @property
    def dropped(self) -> int:
        """How many records were not kept."""
        return self._drops.count

    @property
    def bodies_dropped(self) -> int:
        """How many bodies were not kept."""
        return self._body_drops.count

    @property
    def waiting(self) -> int:
        """How many records wait to be written."""
        return len(self._records)

    def _keep_body(self, request: Request, record: Record) -> None:
        if request.principal is None:
            return
        if self._settings.record_bodies == "errors" and not record.error:
            return
        enough, sample = self.sample_bytes, request.sample
        self.put_body(
            Body(
                record.time,
                record.request_id,
                request.body[:enough],
                sample.head,
                request_cut=len(request.body) > enough,
                reply_cut=sample.size > enough,
                streamed=bool(record.stream),
                headers=request.attempts.headers,
            )
        )

    def ended(self, batch: Batch) -> None:
        """Have requests recorded.

        Those of nobody, who brought no good key, are not: anybody could fill the storage, and have
        others' records dropped. Metrics count them, and the log has a line.
        """
        if batch.records[0].key:
            self.put(*batch.records)

    async def start(self) -> None:
        """Open the storage, and begin to write; also if it can't be opened now."""
        try:
            await self.storage.start()
        except StorageError as error:
            self._outage.failed(str(error))
        self._writing = asyncio.create_task(self._write())
        self._sweeping = asyncio.create_task(going_on("old records", self._sweep))

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
        self._drops.add(len(self._records), self._outage.why)
        self._body_drops.add(len(self._bodies), self._outage.why)
        for drops in (self._drops, self._body_drops):
            drops.log(now=True)

    def put(self, *records: Record) -> None:
        """Have `records` written, as far as there is room."""
        room = self._room
        self._records.extend(records[:room])
        self._drop(len(records[room:]))
        self._wake()

    def put_body(self, body: Body) -> None:
        """Have the bodies of one request written, if there is room for it too."""
        size = _size(body)
        if self._bodies_bytes + size > QUEUED_BODIES_BYTES:
            self._body_drops.add(1)
            return
        self._bodies.append(body)
        self._bodies_bytes += size
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
        most = BATCH
        while await self._something():
            batch = self._batch(most)
            try:
                done = await self._until_kept(batch)
            except Exception as error:
                # One row may have spoilt it for the others: they are written without it.
                if len(batch.records) + len(batch.bodies) > 1:
                    most = max(1, max(len(batch.records), len(batch.bodies)) // 2)
                    continue
                self._lost(batch, error)
            else:
                if not done:
                    return
                self.written += len(batch.records)
                most = min(2 * most, BATCH)
            self._take(batch)

    async def _something(self) -> bool:
        """Wait for something to write, and for what may come with it; False at the end."""
        while not self._records and not self._bodies:
            self._drops.log()
            self._body_drops.log()
            if self._stopping.is_set():
                return False
            self._arrived.clear()
            await self._arrived.wait()
            await first_of(self._stopping, GATHER_SECONDS)
        return True

    def _batch(self, most: int) -> _Batch:
        records = list(islice(self._records, most))
        bodies, size = [], 0
        # One row alone, where that is what is left: it would not be known which one is refused.
        for body in islice(self._bodies, most if most > 1 or not records else 0):
            bodies.append(body)
            size += _size(body)
            if size >= BODIES_BATCH_BYTES:
                break
        return _Batch(self._writer.next_batch(), records, bodies)

    def _take(self, batch: _Batch) -> None:
        """Take from the queue what has been written, or never will be."""
        for _ in batch.records:
            self._records.popleft()
        for _ in batch.bodies:
            self._bodies_bytes -= _size(self._bodies.popleft())

    def _lost(self, batch: _Batch, error: Exception) -> None:
        if not isinstance(error, StorageError):
            log.error("a record could not be written", exc_info=error)
        self._drops.add(len(batch.records), str(error))
        self._body_drops.add(len(batch.bodies), str(error))

    async def _until_kept(self, batch: _Batch) -> bool:
        """Write a batch, as often as it takes; False if the end comes before.

        Raises:
            RowRefused: the storage will never take one of its rows.
        """
        is_last = False
        while True:
            try:
                await self._write_batch(batch)
            except RowRefused:
                raise
            except StorageError as error:
                self._outage.failed(str(error), self._standing())
                if is_last:
                    return False
                is_last = self._stopping.is_set()
                if not is_last:
                    await first_of(self._stopping, RETRY_SECONDS)
            else:
                self._outage.worked(self._standing())
                return True

    def _standing(self) -> str:
        dropped = f", {self.dropped} were dropped since the start" if self.dropped else ""
        return f"{self.waiting} wait{dropped}"

    async def _write_batch(self, batch: _Batch) -> None:
        if batch.rows is None:
            batch.rows = await asyncio.to_thread(self._rows, batch)
        rows, hours, days, kept = batch.rows
        async with self.storage.transaction() as transaction:
            # Where the answer to a COMMIT was lost, all of it is there already.
            if await self._writer.is_new(transaction, batch.number):
                await transaction.insert("records", COLUMNS, rows)
                await transaction.execute_many(_ADD_HOURS, hours)
                await transaction.execute_many(_ADD_DAYS, days)
                await transaction.insert("bodies", _BODY_COLUMNS, kept)

    def _rows(self, batch: _Batch) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
        rows = [structs.astuple(each) for each in batch.records]
        kept = [self._redaction.row(each) for each in batch.bodies]
        return rows, hourly_sums(batch.records), daily_sums(batch.records), kept

    # What is old ----------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        # At once, as many a process does not live for as long as it is until the next.
        while True:
            is_done = await self.sweep()
            await asyncio.sleep(SWEEP_SECONDS if is_done else SWEEP_AGAIN_SECONDS)

    async def sweep(self) -> bool:
        """Forget what is older than the template says, or some of it.

        Where the storage has partitions, a day is forgotten as a whole once all of it is old.

        Returns:
            Whether that was all.
        """
        now, is_done = self._clock(), True
        for table, column, days, unit in (
            ("records", "time", self._settings.keep_days, 1),
            ("bodies", "time", self._settings.body_keep_days, 1),
            ("hourly_rollups", "hour", self._settings.keep_days, HOUR_SECONDS),
        ):
            before = now - days * DAY_SECONDS
            try:
                names = [table]
                if self.storage.has_partitions and column == "time":
                    partitions = Partitions(self.storage, table)
                    await partitions.make(now)
                    await partitions.drop(before)
                    names = await partitions.with_rows()
                for name in names:
                    is_done = await self._forget(name, column, before / unit) and is_done
            except StorageError as error:
                log.warning("old %s stay until they can be deleted: %s", table, error)
        return is_done

    async def _forget(self, table: str, column: str, before: float) -> bool:
        """Delete what is older, a few rows at a time; whether that was all."""
        for _ in range(SWEEP_MOST):
            async with self.storage.transaction() as transaction:
                if await _forget(transaction, table, column, before) < SWEEP_ROWS:
                    return True
            await asyncio.sleep(SWEEP_PAUSE_SECONDS)
        return False


def _size(body: Body) -> int:
    headers = sum(len(name) + len(value) for name, value in body.headers)
    return len(body.request) + len(body.reply) + headers + BODY_BYTES


async def _forget(transaction: Transaction, table: str, column: str, before: float) -> int:
    if column == "hour":
        # Few rows: those of one hour at a time.
        deleted = await transaction.fetch(
            "DELETE FROM hourly_rollups WHERE hour IN"
            " (SELECT MIN(hour) FROM hourly_rollups WHERE hour < ?) RETURNING hour",
            int(before),
        )
        return SWEEP_ROWS if deleted else 0
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
    return _sums_of(records, DAY_SECONDS)


def hourly_sums(records: Iterable[Record]) -> list[Row]:
    """The same of hours."""
    return _sums_of(records, HOUR_SECONDS)


def _sums_of(records: Iterable[Record], seconds: int) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for each in records:
        key = (int(each.time // seconds), each.key, each.route, each.provider)
        group = groups.get(key)
        if group is None:
            group = groups[key] = []
        group.append(each)
    return [(*key, *_sums(groups[key])) for key in sorted(groups)]


_SUMMED = (
    "cancelled",
    *SUMS[SUMS.index("input_tokens") : SUMS.index("unpriced")],
    "searches",
    "tool_calls",
    "duration",
)
_summed = attrgetter("error", *_SUMMED)


def _sums(records: Sequence[Record]) -> tuple[int, ...]:
    """`SUMS` of some records."""
    errors, *columns = zip(*map(_summed, records), strict=True)
    *sums, searches, tool_calls, seconds = (sum(filter(None, column)) for column in columns)
    unpriced = sum(1 for each in records if each.cost is None and each.input_tokens is not None)
    milliseconds = round(seconds * 1000)
    rest = (unpriced, milliseconds, searches, tool_calls)
    return len(records), sum(map(bool, errors)), *sums, *rest
