"""Storage in one SQLite file: a thread that writes, and one that reads beside it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from typing import Any

from routing.storage.database import BUSY_SECONDS, Database, Found
from routing.storage.storage import (
    Migrations,
    Row,
    RowRefused,
    StorageError,
    Transaction,
    insertion,
    migrate,
    storable,
    surely,
)

INSERTED_TOGETHER = (128, 16, 1)
"""So many rows are inserted by one statement; SQLite allows 32,766 values in one."""

_REFUSED = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)

_WORDS = {"identity": "INTEGER PRIMARY KEY AUTOINCREMENT", "blob": "BLOB", "vector": "BLOB"}
_WORDS |= {"only_postgres": "-- ", "only_sqlite": ""}


class SQLiteStorage:
    """The file at `path`, from `start` to `stop`; see `Storage`.

    A file that is deleted or replaced meanwhile is noticed, and another begun at its path.
    """

    has_partitions = False

    def __init__(
        self, path: str, migrations: Sequence[Migrations], busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self.shown = f"sqlite:{path}"
        self._migrations = migrations
        self._writer = Database(path, busy_seconds=busy_seconds)
        self._reader = Database(path, busy_seconds=busy_seconds)
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Open it, and bring its tables up to date."""
        async with self.transaction():
            pass

    async def stop(self) -> None:
        """Finish what was begun, and close it."""
        async with self._turn:
            await self._reader.stop()
            await self._writer.stop()

    async def fetch(self, statement: str, *values: Any) -> list[Row]:
        """The rows of one `SELECT`."""
        values = storable(values)
        if not await self._reader.is_open():
            await self.start()
            with self._explained():
                await self._reader.start()
        with self._explained():
            return await self._reader.step(
                lambda connection: connection.execute(statement, values).fetchall()
            )

    def now(self) -> float:
        """See `Storage`: all who use it are on this machine."""
        return time.time()

    def lowered(self, column: str, text: str) -> str:
        """See `Storage`. What knows all letters is called for each row, from Python."""
        return f"LOWER({column})" if text.isascii() else f"unicode_small({column})"

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction, None]:
        """A transaction that may write."""
        async with self._turn:
            if not await self._writer.is_open():
                with self._explained():
                    await self._writer.start()
                async with self._begun() as transaction:
                    await migrate(transaction, self._migrations, _WORDS)
            async with self._begun() as transaction:
                yield transaction

    @asynccontextmanager
    async def _begun(self) -> AsyncGenerator[Transaction, None]:
        # Steps are taken in order: even where nobody waits for an end, it comes before what
        # follows.
        with self._explained():
            try:
                await self._writer.step(_begin)
                yield _SQLiteTransaction(self._writer)
                await self._writer.step(_commit)
            except BaseException:
                await surely(asyncio.ensure_future(self._writer.step(_roll_back)))
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except _REFUSED as error:
            raise RowRefused(f"{self.shown} can't be used: {error}") from error
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"{self.shown} can't be used: {error}") from error
        except StorageError as error:
            if str(error).startswith(self.shown):
                raise
            raise StorageError(f"{self.shown} can't be used: {error}") from None


class _SQLiteTransaction:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def alone(self, name: str) -> None:
        # One at a time writes in any case.
        pass

    async def fetch(self, statement: str, *values: Any) -> list[Row]:
        values = storable(values)
        return await self._step(lambda connection: connection.execute(statement, values).fetchall())

    async def execute_many(self, statement: str, rows: Sequence[Row]) -> None:
        rows = [*map(storable, rows)]
        await self._step(lambda connection: connection.executemany(statement, rows))

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if rows:
            rows = [*map(storable, rows)]
            await self._step(lambda connection: _insert(connection, table, columns, rows))

    async def _step(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        return await self._database.step(work)


def _insert(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Row]
) -> None:
    # Many rows a statement: around each the interpreter's lock is given up and waited for again.
    begin = 0
    for size in INSERTED_TOGETHER:
        statement = insertion(table, columns, size)
        while begin + size <= len(rows):
            connection.execute(statement, tuple(chain.from_iterable(rows[begin : begin + size])))
            begin += size


def _begin(connection: sqlite3.Connection) -> None:
    # IMMEDIATE: one that began as a reader could not become a writer while another process writes.
    connection.execute("BEGIN IMMEDIATE")


def _commit(connection: sqlite3.Connection) -> None:
    connection.execute("COMMIT")


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
