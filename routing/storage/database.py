"""One SQLite file, and the one thread of this process that reads and writes it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from routing.storage.storage import small

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
        busy_seconds: how long to wait for another process's writing.
    """

    def __init__(self, path: str, busy_seconds: float = BUSY_SECONDS) -> None:
        self._path = Path(path).expanduser()
        self._busy_seconds = busy_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._places = asyncio.Semaphore(MAX_WAITING)
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    async def start(self) -> None:
        """Open the file; again, if it is open.

        Raises:
            OSError, sqlite3.Error: it can't be opened, or is no such file.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    async def stop(self) -> None:
        """Finish what was begun, and close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    async def step(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        """What `work` finds in the file's thread, in whatever transaction there is; what it raises
        is raised. Steps are taken in the order of the calls.

        A cancelled caller does not wait, but work that has begun is finished.
        """
        async with self._places:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    async def is_open(self) -> bool:
        """Whether the file is open, and still the one that is at its path."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: self._file is not None and self._file == _identity(self._path)
        )

    def _open(self) -> None:
        self._close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=self._busy_seconds, isolation_level=None)
        try:
            connection.create_function("unicode_small", 1, _small, deterministic=True)
            for pragma in _PRAGMAS:
                self._execute_alone(connection, pragma)
            # Nobody else on this machine needs to read what is said here.
            with suppress(PermissionError):
                self._path.chmod(0o600)
        except sqlite3.Error:
            connection.close()
            raise
        self._connection, self._file = connection, _identity(self._path)

    def _close(self) -> None:
        connection, self._connection, self._file = self._connection, None, None
        if connection is not None:
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        if self._connection is None:
            raise RuntimeError("the store is not open")
        return work(self._connection)

    def _execute_alone(self, connection: sqlite3.Connection, pragma: str) -> None:
        # Changing the journal does not wait for others that open the file at the same moment.
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.execute(pragma)
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _small(text: Any) -> Any:
    """SQLite's own `LOWER` knows the letters of ASCII alone."""
    return small(text) if isinstance(text, str) else text
