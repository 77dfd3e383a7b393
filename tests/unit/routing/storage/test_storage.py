"""Storage: the same to its users on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from routing.storage.postgres import CLOCK_SECONDS, PostgresStorage
from routing.storage.sqlite import SQLiteStorage
from routing.storage.storage import Migrations, Storage, StorageError, open_storage
from tests.postgres import PostgresServer

FIRST = ("CREATE TABLE things (id {identity}, name TEXT NOT NULL, content {blob}, size BIGINT)",)
SECOND = (
    "ALTER TABLE things ADD COLUMN weight DOUBLE PRECISION",
    "CREATE UNIQUE INDEX things_by_name ON things (name)",
)
INSERT = "INSERT INTO things (name, content, size) VALUES (?, ?, ?)"


def things(*versions: Sequence[str]) -> list[Migrations]:
    return [Migrations("things", versions or (FIRST,))]


@asynccontextmanager
async def opened(
    address: str, migrations: Sequence[Migrations] | None = None
) -> AsyncGenerator[Storage, None]:
    storage = open_storage(address, things() if migrations is None else migrations)
    try:
        await storage.start()
        yield storage
    finally:
        await storage.stop()


async def names(storage: Storage) -> list[str]:
    return [name for (name,) in await storage.fetch("SELECT name FROM things ORDER BY id")]


async def test_what_is_written_is_there_when_it_is_opened_again(address: str) -> None:
    async with opened(address) as storage, storage.transaction() as transaction:
        await transaction.execute_many(INSERT, [("a", b"\x00\xff", 1 << 60), ("b", None, None)])
    async with opened(address) as storage:
        rows = await storage.fetch("SELECT id, name, content, size FROM things ORDER BY id")
        assert rows == [(1, "a", b"\x00\xff", 1 << 60), (2, "b", None, None)]


async def test_the_time_is_the_databases_for_whomever_uses_it(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, true = postgres_server.address, time.time
    async with opened(address, []) as storage:
        assert abs(storage.now() - true()) < 5
    for ahead in (1000.0, -1000.0):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: true() + ahead)
        async with opened(address, []) as storage:
            assert abs(storage.now() - true()) < 5
            # A clock that is set while it runs is noticed with what is asked a minute later.
            monkeypatch.setattr(time, "time", true)
            assert abs(storage.now() - true() + ahead) < 5
            assert isinstance(storage, PostgresStorage)
            for use in (read, written):
                storage._measured_at -= CLOCK_SECONDS
                storage._ahead = 77.0
                await use(storage)
                assert abs(storage.now() - true()) < 5


async def test_a_database_that_hangs_is_not_taken_to_be_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs = {"before": 0.0, "after": 0.0}
    here, there = 1000.0, 1003.0

    def hang(seconds: float) -> None:
        nonlocal here, there
        here, there = here + seconds, there + seconds

    class Hanging:
        async def fetchval(self, _: str) -> float:
            hang(hangs["before"])
            told = there
            hang(hangs["after"])
            return told

    monkeypatch.setattr(time, "time", lambda: here)
    monkeypatch.setattr(time, "monotonic", lambda: here)
    storage = PostgresStorage("postgres://localhost/none", [])
    for before, after in ((0, 0), (20, 0), (0, 20), (8, 12), (0.5, 0)):
        hangs |= {"before": before, "after": after}
        hang(CLOCK_SECONDS)
        await storage._measure_clock(Hanging())
        assert storage.now() == pytest.approx(there)
    # A clock that is set is noticed all the same, as well as can be told.
    here += 100.0
    hangs |= {"before": 1.0, "after": 1.0}
    hang(CLOCK_SECONDS)
    await storage._measure_clock(Hanging())
    assert storage.now() == pytest.approx(there, abs=1.0)


async def read(storage: Storage) -> None:
    await storage.fetch("SELECT 1")


async def written(storage: Storage) -> None:
    async with storage.transaction() as transaction:
        await transaction.fetch("SELECT 1")


async def test_a_statement_gives_the_rows_that_it_returns(address: str) -> None:
    async with opened(address) as storage:
        async with storage.transaction() as transaction:
            assert await transaction.fetch(f"{INSERT} RETURNING id", "a", b"", 7) == [(1,)]
            assert await transaction.fetch("UPDATE things SET size = 8 WHERE size = ?", 7) == []
        assert await storage.fetch("SELECT size FROM things WHERE name = ?", "a") == [(8,)]


async def test_a_transaction_that_raises_is_undone(address: str) -> None:
    async with opened(address) as storage:

        async def write() -> None:
            async with storage.transaction() as transaction:
                await transaction.execute_many(INSERT, [("a", None, None)])
                raise LookupError

        with pytest.raises(LookupError):
            await write()
        assert await names(storage) == []
        async with storage.transaction() as transaction:
            await transaction.execute_many(INSERT, [("b", None, None)])
        assert await names(storage) == ["b"]


async def test_a_transaction_that_is_cancelled_is_undone(address: str) -> None:
    async with opened(address) as storage:
        written = asyncio.Event()

        async def write() -> None:
            async with storage.transaction() as transaction:
                await transaction.execute_many(INSERT, [("a", None, None)])
                written.set()
                await asyncio.Event().wait()

        writing = asyncio.create_task(write())
        await written.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        async with storage.transaction() as transaction:
            await transaction.execute_many(INSERT, [("b", None, None)])
        assert await names(storage) == ["b"]


@pytest.mark.parametrize("odd", ["a\x00b", "a\ud83db"])
async def test_what_no_text_may_hold_is_no_fault_of_the_storage(address: str, odd: str) -> None:
    async with opened(address) as storage:
        async with storage.transaction() as transaction:
            await transaction.fetch(INSERT, odd, b"", 1)
            await transaction.execute_many(INSERT, [(odd, b"", 1)])
            await transaction.insert("things", ("name", "content", "size"), [(odd, b"", 1)])
        assert await names(storage) == ["a\ufffdb"] * 3
        found = "SELECT id FROM things WHERE name = ? AND size = 2"
        assert await storage.fetch(found, odd) == []


@pytest.mark.parametrize("size", [1 << 63, -1 << 70, 10**4000])
async def test_a_number_beyond_64_bits_is_the_last_before_it(address: str, size: int) -> None:
    async with opened(address) as storage:
        assert await storage.fetch("SELECT id FROM things WHERE size = ?", size) == []
        async with storage.transaction() as transaction:
            await transaction.fetch(INSERT, "a", b"", size)
        last = (1 << 63) - 1 if size > 0 else -1 << 63
        assert await storage.fetch("SELECT size FROM things") == [(last,)]


async def test_a_wrong_statement_is_an_error_that_names_the_storage(address: str) -> None:
    async with opened(address) as storage:
        with pytest.raises(StorageError, match=r"can't be used: .*nothing"):
            await storage.fetch("SELECT * FROM nothing")
        with pytest.raises(StorageError, match=r"can't be used: .*nothing"):
            async with storage.transaction() as transaction:
                await transaction.fetch("SELECT * FROM nothing")


async def test_two_have_it_open_and_their_transactions_take_turns(address: str) -> None:
    async with opened(address) as one, opened(address) as other:

        async def add(storage: Storage) -> None:
            for _ in range(20):
                async with storage.transaction() as transaction:
                    await transaction.fetch(
                        "INSERT INTO things (name, size) SELECT 'n', COUNT(*) FROM things"
                    )

        await asyncio.gather(add(one), add(other))
        assert len(await names(one)) == 40


async def test_who_counts_before_it_adds_is_alone_with_what_it_names(address: str) -> None:
    async with opened(address) as one, opened(address) as other:

        async def add(storage: Storage, place: int) -> None:
            async with storage.transaction() as transaction:
                await transaction.alone("things of \udc80")
                ((there,),) = await transaction.fetch("SELECT COUNT(*) FROM things")
                await asyncio.sleep(0.01)
                if there < 3:
                    await transaction.fetch(INSERT, f"n{place}", b"", 1)

        await asyncio.gather(*(add((one, other)[place % 2], place) for place in range(8)))
        assert len(await names(one)) == 3


async def test_tables_are_brought_from_each_version_to_the_last(address: str) -> None:
    async with opened(address) as storage, storage.transaction() as transaction:
        await transaction.execute_many(INSERT, [("a", None, 1)])
    async with opened(address, things(FIRST, SECOND)) as storage:
        assert await storage.fetch("SELECT name, weight FROM things") == [("a", None)]
        with pytest.raises(StorageError, match=r"(?i)unique"):
            async with storage.transaction() as transaction:
                await transaction.execute_many(INSERT, [("a", None, 1)])
    # And nothing is done twice.
    async with opened(address, things(FIRST, SECOND)) as storage:
        assert await names(storage) == ["a"]


async def test_components_have_versions_of_their_own(address: str) -> None:
    other = Migrations("others", [("CREATE TABLE others (id {identity})",)])
    async with opened(address):
        pass
    async with opened(address, [other, *things(FIRST, SECOND)]) as storage:
        versions = await storage.fetch(
            "SELECT component, version FROM schema_versions ORDER BY component"
        )
        assert versions == [("others", 1), ("things", 2)]


async def test_what_a_newer_version_made_is_left_alone(address: str) -> None:
    async with opened(address, things(FIRST, SECOND)):
        pass
    with pytest.raises(StorageError, match=r"have version 2, and this software knows 1: a newer"):
        async with opened(address):
            pass


async def test_a_migration_that_fails_changes_nothing(address: str) -> None:
    async with opened(address):
        pass
    with pytest.raises(StorageError):
        async with opened(address, things(FIRST, (SECOND[0], "nonsense"))):
            pass
    async with opened(address, things(FIRST, SECOND)) as storage:
        assert await storage.fetch("SELECT weight FROM things") == []


async def test_who_starts_together_migrates_once(address: str) -> None:
    async def start() -> None:
        async with opened(address, things(FIRST, SECOND)):
            pass

    await asyncio.gather(*(start() for _ in range(4)))
    async with opened(address, things(FIRST, SECOND)) as storage:
        assert await names(storage) == []


@pytest.mark.parametrize("address", ["mysql://x", "operations.sqlite", ""])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(StorageError, match=r"sqlite:PATH or postgres://"):
        open_storage(address, [])


# SQLite -------------------------------------------------------------------------------------------


async def test_a_file_that_is_deleted_or_replaced_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "operations.sqlite"
    async with opened(f"sqlite:{path}") as storage:
        async with storage.transaction() as transaction:
            await transaction.execute_many(INSERT, [("a", None, None)])
        assert await names(storage) == ["a"]
        for each in path.parent.iterdir():
            each.unlink()
        async with storage.transaction() as transaction:
            await transaction.execute_many(INSERT, [("b", None, None)])
        assert await names(storage) == ["b"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM things").fetchall() == [("b",)]
    connection.close()


async def test_a_file_that_another_locks_is_an_error_and_then_used_again(tmp_path: Path) -> None:
    path = tmp_path / "operations.sqlite"
    storage = SQLiteStorage(str(path), things(), busy_seconds=0.05)
    await storage.start()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        async with storage.transaction():
            pass
    other.execute("ROLLBACK")
    other.close()
    async with storage.transaction() as transaction:
        await transaction.execute_many(INSERT, [("a", None, None)])
    assert await names(storage) == ["a"]
    await storage.stop()


async def test_a_path_where_no_file_can_be_is_an_error_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.write_text("in the way")
    storage = open_storage(f"sqlite:{folder}/operations.sqlite", things())
    for _ in range(2):
        with pytest.raises(StorageError, match=r"^sqlite:.*operations\.sqlite can't be used: "):
            await storage.start()
    folder.unlink()
    assert await names(storage) == []
    await storage.stop()


async def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "operations.sqlite"
    async with opened(f"sqlite:{path}"):
        assert os.stat(path).st_mode & 0o777 == 0o600


# PostgreSQL ---------------------------------------------------------------------------------------


def test_no_message_has_the_password() -> None:
    pytest.importorskip("asyncpg")
    storage = open_storage("postgresql://me:secret@127.0.0.1:1/d?x=1", things())
    assert storage.shown == "postgres://127.0.0.1:1/d"


async def test_a_server_that_is_away_is_an_error_until_it_is_back(
    postgres_server: PostgresServer,
) -> None:
    async with opened(postgres_server.address, []) as storage:
        postgres_server.stop()
        try:
            with pytest.raises(StorageError, match="can't be used"):
                async with storage.transaction() as transaction:
                    await transaction.fetch("SELECT 1")
            with pytest.raises(StorageError, match="can't be used"):
                async with opened(postgres_server.address, []):
                    pass
        finally:
            postgres_server.start()
        async with storage.transaction() as transaction:
            assert await transaction.fetch("SELECT 1") == [(1,)]
