"""What takes effect once, though nobody hears that it has: rows of their own, and batches."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

from routing.storage.storage import Storage, StorageError, Transaction

UNSURE_SECONDS = 15.0
"""So long it is asked whether rows were kept of which nobody has heard that they were."""

FIRST_PAUSE_SECONDS = 0.05

FORGOTTEN_SECONDS = 30 * 86400.0
"""A writer that has written nothing for so long is gone."""


def table_of_writers(name: str) -> str:
    """The statement that makes the table in which writers note their last batch."""
    return (
        f"CREATE TABLE {name} (id TEXT PRIMARY KEY, batch BIGINT NOT NULL,"
        " time DOUBLE PRECISION NOT NULL)"
    )


async def kept_once(
    storage: Storage, is_there: tuple[str, str], keep: Callable[[Transaction], Awaitable[None]]
) -> None:
    """Keep rows under an id of their own, in one transaction.

    Where the answer to its COMMIT is lost, as when the database starts again, nobody knows whether
    they are kept. A client that was told they are not would ask again, as SDKs do by themselves,
    and all of it would be there twice. So it is seen whether they are, and done again if not.

    Args:
        storage: where.
        is_there: a statement that gives a row where they are kept, and the id that it asks for.
        keep: writes them.

    Raises:
        StorageError: they are not kept; or nobody could find out for too long.
        Exception: what `keep` raises.
    """
    written, late, pause = False, 0.0, FIRST_PAUSE_SECONDS
    while True:
        try:
            if written and await storage.fetch(*is_there):
                return
            async with storage.transaction() as transaction:
                await keep(transaction)
                written = True
            return
        except StorageError:
            # Where it was written before, the reason may be that it is being kept at this moment.
            if not written or 0.0 < late < time.monotonic():
                raise
            late = late or time.monotonic() + UNSURE_SECONDS
        await asyncio.sleep(pause)
        pause = min(2 * pause, 1.0)


class BatchWriter:
    """Who writes one batch after the other into a storage, and each until it is there.

    Where the answer to a COMMIT is lost, nobody knows whether the batch was kept, and it is written
    again: the storage has the number of the writer's last batch, from the same transaction.

    Args:
        table: made by `table_of_writers`.
        clock: seconds since 1970.
    """

    def __init__(self, table: str, clock: Callable[[], float] = time.time) -> None:
        self._table = table
        self._clock = clock
        self._id = ""
        self._number = 0

    def next_batch(self) -> int:
        """The number of a new batch, after the last one has been decided."""
        # Not before it is needed: a process that is forked later is another writer.
        self._id = self._id or os.urandom(12).hex()
        self._number += 1
        return self._number

    async def is_new(self, transaction: Transaction, number: int) -> bool:
        """Note in `transaction` that a batch is in it; False where it has been kept before."""
        now = self._clock()
        if number == 1:
            await transaction.fetch(
                f"DELETE FROM {self._table} WHERE time < ?", now - FORGOTTEN_SECONDS
            )
        # One who writes the same on a connection that seems lost holds this up until it is decided.
        noted = await transaction.fetch(
            f"INSERT INTO {self._table} (id, batch, time) VALUES (?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, time = excluded.time"
            f" WHERE {self._table}.batch < excluded.batch RETURNING batch",
            self._id,
            number,
            now,
        )
        return bool(noted)
