"""Batches that take effect once, though nobody hears that they have."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from routing.storage.storage import Transaction

FORGOTTEN_SECONDS = 30 * 86400.0
"""A writer that has written nothing for so long is gone."""


def table_of_writers(name: str) -> str:
    """The statement that makes the table in which writers note their last batch."""
    return (
        f"CREATE TABLE {name} (id TEXT PRIMARY KEY, batch BIGINT NOT NULL,"
        " time DOUBLE PRECISION NOT NULL)"
    )


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
