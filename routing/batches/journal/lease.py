"""A worker's lease: as long as it is renewed, what the worker has noted as its own is.

Each transaction that notes anything takes the lease first. So a worker that was taken for dead
notices, and what it still finds out counts for nothing.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from routing.storage.storage import Storage, Transaction


class LeaseLost(Exception):
    """The worker was taken for dead, and others go on with what it did."""


class WorkerLease:
    """The lease of the one worker of this process.

    Args:
        storage: where it is.
        seconds: for how long a worker is taken to be alive without a word.
        clock: the time in seconds since 1970.
        only: the id of the one batch that it works on; empty for all.

    Attributes:
        worker: the id of who has it; empty for nobody.
    """

    def __init__(
        self, storage: Storage, seconds: float, clock: Callable[[], float], only: str
    ) -> None:
        self._storage = storage
        self._seconds = seconds
        self._clock = clock
        self._only = only
        self.worker = ""

    async def take(self) -> None:
        """Begin to work, under an id of its own."""
        self.worker = os.urandom(8).hex()
        async with self._storage.transaction() as transaction:
            await transaction.insert(
                "batch_workers",
                ("id", "only_job", "alive_until"),
                [(self.worker, self._only, self._until())],
            )

    async def renew(self) -> None:
        """Say that this worker is alive.

        Raises:
            LeaseLost: it was taken for dead.
        """
        async with self.owning():
            pass

    async def leave(self) -> None:
        """Work no more: what is still asked is for others to decide on, at once."""
        async with self._storage.transaction() as transaction:
            await transaction.fetch(
                "UPDATE batch_workers SET alive_until = 0 WHERE id = ?", self.worker
            )

    def forget(self) -> None:
        """It is lost: the next that is taken is another's."""
        self.worker = ""

    async def dead(self) -> list[str]:
        """The workers of the same kind that said nothing for too long."""
        rows = await self._storage.fetch(
            "SELECT id FROM batch_workers WHERE alive_until < ? AND only_job = ?",
            self._clock(),
            self._only,
        )
        return [worker for (worker,) in rows]

    async def end(self, transaction: Transaction, worker: str, *, is_all: bool) -> bool:
        """Take the lease of a dead worker from it; False where it was not dead after all, or
        somebody else was sooner.

        Args:
            transaction: that of what becomes of its lines.
            worker: that.
            is_all: whether it is forgotten; else it stays dead, and can't come back either.
        """
        ends = "DELETE FROM batch_workers" if is_all else "UPDATE batch_workers SET alive_until = 0"
        found = await transaction.fetch(
            f"{ends} WHERE id = ? AND alive_until < ? RETURNING id", worker, self._clock()
        )
        return bool(found)

    @asynccontextmanager
    async def owning(self) -> AsyncIterator[Transaction]:
        """A transaction of this worker's, which renews the lease.

        Raises (on entering):
            LeaseLost: it was taken for dead.
        """
        async with self._storage.transaction() as transaction:
            found = await transaction.fetch(
                "UPDATE batch_workers SET alive_until = ? WHERE id = ? AND alive_until > 0"
                " RETURNING id",
                self._until(),
                self.worker,
            )
            if not found:
                raise LeaseLost
            yield transaction

    def _until(self) -> float:
        return self._clock() + self._seconds
