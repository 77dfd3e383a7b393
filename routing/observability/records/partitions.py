"""Tables of records in PostgreSQL: a partition for each day, dropped whole when it is old.

To delete a million rows a day one by one would leave as many dead ones behind, and have the
database busy with them. SQLite has no partitions; there rows are deleted, a few at a time.

What has no day of its own is in the partition `TABLE_rest`: what comes with a time that nobody
expected. What was there before the table had partitions is in `TABLE_until_DAY`.
"""

from __future__ import annotations

import logging
import re

from routing.storage.storage import RowRefused, Storage, Transaction

log = logging.getLogger(__name__)

DAY_SECONDS = 86400

DAYS_AHEAD = 2
"""So many days have their partition before they begin."""

LOCK = 0x7265636F7264
"""The number of the lock that one process at a time has while it makes or drops some."""

LOCK_SECONDS = 2
"""So long one waits for those who read or write; else it is for the next time."""


class Partitions:
    """Those of one table.

    Args:
        storage: which has partitions.
        table: the table's name.
    """

    def __init__(self, storage: Storage, table: str) -> None:
        self._storage = storage
        self._table = table
        self._name = re.compile(rf"{table}_(day|until)_(\d+)")

    async def make(self, now: float) -> None:
        """Make those of today and of the next days.

        Raises:
            StorageError: they can't be made now.
        """
        today = int(now // DAY_SECONDS)
        there = await self._there()
        for day in range(today, today + DAYS_AHEAD + 1):
            name = f"{self._table}_day_{day}"
            # What is there of that day already, in `_until_` or `_rest`, stays where it is.
            if name in there or any(day < until for until in self._untils(there)):
                continue
            begin = day * DAY_SECONDS
            try:
                async with self._storage.transaction() as transaction:
                    await _alone(transaction)
                    await transaction.fetch(
                        f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {self._table}"
                        f" FOR VALUES FROM ({begin}) TO ({begin + DAY_SECONDS})"
                    )
            except RowRefused as error:
                log.debug("records of a day stay with the rest: %s", error)

    async def drop(self, before: float) -> int:
        """Drop those in which nothing is younger; how many there were.

        Raises:
            StorageError: they can't be dropped now.
        """
        dropped = 0
        for name in await self._there():
            match = self._name.fullmatch(name)
            if match is None:
                continue
            ends = (int(match[2]) + (match[1] == "day")) * DAY_SECONDS
            if ends <= before:
                async with self._storage.transaction() as transaction:
                    await _alone(transaction)
                    await transaction.fetch(f"DROP TABLE IF EXISTS {name}")
                dropped += 1
        return dropped

    async def with_rows(self) -> list[str]:
        """The partitions of which single rows have to be deleted.

        Raises:
            StorageError: it can't be read.
        """
        days = f"{self._table}_day_"
        return [name for name in await self._there() if not name.startswith(days)]

    async def _there(self) -> list[str]:
        rows = await self._storage.fetch(
            "SELECT child.relname::text FROM pg_inherits"
            " JOIN pg_class child ON child.oid = inhrelid"
            " WHERE inhparent = to_regclass(?::text) ORDER BY 1",
            self._table,
        )
        return [name for (name,) in rows]

    def _untils(self, there: list[str]) -> list[int]:
        matches = [match for name in there if (match := self._name.fullmatch(name)) is not None]
        return [int(match[2]) for match in matches if match[1] == "until"]


async def _alone(transaction: Transaction) -> None:
    await transaction.fetch(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
    await transaction.fetch(f"SELECT pg_advisory_xact_lock({LOCK})")
