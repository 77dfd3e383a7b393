"""One SQLite file, and the one thread of this process that reads and writes it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

MAX_WAITING = 256
"""So many pieces of work may be in the thread's queue; who has more waits."""

BUSY_SECONDS = 10.0
"""How long another process's writing may hold up ours."""

_PRAGMAS = (
    # Before the first table, or it has no effect: what is deleted leaves the file smaller.
    "PRAGMA auto_vacuum = FULL",
    # Readers and the one writer do not wait for each other, and a killed process loses nothing.
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA foreign_keys = ON",
)


class Database:
    """The file, from `start` to `stop`. Several processes may have it open.

    Args:
        path: where it is; made if there is none.
        schema: statements that make what is missing in it.
    """

    def __init__(self, path: str, schema: str) -> None:
        self._path = Path(path).expanduser()
        self._schema = schema
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._places = asyncio.Semaphore(MAX_WAITING)
        self._connection: sqlite3.Connection | None = None

    async def start(self) -> None:
        """Open the file.

        Raises:
            OSError, sqlite3.Error: it can't be opened, or is no such file.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    async def stop(self) -> None:
        """Finish what was begun, and close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    async def run(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        """What `work` finds, as one transaction in the file's thread; what it raises is raised.

        A cancelled caller does not wait, but work that has begun is finished.
        """
        async with self._places:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            for pragma in _PRAGMAS:
                _execute_alone(connection, pragma)
            with _transaction(connection):
                for statement in _statements(self._schema):
                    connection.execute(statement)
        except sqlite3.Error:
            connection.close()
            raise
        # Nobody else on this machine needs to read what is said here.
        self._path.chmod(0o600)
        self._connection = connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        if self._connection is None:
            raise RuntimeError("the store is not open")
        with _transaction(self._connection):
            return work(self._connection)


def _execute_alone(connection: sqlite3.Connection, pragma: str) -> None:
    # Changing the journal does not wait for others that open the file at the same moment.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute(pragma)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    # IMMEDIATE: one that began as a reader could not become a writer while another process writes.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _statements(schema: str) -> Iterator[str]:
    """The statements of `schema`, in which those of a trigger stand inside one."""
    statement = ""
    for line in schema.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
