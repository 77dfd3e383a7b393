"""What workers do to the files of vector stores, of which each is one worker's at a time.

Whoever works on a file writes its pieces in transactions that lock the file's row first: so one
that was taken for dead notices, and of a file that was taken out nothing more is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from routing.storage.storage import Transaction
from routing.vector_stores.chunking import TextChunk
from routing.vector_stores.entries.key_room import check_room
from routing.vector_stores.entries.removal import remove_chunks
from routing.vector_stores.entries.rows import ENTRY_COLUMNS, EntryRow
from routing.vector_stores.stores import StoreTable

if TYPE_CHECKING:
    from routing.vector_stores.candidates import Candidates, Vectors

_COLUMNS = ", ".join(ENTRY_COLUMNS)
_CHUNK_COLUMNS = ("store", "entry", "number", "begins", "text", "embedding")


class EntryLost(Exception):
    """A file is somebody else's work by now, or nobody's: it was taken out, or cancelled."""


class EntryWork:
    """What one worker does.

    Args:
        stores: whose files they are.
        candidates: where their pieces are.
        worker: who works here, for others to tell apart.
    """

    def __init__(self, stores: StoreTable, candidates: Candidates, worker: str = "") -> None:
        self._storage = stores.storage
        self._settings = stores.settings
        self._candidates = candidates
        self._now: Callable[[], float] = stores.now
        self._worker = worker or os.urandom(8).hex()

    async def claim(self, limit: int) -> list[EntryRow]:
        """Up to `limit` files that are this worker's from now on, the oldest first."""
        now = self._now()
        waiting = await self._storage.fetch(
            "SELECT entry FROM vector_store_files WHERE status = 'in_progress' AND free_from <= ?"
            " ORDER BY created, entry LIMIT ?",
            now,
            limit,
        )
        claimed = []
        for (entry,) in waiting:
            async with self._storage.transaction() as transaction:
                claimed += await transaction.fetch(
                    "UPDATE vector_store_files SET claimed_by = ?, free_from = ?,"
                    " attempts = attempts + 1 WHERE entry = ? AND status = 'in_progress'"
                    f" AND free_from <= ? RETURNING {_COLUMNS}",
                    self._worker,
                    self._until(),
                    entry,
                    now,
                )
        return [EntryRow(*row) for row in claimed]

    async def keep(self, entries: Sequence[int]) -> set[int]:
        """Say that this worker is alive; those of its files that are still its own."""
        if not entries:
            return set()
        marks = ", ".join("?" * len(entries))
        async with self._storage.transaction() as transaction:
            rows = await transaction.fetch(
                "UPDATE vector_store_files SET free_from = ? WHERE claimed_by = ?"
                f" AND status = 'in_progress' AND entry IN ({marks}) RETURNING entry",
                self._until(),
                self._worker,
                *entries,
            )
        return {entry for (entry,) in rows}

    async def model_of(self, entry: EntryRow) -> str:
        """The model that makes the vectors of a file's store.

        Raises:
            EntryLost: the store is gone.
        """
        rows = await self._storage.fetch(
            "SELECT model FROM vector_stores WHERE id = ?", entry.store
        )
        if not rows:
            raise EntryLost
        return str(rows[0][0])

    async def done_before(self, entry: EntryRow, chunks: Sequence[TextChunk]) -> int:
        """How many of `chunks` have been written by who worked on the file before; if those are
        others, they are removed."""
        rows = await self._storage.fetch(
            "SELECT number, begins, text FROM vector_store_chunks WHERE entry = ?"
            " ORDER BY number DESC LIMIT 1",
            entry.entry,
        )
        if not rows:
            return 0
        number, begins, text = rows[0]
        if number < len(chunks) and chunks[number] == TextChunk(begins, text):
            return int(number) + 1
        while await remove_chunks(self._storage, entry.entry):
            pass
        async with self._storage.transaction() as transaction:
            await self._lock(transaction, entry, "bytes = 0, chunks = 0")
        return 0

    async def write(
        self, entry: EntryRow, number: int, chunks: Sequence[TextChunk], vectors: Vectors
    ) -> None:
        """Write the pieces of a file from the one with this number on.

        Args:
            entry: the file.
            number: of the first.
            chunks: the pieces.
            vectors: of each, normalized.

        Raises:
            EntryLost: it is this worker's no more.
            KeyIsFull: there is no room.
        """
        size = vectors.nbytes + sum(len(each.text.encode()) for each in chunks)
        columns = self._candidates.columns(vectors)
        rows = [
            (entry.store, entry.entry, number + place, chunk.begins, chunk.text, column)
            for place, (chunk, column) in enumerate(zip(chunks, columns, strict=True))
        ]
        async with self._storage.transaction() as transaction:
            await transaction.alone(f"vector stores of {entry.owner}")
            # Who gets on does not try in vain.
            changes = f"bytes = bytes + {size}, chunks = chunks + {len(chunks)}, attempts = 1"
            await self._lock(transaction, entry, changes)
            await check_room(transaction, self._settings, entry.owner)
            await transaction.insert("vector_store_chunks", _CHUNK_COLUMNS, rows)

    async def attempts(self, entry: EntryRow) -> int:
        """How often a file was begun since any of it was written.

        Raises:
            EntryLost: it is there no more.
        """
        rows = await self._storage.fetch(
            "SELECT attempts FROM vector_store_files WHERE entry = ?", entry.entry
        )
        if not rows:
            raise EntryLost
        return int(rows[0][0])

    async def completed(self, entry: EntryRow) -> None:
        """All pieces of a file are written: it is found from now on.

        Raises:
            EntryLost: it is this worker's no more.
        """
        async with self._storage.transaction() as transaction:
            await self._lock(transaction, entry, "status = 'completed', claimed_by = NULL")

    async def failed(self, entry: EntryRow, code: str, message: str) -> None:
        """A file won't be found; its pieces are removed.

        Raises:
            EntryLost: it is this worker's no more.
        """
        async with self._storage.transaction() as transaction:
            await self._lock(
                transaction,
                entry,
                "status = 'failed', claimed_by = NULL, bytes = 0, chunks = 0, error_code = ?,"
                " error = ?",
                code,
                message,
            )
        while await remove_chunks(self._storage, entry.entry):
            pass

    async def release(self, entry: EntryRow, seconds: float, *, counts: bool) -> None:
        """Leave a file to whoever takes it, after so many seconds.

        Args:
            entry: the file.
            seconds: that nobody may.
            counts: whether it was tried in vain.
        """
        async with self._storage.transaction() as transaction:
            await transaction.fetch(
                "UPDATE vector_store_files SET claimed_by = NULL, free_from = ?,"
                " attempts = attempts - ? WHERE entry = ? AND claimed_by = ?",
                self._now() + seconds,
                0 if counts else 1,
                entry.entry,
                self._worker,
            )

    async def _lock(
        self, transaction: Transaction, entry: EntryRow, changes: str, *values: Any
    ) -> None:
        found = await transaction.fetch(
            f"UPDATE vector_store_files SET {changes} WHERE entry = ? AND claimed_by = ?"
            " AND status = 'in_progress' RETURNING entry",
            *values,
            entry.entry,
            self._worker,
        )
        if not found:
            raise EntryLost

    def _until(self) -> float:
        return self._now() + self._settings.lease_seconds
