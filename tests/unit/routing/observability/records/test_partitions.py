"""Days of records, each in a partition of its own, and dropped as a whole."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from llama_compat.distribution import RecordsSettings
from routing.observability.records.partitions import DAY_SECONDS, Partitions
from routing.observability.records.record import COLUMNS, MIGRATIONS
from routing.observability.records.recorder import Recorder
from routing.storage.storage import Migrations, Storage, open_storage
from tests.postgres import PostgresServer, emptied
from tests.unit.routing.observability.records.records import NOON, record

TODAY = int(NOON // DAY_SECONDS)


async def opened(server: PostgresServer, versions: int | None = None) -> Storage:
    migrations = Migrations(MIGRATIONS.component, MIGRATIONS.versions[:versions])
    storage = open_storage(server.address, [migrations])
    await storage.start()
    return storage


FIRST_COLUMNS = COLUMNS[: COLUMNS.index("guardrails")]
"""Those of the first version; later ones have a default."""


async def put(storage: Storage, *times: float) -> None:
    rows = [structs.astuple(record(time=each, request_id=f"{each:g}")) for each in times]
    async with storage.transaction() as transaction:
        known = [row[: len(FIRST_COLUMNS)] for row in rows]
        await transaction.insert("records", FIRST_COLUMNS, known)


async def in_partitions(storage: Storage) -> dict[str, int]:
    rows = await storage.fetch(
        "SELECT tableoid::regclass::text, COUNT(*) FROM records GROUP BY 1 ORDER BY 1"
    )
    return dict(rows)


async def test_each_day_has_its_own_and_is_dropped_whole(postgres_server: PostgresServer) -> None:
    await emptied(postgres_server.address)
    storage = await opened(postgres_server)
    partitions = Partitions(storage, "records")
    await partitions.make(NOON)
    await partitions.make(NOON)
    times = [NOON - DAY_SECONDS, NOON, NOON + DAY_SECONDS, NOON + DAY_SECONDS + 1]
    await put(storage, *times)
    assert await in_partitions(storage) == {
        f"records_day_{TODAY}": 1,
        f"records_day_{TODAY + 1}": 2,
        "records_rest": 1,
    }
    assert await partitions.with_rows() == ["records_rest"]
    assert await partitions.drop(NOON + 1) == 0
    assert await partitions.drop((TODAY + 1) * DAY_SECONDS) == 1
    assert set(await in_partitions(storage)) == {f"records_day_{TODAY + 1}", "records_rest"}
    await storage.stop()


async def test_a_day_that_has_begun_elsewhere_stays_there(postgres_server: PostgresServer) -> None:
    await emptied(postgres_server.address)
    storage = await opened(postgres_server)
    await put(storage, NOON + DAY_SECONDS)
    partitions = Partitions(storage, "records")
    await partitions.make(NOON)
    await put(storage, NOON, NOON + DAY_SECONDS)
    assert await in_partitions(storage) == {f"records_day_{TODAY}": 1, "records_rest": 2}
    await storage.stop()


async def test_what_was_there_before_there_were_partitions(postgres_server: PostgresServer) -> None:
    await emptied(postgres_server.address)
    before = await opened(postgres_server, versions=2)
    await put(before, NOON - DAY_SECONDS, NOON)
    await before.stop()
    storage = await opened(postgres_server)
    [name] = await in_partitions(storage)
    assert name.startswith("records_until_")
    until = int(name.rpartition("_")[2])
    # Those that are new go on with the numbers.
    await put(storage, NOON + 1)
    ids = await storage.fetch("SELECT id, time FROM records ORDER BY id")
    assert ids == [(1, NOON - DAY_SECONDS), (2, NOON), (3, NOON + 1)]
    # The sums of hours are there of them too.
    hours = await storage.fetch("SELECT hour, requests, milliseconds FROM hourly_rollups")
    assert sorted(hours) == [
        (int((NOON - DAY_SECONDS) // 3600), 1, 250),
        (int(NOON // 3600), 1, 250),
    ]
    partitions = Partitions(storage, "records")
    await partitions.make((until - 1) * DAY_SECONDS)
    there: list[Any] = await partitions._there()
    assert f"records_day_{until}" in there
    assert f"records_day_{until - 1}" not in there
    assert await partitions.drop(until * DAY_SECONDS) == 1
    assert not await in_partitions(storage)
    await storage.stop()


async def test_a_recorder_makes_and_drops_them(postgres_server: PostgresServer) -> None:
    await emptied(postgres_server.address)
    now = NOON
    storage = open_storage(postgres_server.address, [MIGRATIONS])
    recorder = Recorder(storage, RecordsSettings(keep_days=3), lambda: now)
    await storage.start()
    assert await recorder.sweep()
    await put(storage, NOON)
    assert await in_partitions(storage) == {f"records_day_{TODAY}": 1}
    now = NOON + 3.6 * DAY_SECONDS
    assert await recorder.sweep()
    assert not await in_partitions(storage)
    await storage.stop()
