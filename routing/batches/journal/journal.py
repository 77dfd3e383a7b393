"""The journal of batches, in the storage: which line has come how far, and whose it is meanwhile.

A line is noted before it is asked and when it was answered, many of them in one transaction. Each
that has to do with lines locks first the worker that writes, then the batch: so a worker that was
taken for dead notices, and what it still finds out counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from routing.batches.file_rows import StoredFile, lock_files, note
from routing.batches.files import file_not_found
from routing.batches.journal.lease import WorkerLease
from routing.batches.journal.rows import (
    ASKED,
    ENDED,
    HANDED,
    JOB_COLUMNS,
    OPEN,
    PENDING,
    TO_HAND,
    DoneLine,
    Job,
    LineRow,
)
from routing.batches.journal.transactions import lock_job, note_results
from routing.storage.once import kept_once
from routing.storage.pages import PageStart, page_of
from routing.storage.storage import Storage, Transaction

ROWS_TOGETHER = 500
"""So many rows are written or removed in one transaction, so that others get their turn."""


_COLUMNS = ", ".join(JOB_COLUMNS)


class Journal:
    """The journal.

    Args:
        storage: where it is.
        lease_seconds: for how long a worker is taken to be alive without a word.
        clock: the time in seconds since 1970; that of the storage if none is given.
        only: the id of the one batch to work on, which a command has begun; empty for all others.

    Attributes:
        lease: of who writes here.
    """

    def __init__(
        self,
        storage: Storage,
        lease_seconds: float,
        clock: Callable[[], float] | None = None,
        only: str = "",
    ) -> None:
        self._storage = storage
        self._clock = clock = clock or storage.now
        self._only = only
        self.lease = WorkerLease(storage, lease_seconds, clock, only)

    # Batches --------------------------------------------------------------------------------------

    async def add(self, job: Job, *, is_uploaded: bool = False) -> None:
        """A new batch.

        Args:
            job: it.
            is_uploaded: whether its input is one of the files here, which can't be deleted then.

        Raises:
            APIError: 404, that was deleted meanwhile: the batch would wait for it in vain.
        """

        async def keep(transaction: Transaction) -> None:
            # Who deletes it at the same time finds the batch, or has it first.
            if is_uploaded and not await lock_files(transaction, "id = ?", job.input_file):
                raise file_not_found(job.input_file, "input_file_id")
            row = tuple(getattr(job, name) for name in JOB_COLUMNS)
            await transaction.insert("batches", JOB_COLUMNS, [row])

        await kept_once(self._storage, ("SELECT 1 FROM batches WHERE id = ?", job.id), keep)

    async def get(self, job_id: str) -> Job | None:
        """A batch, whoever it belongs to."""
        rows = await self._storage.fetch(f"SELECT {_COLUMNS} FROM batches WHERE id = ?", job_id)
        return Job(*rows[0]) if rows else None

    async def page(
        self,
        owner: str | None,
        api: str | None,
        *,
        limit: int,
        place: PageStart | None = None,
    ) -> tuple[list[Job], bool]:
        """Up to `limit` batches, the newest first, and whether there are more that way."""
        conditions, values = ["TRUE"], []
        for column, value in (("owner", owner), ("api", api)):
            if value is not None:
                conditions.append(f"{column} = ?")
                values.append(value)
        rows, more = await page_of(
            self._storage,
            f"SELECT {_COLUMNS} FROM batches WHERE {' AND '.join(conditions)}",
            values,
            limit=limit,
            ascending=False,
            place=place,
        )
        return [Job(*row) for row in rows], more

    async def open(self) -> list[Job]:
        """The batches to work on, the oldest first."""
        condition, values = ("id = ?", (self._only,)) if self._only else ("api <> 'command'", ())
        rows = await self._storage.fetch(
            f"SELECT {_COLUMNS} FROM batches WHERE status IN {OPEN} AND {condition}"
            " ORDER BY created, id",
            *values,
        )
        return [Job(*row) for row in rows]

    async def break_off(self, job_id: str, reason: str) -> bool:
        """End a batch before its lines are done; False where it has ended, or is about to."""
        async with self._storage.transaction() as transaction:
            found = await transaction.fetch(
                "UPDATE batches SET status = 'cancelling', reason = ?, cancelling = ?"
                " WHERE id = ? AND status IN ('validating', 'in_progress') RETURNING id",
                reason,
                self._clock(),
                job_id,
            )
        return bool(found)

    async def delete(self, job_id: str) -> bool:
        """Forget a batch; False where it has not ended, or is not there."""
        async with self._storage.transaction() as transaction:
            found = await transaction.fetch(
                f"DELETE FROM batches WHERE id = ? AND status IN {ENDED} RETURNING id", job_id
            )
        return bool(found)

    # Workers --------------------------------------------------------------------------------------

    async def asked_by(self, worker: str) -> list[tuple[str, bool, LineRow]]:
        """The lines that a worker has asked, each with its batch, and whether it is free of
        charge."""
        rows = await self._storage.fetch(
            "SELECT batch, free, number, begins, size, model FROM batch_lines WHERE worker = ?",
            worker,
        )
        return [(batch, free == 1, LineRow(*line)) for batch, free, *line in rows]

    async def take_over(
        self,
        worker: str,
        again: Mapping[str, Sequence[int]],
        written: Mapping[str, Sequence[DoneLine]],
        *,
        is_all: bool = True,
    ) -> bool:
        """Free what a dead worker had.

        Args:
            worker: that.
            again: its lines that may be asked again, by batch.
            written: the results of the others.
            is_all: whether there are no further ones; else it stays among the dead, for them.

        Returns:
            Whether it was not alive after all, nor somebody else sooner.
        """
        async with self._storage.transaction() as transaction:
            if not await self.lease.end(transaction, worker, is_all=is_all):
                return False
            for table, column in (("batches", "claimed_by"), ("batch_orders", "worker")):
                await transaction.fetch(
                    f"UPDATE {table} SET {column} = NULL WHERE {column} = ?", worker
                )
            for job_id in sorted({*again, *written}):
                await lock_job(transaction, job_id)
                await self._write(
                    transaction, job_id, worker, written.get(job_id, ()), again.get(job_id, ())
                )
        return True

    # Lines ----------------------------------------------------------------------------------------

    async def claim_job(self, job_id: str, status: str) -> bool:
        """Be the one who checks a batch, or puts its output together, and may have begun to; False
        if another is."""
        async with self.lease.owning() as transaction:
            found = await transaction.fetch(
                "UPDATE batches SET claimed_by = ? WHERE id = ? AND status = ?"
                " AND (claimed_by IS NULL OR claimed_by = ?) RETURNING id",
                self.lease.worker,
                job_id,
                status,
                self.lease.worker,
            )
        return bool(found)

    async def add_lines(
        self,
        job_id: str,
        lines: Sequence[LineRow],
        *,
        first: bool,
        is_handed: Callable[[str], bool] = lambda model: False,
    ) -> bool:
        """The next lines of a batch that is being checked.

        Args:
            job_id: its id.
            lines: at most `ROWS_TOGETHER`.
            first: whether none came before: what another has left of its lines is removed.
            is_handed: whether lines of a model go to its vendor's own batches.

        Returns:
            Whether the batch is still to be checked.
        """
        handed = {model for model in {line.model for line in lines} if is_handed(model)}
        async with self.lease.owning() as transaction:
            if await lock_job(transaction, job_id) != "validating":
                return False
            if first:
                await transaction.fetch("DELETE FROM batch_lines WHERE batch = ?", job_id)
            await transaction.insert(
                "batch_lines",
                ("batch", "number", "begins", "size", "model", "state"),
                [
                    (
                        job_id,
                        *msgspec.structs.astuple(line),
                        TO_HAND if line.model in handed else PENDING,
                    )
                    for line in lines
                ],
            )
        return True

    async def hand_back(self, job_id: str, model: str) -> None:
        """Lines of a model that were to be handed to a vendor are asked by requests."""
        async with self.lease.owning() as transaction:
            await lock_job(transaction, job_id)
            await transaction.fetch(
                "UPDATE batch_lines SET state = ? WHERE batch = ? AND state = ? AND model = ?",
                PENDING,
                job_id,
                TO_HAND,
                model,
            )

    async def checked(
        self, job_id: str, total: int, model: str | None, problems: Sequence[Mapping[str, Any]]
    ) -> None:
        """A batch's input has been looked at.

        Args:
            job_id: its id.
            total: how many lines it has.
            model: that all of them ask, if it is one.
            problems: for which it is refused.
        """
        status = "failed" if problems else "in_progress"
        column = "ended" if problems else "begun"
        errors = msgspec.json.encode({"object": "list", "data": problems}) if problems else None
        async with self.lease.owning() as transaction:
            await transaction.fetch(
                f"UPDATE batches SET status = ?, total = ?, model = ?, errors = ?, {column} = ?,"
                " claimed_by = NULL WHERE id = ? AND status = 'validating' AND claimed_by = ?",
                status,
                0 if problems else total,
                model,
                errors,
                self._clock(),
                job_id,
                self.lease.worker,
            )
            # One that was cancelled meanwhile is nobody's now.
            await transaction.fetch(
                "UPDATE batches SET claimed_by = NULL, total = ? WHERE id = ? AND claimed_by = ?",
                total,
                job_id,
                self.lease.worker,
            )

    async def write(
        self,
        job_id: str,
        written: Sequence[DoneLine],
        again: Sequence[int],
        wanted: int,
        is_free: Callable[[str], bool] = lambda model: False,
    ) -> tuple[str, list[LineRow]]:
        """Note what became of lines, and that others are asked from now on; all at once.

        Args:
            job_id: of the batch.
            written: lines that have their result.
            again: lines that were not taken, and are to be asked later.
            wanted: how many more there is room for.
            is_free: whether what a model says costs nothing, so that a line may be asked again if
                nobody knows what became of it.

        Returns:
            The state of the batch, and the lines that are this worker's to ask.

        Raises:
            LeaseLost: this worker was taken for dead.
        """
        claimed: list[LineRow] = []
        async with self.lease.owning() as transaction:
            status = await lock_job(transaction, job_id)
            await self._write(transaction, job_id, self.lease.worker, written, again)
            if wanted and status == "in_progress":
                rows = await transaction.fetch(
                    "UPDATE batch_lines SET state = 1, worker = ? WHERE batch = ? AND number IN"
                    " (SELECT number FROM batch_lines WHERE batch = ? AND state = 0"
                    " ORDER BY number LIMIT ?) RETURNING number, begins, size, model",
                    self.lease.worker,
                    job_id,
                    job_id,
                    wanted,
                )
                claimed = sorted((LineRow(*row) for row in rows), key=lambda line: line.number)
                free = {model for model in {line.model for line in claimed} if is_free(model)}
                if free:
                    await self._mark_free(transaction, job_id, claimed, free)
        return status, claimed

    async def _mark_free(
        self, transaction: Transaction, job_id: str, lines: Sequence[LineRow], free: set[str]
    ) -> None:
        rows = [(job_id, line.number) for line in lines if line.model in free]
        await transaction.execute_many(
            "UPDATE batch_lines SET free = 1 WHERE batch = ? AND number = ?", rows
        )

    async def _write(
        self,
        transaction: Transaction,
        job_id: str,
        worker: str,
        written: Sequence[DoneLine],
        again: Sequence[int],
    ) -> None:
        if not (written or again):
            return
        rows = await transaction.fetch(
            "SELECT number FROM batch_lines WHERE worker = ? AND batch = ?", worker, job_id
        )
        own = {number for (number,) in rows}
        kept = [line for line in written if line.number in own]
        if kept:
            await note_results(transaction, job_id, kept)
        back = [(job_id, number) for number in again if number in own]
        if back:
            await transaction.execute_many(
                "UPDATE batch_lines SET state = 0, worker = NULL, free = NULL"
                " WHERE batch = ? AND number = ?",
                back,
            )

    # The end --------------------------------------------------------------------------------------

    async def begin_end(self, job_id: str) -> bool:
        """No line of a batch is asked or, unless it was broken off, to be asked: its output may be
        put together. False where that is not so yet, or another does it."""
        async with self.lease.owning() as transaction:
            status = await lock_job(transaction, job_id)
            if status == "in_progress":
                states = f"({PENDING}, {ASKED}, {TO_HAND}, {HANDED})"
            elif status in ("cancelling", "finalizing"):
                states = f"({ASKED}, {HANDED})"
            else:
                return False
            if await transaction.fetch(
                f"SELECT 1 FROM batch_lines WHERE batch = ? AND state IN {states} LIMIT 1", job_id
            ):
                return False
            found = await transaction.fetch(
                "UPDATE batches SET claimed_by = ?, finalizing = coalesce(finalizing, ?), status ="
                " CASE status WHEN 'in_progress' THEN 'finalizing' ELSE status END"
                " WHERE id = ? AND (claimed_by IS NULL OR claimed_by = ?) RETURNING id",
                self.lease.worker,
                self._clock(),
                job_id,
                self.lease.worker,
            )
        return bool(found)

    async def results(
        self, job_id: str, after: int, limit: int
    ) -> list[tuple[LineRow, bool, bytes | None]]:
        """Up to `limit` lines that come after the one with a number, each with its result, if it
        has one, and whether that is good."""
        rows = await self._storage.fetch(
            "SELECT l.number, l.begins, l.size, l.model, r.good, r.result FROM batch_lines l"
            " LEFT JOIN batch_results r ON r.batch = l.batch AND r.number = l.number"
            " WHERE l.batch = ? AND l.number > ? ORDER BY l.number LIMIT ?",
            job_id,
            after,
            limit,
        )
        return [
            (LineRow(*row[:4]), bool(row[4]), None if row[5] is None else bytes(row[5]))
            for row in rows
        ]

    async def end(
        self,
        job: Job,
        status: str,
        files: Sequence[StoredFile | None],
        undone: int,
        errors: bytes | None,
    ) -> bool:
        """A batch has ended.

        Args:
            job: it.
            status: how.
            files: its output, and its errors; each None where there are none.
            undone: lines that were not answered.
            errors: JSON, why it failed; None where it has not.

        Returns:
            Whether it was this worker's to end.
        """
        output, error = files
        async with self.lease.owning() as transaction:
            found = await transaction.fetch(
                "UPDATE batches SET status = ?, ended = ?, output_file = ?, error_file = ?,"
                " undone = ?, errors = ?, claimed_by = NULL WHERE id = ? AND claimed_by = ?"
                " RETURNING id",
                status,
                self._clock(),
                output.id if output is not None else None,
                error.id if error is not None else None,
                undone,
                errors,
                job.id,
                self.lease.worker,
            )
            if found and job.api != "command":
                for file in files:
                    if file is not None:
                        await note(transaction, file)
        return bool(found)

    async def leftovers(self) -> list[str]:
        """Batches that have ended, or are gone, of which there are lines all the same."""
        rows = await self._storage.fetch(
            "SELECT DISTINCT batch FROM batch_lines WHERE NOT EXISTS (SELECT 1 FROM batches"
            f" WHERE id = batch AND status IN {OPEN})"
        )
        return [job_id for (job_id,) in rows]

    async def tidy(self, job_id: str) -> bool:
        """Remove some of what a batch that has ended needs no more; False where nothing is left."""
        async with self._storage.transaction() as transaction:
            await transaction.fetch("DELETE FROM batch_orders WHERE batch = ?", job_id)
            for table in ("batch_results", "batch_lines"):
                gone = await transaction.fetch(
                    f"DELETE FROM {table} WHERE batch = ? AND number IN (SELECT number FROM {table}"
                    " WHERE batch = ? ORDER BY number LIMIT ?) RETURNING number",
                    job_id,
                    job_id,
                    ROWS_TOGETHER,
                )
                if gone:
                    return True
        return False
