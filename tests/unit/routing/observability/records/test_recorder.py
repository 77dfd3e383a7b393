"""The writer of records, on both storages and when they fail."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from llama_compat.distribution import RecordsSettings
from routing.observability.records import recorder as module
from routing.observability.records.bodies import Body
from routing.observability.records.partitions import DAY_SECONDS
from routing.observability.records.record import COLUMNS, MIGRATIONS, ROLLUP_KEYS, SUMS, Record
from routing.observability.records.recorder import SWEEP_ROWS, Recorder, daily_sums
from routing.storage.sqlite import SQLiteStorage
from routing.storage.storage import Storage, open_storage
from tests.postgres import LossyWay, PostgresServer, emptied, read_only
from tests.unit.routing.observability.records.records import NOON, record


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.001)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)


@asynccontextmanager
async def recording(
    address: str | Storage, clock: Any = lambda: NOON, **settings: Any
) -> AsyncGenerator[Recorder, None]:
    storage = open_storage(address, [MIGRATIONS]) if isinstance(address, str) else address
    recorder = Recorder(storage, RecordsSettings(**settings), clock)
    await recorder.start()
    try:
        yield recorder
    finally:
        await recorder.stop()


async def found(address: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    storage = open_storage(address, [MIGRATIONS])
    try:
        return await storage.fetch(statement, *values)
    finally:
        await storage.stop()


async def ids(address: str) -> list[str]:
    return [each for (each,) in await found(address, "SELECT request_id FROM records ORDER BY id")]


async def sums(address: str) -> list[tuple[Any, ...]]:
    columns = ", ".join(ROLLUP_KEYS + SUMS)
    return await found(address, f"SELECT {columns} FROM rollups ORDER BY day, key, model, provider")


async def until_idle(recorder: Recorder) -> None:
    await until(lambda: not recorder.waiting)


async def until(happened: Callable[[], object]) -> None:
    for _ in range(5000):
        if happened():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not happen in time")


# What is written ----------------------------------------------------------------------------------


async def test_a_record_is_kept_with_all_its_columns(address: str) -> None:
    full = record(
        cached_tokens=40,
        cache_write_tokens=20,
        reasoning_tokens=4,
        estimated=1,
        first_content=0.125,
        overhead=0.001,
        stream=1,
        cancelled=1,
        error="timeout",
        message="took too long",
        searches=2,
        tool_calls=3,
    )
    async with recording(address) as recorder:
        recorder.put(full)
        recorder.put(record(input_tokens=None, output_tokens=None, cost=None))
    rows = await found(address, f"SELECT {', '.join(COLUMNS)} FROM records ORDER BY id")
    assert rows[0] == structs.astuple(full)
    assert dict(zip(COLUMNS, rows[1], strict=True))["cost"] is None


async def test_all_is_written_at_a_stop(address: str) -> None:
    async with recording(address) as recorder:
        for number in range(2500):
            recorder.put(record(request_id=f"r{number}"))
    assert await ids(address) == [f"r{number}" for number in range(2500)]
    assert (recorder.written, recorder.dropped, recorder.waiting) == (2500, 0, 0)


async def test_the_sums_of_a_day_are_those_of_its_records(address: str) -> None:
    records = [
        record(cached_tokens=40, reasoning_tokens=4, searches=2),
        record(
            input_tokens=7,
            searches=1,
            tool_calls=5,
            cache_write_tokens=2,
            cost=None,
            estimated=1,
            duration=0.0504,
        ),
        record(input_tokens=None, output_tokens=None, cost=None, error="timeout", cancelled=1),
        record(key="key-2"),
        record(time=NOON + DAY_SECONDS / 2),
    ]
    async with recording(address) as recorder:
        for each in records[:2]:
            recorder.put(each)
    async with recording(address) as recorder:
        for each in records[2:]:
            recorder.put(each)
    alone = (1, 0, 0, 100, 0, 0, 10, 0, 0, 1000, 0, 250, 0, 0)
    assert await sums(address) == [
        (20_000, "key-1", "m", "up", 3, 1, 1, 107, 40, 2, 20, 4, 1, 1000, 1, 550, 3, 5),
        (20_000, "key-2", "m", "up", *alone),
        (20_001, "key-1", "m", "up", *alone),
    ]


def test_sums_are_in_the_order_of_their_keys() -> None:
    records = [record(key=key, provider=provider) for key in "ba" for provider in "ba"]
    rows = daily_sums(records)
    assert [row[1:4] for row in rows] == [
        ("a", "m", "a"),
        ("a", "m", "b"),
        ("b", "m", "a"),
        ("b", "m", "b"),
    ]


async def test_two_writers_add_to_the_same_sums(address: str) -> None:
    async def write(name: str) -> None:
        async with recording(address) as recorder:
            for number in range(100):
                recorder.put(record(request_id=f"{name}{number}", key=f"key-{number % 7}"))
                await asyncio.sleep(0)

    await asyncio.gather(write("a"), write("b"))
    assert sum(row[4] for row in await sums(address)) == 200
    assert len(await ids(address)) == 200


# Bodies -------------------------------------------------------------------------------------------


def body(request_id: str = "req", time: float = NOON) -> Body:
    return Body(time, request_id, b"asks sk-1", b"says", False, False, False)


async def test_bodies_are_kept_apart_and_redacted(address: str) -> None:
    async with recording(address, redact=["sk-[0-9]"]) as recorder:
        recorder.put(record())
        recorder.put_body(body())
    rows = await found(address, "SELECT time, request_id, request, reply FROM bodies")
    assert rows == [(NOON, "req", b"asks [redacted]", b"says")]


async def test_more_bodies_than_a_batch_has(address: str) -> None:
    async with recording(address) as recorder:
        for number in range(100):
            recorder.put(record())
            recorder.put_body(body(f"r{number}"))
    rows = await found(address, "SELECT request_id FROM bodies ORDER BY id")
    assert rows == [(f"r{number}",) for number in range(100)]


async def test_a_thousand_bodies_of_a_moment_are_all_kept(address: str) -> None:
    async with recording(address, record_bodies="all") as recorder:
        for number in range(1000):
            recorder.put(record())
            recorder.put_body(body(f"r{number}"))
    rows = await found(address, "SELECT request_id FROM bodies ORDER BY id")
    assert rows == [(f"r{number}",) for number in range(1000)]
    assert recorder.bodies_dropped == 0


async def test_bodies_without_room_are_counted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"sqlite:{tmp_path / 'operations.sqlite'}"
    monkeypatch.setattr(module, "QUEUED_BODIES_BYTES", 5 * module._size(body()))
    async with recording(address, record_bodies="all") as recorder:
        for number in range(8):
            recorder.put_body(body(f"r{number}"))
        assert recorder.bodies_dropped == 3
        assert lines(caplog) == [
            "1 bodies of requests were dropped: more came than could be written"
        ]
        # What has been written makes room.
        await until(lambda: not recorder._bodies)
        recorder.put_body(body("later"))
    rows = await found(address, "SELECT request_id FROM bodies ORDER BY id")
    assert rows == [("r0",), ("r1",), ("r2",), ("r3",), ("r4",), ("later",)]
    assert lines(caplog)[1:] == [
        "2 bodies of requests were dropped: more came than could be written"
    ]


# What is old --------------------------------------------------------------------------------------


async def test_what_is_old_is_forgotten_and_its_sums_stay(address: str) -> None:
    old, kept = NOON - 3 * DAY_SECONDS - 1, NOON - 3 * DAY_SECONDS
    async with recording(address, keep_days=3, body_keep_days=1) as recorder:
        for number in range(SWEEP_ROWS + 1):
            recorder.put(record(request_id=f"old{number}", time=old))
        recorder.put(record(request_id="kept", time=kept))
        recorder.put_body(body("forgotten", kept))
        recorder.put(record(request_id="new"))
        recorder.put_body(body("new"))
        await until_idle(recorder)
        await recorder.sweep()
    assert await ids(address) == ["kept", "new"]
    assert await found(address, "SELECT request_id FROM bodies") == [("new",)]
    assert sum(row[4] for row in await sums(address)) == SWEEP_ROWS + 3


async def test_a_sweep_is_bounded_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP_ROWS", 10)
    monkeypatch.setattr(module, "SWEEP_MOST", 3)
    address = f"sqlite:{tmp_path / 'records.sqlite'}"
    async with recording(address, keep_days=3) as recorder:
        for number in range(50):
            recorder.put(record(request_id=f"old{number}", time=NOON - 4 * DAY_SECONDS))
        recorder.put(record(request_id="new"))
        await until_idle(recorder)
        assert not await recorder.sweep()
        left = len(await ids(address))
        assert left >= 51 - 2 * 30
        while not await recorder.sweep():
            assert len(await ids(address)) < left
            left = len(await ids(address))
    assert await ids(address) == ["new"]
    assert await found(address, "SELECT hour FROM hourly_rollups") == [(int(NOON // 3600),)]


async def test_what_is_old_is_forgotten_soon_after_the_start(address: str) -> None:
    """A process that is started each day for an hour forgets too."""
    async with recording(address) as recorder:
        recorder.put(record(request_id="old", time=NOON))
        recorder.put(record(request_id="new", time=NOON + 4 * DAY_SECONDS))
        recorder.put_body(body("old", NOON))
    # Where days are forgotten as a whole, the day has to be over.
    async with recording(address, lambda: NOON + 4 * DAY_SECONDS + 1, keep_days=3) as recorder:
        for _ in range(2000):
            if await ids(address) == ["new"]:
                break
            await asyncio.sleep(0.002)
        await until_idle(recorder)
    assert await ids(address) == ["new"]


# When the storage fails ---------------------------------------------------------------------------


def locked(path: Path) -> sqlite3.Connection:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def delete_all(folder: Path) -> None:
    for each in folder.iterdir():
        each.unlink()


def storage_at(path: Path) -> SQLiteStorage:
    return SQLiteStorage(str(path), [MIGRATIONS], busy_seconds=0.01)


def lines(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


def waits(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether it has been said that records wait, since the storage can't be used."""
    return any("wait to be written" in each.getMessage() for each in list(caplog.records))


async def test_what_has_no_room_is_dropped_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "operations.sqlite"
    async with recording(storage_at(path), queue=5) as recorder:
        other = locked(path)
        for number in range(8):
            recorder.put(record(request_id=f"r{number}"))
        assert (recorder.waiting, recorder.dropped) == (5, 3)
        assert lines(caplog) == [
            "1 records of requests were dropped: more came than could be written"
        ]
        await until(lambda: waits(caplog))
        other.close()
    assert await ids(f"sqlite:{path}") == [f"r{number}" for number in range(5)]
    assert lines(caplog)[1:] == [
        "records of requests wait to be written (5 wait, 3 were dropped since the start):"
        f" sqlite:{path} can't be used: database is locked",
        "2 records of requests were dropped: more came than could be written",
    ]


async def test_records_wait_for_a_storage_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.write_text("in the way")
    async with recording(storage_at(folder / "operations.sqlite")) as recorder:
        recorder.put(record())
        await until(lambda: waits(caplog))
        assert recorder.waiting == 1
        assert "wait to be written: sqlite:" in lines(caplog)[0]
        folder.unlink()
        await until_idle(recorder)
    assert (recorder.written, recorder.dropped) == (1, 0)


async def test_a_stop_does_not_wait_for_a_storage_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "operations.sqlite"
    async with recording(storage_at(path)) as recorder:
        other = locked(path)
        recorder.put(record())
    other.close()
    assert (recorder.written, recorder.dropped) == (0, 1)


async def test_a_row_that_a_good_storage_refuses_is_dropped_alone(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with recording(address) as recorder:
        for number in range(100):
            bad = number in (7, 70)
            recorder.put(record(request_id=f"r{number}", status=None if bad else 200))
            recorder.put_body(body(f"r{number}"))
        await until_idle(recorder)
    assert await ids(address) == [f"r{each}" for each in range(100) if each not in (7, 70)]
    assert len(await found(address, "SELECT id FROM bodies")) == 100
    assert (recorder.written, recorder.dropped, recorder.bodies_dropped) == (98, 2, 0)
    assert sum(row[4] for row in await sums(address)) == 98
    assert "status" in lines(caplog)[0]


async def test_a_bug_costs_one_record(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async with recording(address) as recorder:
        recorder.put(record(time="never"), record(request_id="good"))
        await until_idle(recorder)
    assert await ids(address) == ["good"]
    assert "a record could not be written" in caplog.text


async def test_a_file_that_goes_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "operations.sqlite"
    async with recording(storage_at(path)) as recorder:
        recorder.put(record(request_id="before"))
        await until_idle(recorder)
        delete_all(tmp_path)
        recorder.put(record(request_id="after"))
    assert await ids(f"sqlite:{path}") == ["after"]


@pytest.mark.parametrize("queue", [100, 10_000])
async def test_a_full_disk_costs_what_has_no_room_in_the_queue(
    tmp_path: Path, queue: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "operations.sqlite"
    storage = storage_at(path)
    async with recording(storage, queue=queue) as recorder:
        # SQLite's own limit of pages is what a full disk is to it: "database or disk is full".
        await storage._writer.step(lambda each: each.execute("PRAGMA max_page_count = 30"))
        for number in range(500):
            recorder.put(record(request_id=f"r{number}", message="x" * 500))
            if number % 50 == 0:
                await asyncio.sleep(0.02)
        await until(lambda: waits(caplog))
        # Again and again it is tried, and refused.
        await asyncio.sleep(0.3)
        assert recorder.waiting
        assert bool(recorder.dropped) == (queue == 100)
        await storage._writer.step(lambda each: each.execute("PRAGMA max_page_count = 100000"))
        await until_idle(recorder)
        recorder.put(record(request_id="after"))
    assert (await ids(f"sqlite:{path}"))[-1] == "after"
    assert recorder.written + recorder.dropped == 501
    assert len(await ids(f"sqlite:{path}")) == recorder.written
    said = [each.getMessage() for each in caplog.records]
    assert next(each for each in said if "wait to be written" in each).endswith("is full")
    assert len([each for each in said if "written again, after" in each]) == 1


async def test_records_wait_for_a_database_that_can_only_be_read(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await emptied(postgres_server.address)
    async with recording(postgres_server.address) as recorder:
        recorder.put(record(request_id="before"))
        await until_idle(recorder)
        async with read_only(postgres_server.address):
            for number in range(300):
                recorder.put(record(request_id=f"r{number}"))
            await until(lambda: waits(caplog))
            assert (recorder.waiting, recorder.dropped) == (300, 0)
            # Another that starts meanwhile reads, and keeps what it has.
            async with recording(postgres_server.address) as other:
                assert await other.storage.fetch("SELECT COUNT(*) FROM records") == [(1,)]
        await until_idle(recorder)
    assert await ids(postgres_server.address) == ["before", *(f"r{n}" for n in range(300))]
    # The other may have come to its first sweep too, or not, which says that it can't delete.
    said = [each.getMessage() for each in caplog.records if each.name == "routing.storage.outage"]
    assert "read-only transaction" in said[0]
    assert said[0].startswith("records of requests wait to be written (")
    assert said[-1].startswith("records of requests are written again, after ")
    assert len(said) == 2


async def test_what_nobody_heard_was_kept_is_kept_once(postgres_server: PostgresServer) -> None:
    await emptied(postgres_server.address)
    async with LossyWay(postgres_server, every=3).opened() as way:
        async with recording(way.address) as recorder:
            for number in range(40):
                recorder.put(record(request_id=f"r{number}"))
                recorder.put_body(body(f"r{number}"))
                await until_idle(recorder)
        assert way.lost > 5
    assert await ids(postgres_server.address) == [f"r{number}" for number in range(40)]
    assert len(await found(postgres_server.address, "SELECT id FROM bodies")) == 40
    assert sum(row[4] for row in await sums(postgres_server.address)) == 40
    assert (recorder.written, recorder.dropped) == (40, 0)


def test_records_are_what_the_table_has() -> None:
    created = " ".join(each for version in MIGRATIONS.versions for each in version)
    for name in Record.__struct_fields__:
        assert f" {name} " in created.replace("(", " ").replace(",", " ")


async def test_records_wait_for_postgres_to_come_back(postgres_server: PostgresServer) -> None:
    await emptied(postgres_server.address)
    async with recording(postgres_server.address) as recorder:
        recorder.put(record(request_id="before"))
        await until_idle(recorder)
        postgres_server.stop()
        try:
            recorder.put(record(request_id="meanwhile"))
            await asyncio.sleep(0.1)
            assert recorder.waiting == 1
        finally:
            postgres_server.start()
        await until_idle(recorder)
    assert await ids(postgres_server.address) == ["before", "meanwhile"]
