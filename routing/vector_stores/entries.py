"""The files of vector stores: how far each has come, whose work it is meanwhile, and its pieces.

Whoever works on a file writes its pieces in transactions that lock the file's row first: so one
that was taken for dead notices, and of a file that was taken out nothing more is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from llama_compat.errors import APIError
from llama_compat.hosted.filters import Attributes
from routing.storage.storage import Transaction
from routing.vector_stores.chunking import TextChunk
from routing.vector_stores.stores import (
    FileCounts,
    StoreTable,
    page_of,
    store_has_expired,
    store_not_found,
    stores_unavailable,
)

if TYPE_CHECKING:
    from routing.vector_stores.candidates import Candidates, Vectors

GONE_TOGETHER = 500
"""So many pieces are removed in one transaction, so that others get their turn."""


class AddedFile(Struct, frozen=True):
    """A file that is put into a store, and into how large pieces it is cut."""

    file: str
    filename: str
    attributes: Attributes
    chunk_tokens: int
    overlap_tokens: int


class EntryRow(Struct, frozen=True):
    """A file in a store: columns of the table, in their order.

    Attributes:
        entry: its number; another one each time a file is put into a store.
        attributes: JSON.
        batch: the file batch that it belongs to.
        bytes, chunks: what its pieces come to.
        attempts: how often it was begun since any of it was written.
    """

    entry: int
    store: str
    file: str
    owner: str
    filename: str
    status: str
    error_code: str | None
    error: str | None
    attributes: bytes
    chunk_tokens: int
    overlap_tokens: int
    created: float
    batch: str | None
    bytes: int
    chunks: int
    attempts: int

    def shown(self) -> dict[str, Any]:
        """As OpenAI's API shows it."""
        failure = None
        if self.error_code is not None:
            failure = {"code": self.error_code, "message": self.error}
        return {
            "id": self.file,
            "object": "vector_store.file",
            "usage_bytes": self.bytes,
            "created_at": int(self.created),
            "vector_store_id": self.store,
            "status": self.status,
            "last_error": failure,
            "chunking_strategy": {
                "type": "static",
                "static": {
                    "max_chunk_size_tokens": self.chunk_tokens,
                    "chunk_overlap_tokens": self.overlap_tokens,
                },
            },
            "attributes": msgspec.json.decode(self.attributes),
        }


class FileBatchRow(Struct, frozen=True):
    """Files that were put into a store together: the columns of the table, in their order."""

    id: str
    store: str
    owner: str
    created: float
    cancelled: int

    def shown(self, counts: FileCounts) -> dict[str, Any]:
        """As OpenAI's API shows it."""
        by_status = counts.by_status
        if by_status.get("in_progress"):
            status = "in_progress"
        elif self.cancelled:
            status = "cancelled"
        else:
            only_failed = bool(by_status) and set(by_status) == {"failed"}
            status = "failed" if only_failed else "completed"
        return {
            "id": self.id,
            "object": "vector_store.files_batch",
            "created_at": int(self.created),
            "vector_store_id": self.store,
            "status": status,
            "file_counts": counts.shown(),
        }


class EntryLost(Exception):
    """A file is somebody else's work by now, or nobody's: it was taken out, or cancelled."""


class KeyIsFull(Exception):
    """The stores of a key would come to more than they may; the message says which limit."""


ENTRY_COLUMNS = EntryRow.__struct_fields__
_COLUMNS = ", ".join(ENTRY_COLUMNS)
_BATCH_COLUMNS = FileBatchRow.__struct_fields__


class Entries:
    """The files of all stores.

    Args:
        stores: those.
        candidates: where their pieces are.
        worker: who works here, for others to tell apart.
    """

    def __init__(self, stores: StoreTable, candidates: Candidates, worker: str = "") -> None:
        self._stores = stores
        self._storage = stores.storage
        self._settings = stores.settings
        self._candidates = candidates
        self._now: Callable[[], float] = stores.now
        self._worker = worker or os.urandom(8).hex()

    # What clients see -----------------------------------------------------------------------------

    async def add(
        self, owner: str, store_id: str, added: Sequence[AddedFile], *, as_batch: bool = False
    ) -> FileBatchRow | None:
        """Put files into a store; one that is in it already is read anew.

        Args:
            owner: the id of a key.
            store_id: its store.
            added: the files, each once.
            as_batch: whether they are seen to together.

        Returns:
            The batch; None where they are none.

        Raises:
            APIError: 404, the owner has no such store; 400, it has expired; 413, there is no room;
                503.
        """
        now, batch = self._now(), None
        if as_batch:
            batch = FileBatchRow(f"vsfb_{os.urandom(16).hex()}", store_id, owner, now, 0)
        with stores_unavailable():
            async with self._storage.transaction() as transaction:
                await self._open_store(transaction, owner, store_id)
                await self._check_room(transaction, owner)
                if batch is not None:
                    row = tuple(getattr(batch, column) for column in _BATCH_COLUMNS)
                    await transaction.insert("vector_store_batches", _BATCH_COLUMNS, [row])
                for each in added:
                    await transaction.fetch(
                        "UPDATE vector_store_files SET status = 'deleted'"
                        " WHERE store = ? AND file = ? AND status <> 'deleted'",
                        store_id,
                        each.file,
                    )
                rows = [self._row(owner, store_id, each, now, batch) for each in added]
                await transaction.insert("vector_store_files", _NEW_COLUMNS, rows)
        return batch

    async def _open_store(self, transaction: Transaction, owner: str, store_id: str) -> None:
        found = await transaction.fetch(
            "SELECT active, expires_days FROM vector_stores WHERE id = ? AND owner = ?",
            store_id,
            owner,
        )
        if not found:
            raise store_not_found(store_id)
        ((active, days),) = found
        if days is not None and active + days * 86400 <= self._now():
            raise store_has_expired(store_id)
        # It locks the store, so that nobody deletes it meanwhile.
        await transaction.fetch(
            "UPDATE vector_stores SET active = ? WHERE id = ?", self._now(), store_id
        )

    async def _check_room(self, transaction: Transaction, owner: str) -> None:
        try:
            await self._has_room(transaction, owner, 1, 1)
        except KeyIsFull as full:
            raise APIError(413, str(full), code="vector_stores_too_large") from None

    async def _has_room(self, transaction: Transaction, owner: str, chunks: int, size: int) -> None:
        ((has_chunks, has_bytes),) = await transaction.fetch(
            "SELECT coalesce(sum(chunks), 0), coalesce(sum(bytes), 0) FROM vector_store_files"
            " WHERE owner = ? AND status <> 'deleted'",
            owner,
        )
        settings = self._settings
        for there, more, limit, unit in (
            (has_chunks, chunks, settings.max_key_chunks, "pieces"),
            (has_bytes, size, settings.max_key_bytes, "bytes"),
        ):
            if int(there) + more > limit:
                raise KeyIsFull(
                    f"The vector stores of this key may have {limit} {unit} together. Delete files"
                    " or stores that are not needed any more."
                )

    def _row(
        self, owner: str, store: str, added: AddedFile, now: float, batch: FileBatchRow | None
    ) -> tuple[Any, ...]:
        return (
            store,
            added.file,
            owner,
            added.filename,
            "in_progress",
            msgspec.json.encode(added.attributes),
            added.chunk_tokens,
            added.overlap_tokens,
            now,
            None if batch is None else batch.id,
            *(0, 0, 0.0, 0),
        )

    async def get(self, owner: str, store_id: str, file_id: str) -> EntryRow:
        """A file of a store.

        Raises:
            APIError: 404, the owner has no such store, or it has no such file; 503.
        """
        await self._stores.get(owner, store_id)
        with stores_unavailable():
            rows = await self._storage.fetch(
                f"SELECT {_COLUMNS} FROM vector_store_files"
                " WHERE store = ? AND file = ? AND status <> 'deleted'",
                store_id,
                file_id.replace("\x00", ""),
            )
        if not rows:
            raise entry_not_found(store_id, file_id)
        return EntryRow(*rows[0])

    async def page(
        self,
        owner: str,
        store_id: str,
        *,
        batch: str | None,
        status: str | None,
        after: str | None,
        before: str | None,
        limit: int,
        ascending: bool,
    ) -> tuple[list[EntryRow], bool]:
        """Up to `limit` files of a store by age, and whether there are more.

        Args:
            owner: the id of a key.
            store_id: its store.
            batch: only those of this file batch.
            status: only those that have come so far.
            after, before: the id of the file behind or before which they are.
            limit: how many.
            ascending: the oldest first.

        Raises:
            APIError: 404, there is no such store, or no such file in it; 503.
        """
        condition, values = "store = ? AND status <> 'deleted'", [store_id]
        if batch is not None:
            condition, values = f"{condition} AND batch = ?", [*values, batch]
        if status is not None:
            condition, values = f"{condition} AND status = ?", [*values, status]
        place: tuple[float, int] | None = None
        if (named := after or before) is not None:
            last = await self.get(owner, store_id, named)
            place = (last.created, last.entry)
        else:
            await self._stores.get(owner, store_id)
        with stores_unavailable():
            rows, more = await page_of(
                self._storage,
                f"SELECT {_COLUMNS} FROM vector_store_files WHERE {condition}",
                values,
                key="entry",
                place=place,
                backwards=after is None and before is not None,
                limit=limit,
                ascending=ascending,
            )
        return [EntryRow(*row) for row in rows], more

    async def set_attributes(self, entry: EntryRow, attributes: Attributes) -> EntryRow:
        """Give a file other attributes.

        Raises:
            APIError: 404, it is there no more; 503.
        """
        with stores_unavailable():
            async with self._storage.transaction() as transaction:
                rows = await transaction.fetch(
                    "UPDATE vector_store_files SET attributes = ?"
                    f" WHERE entry = ? AND status <> 'deleted' RETURNING {_COLUMNS}",
                    msgspec.json.encode(attributes),
                    entry.entry,
                )
        if not rows:
            raise entry_not_found(entry.store, entry.file)
        return EntryRow(*rows[0])

    async def remove(self, entry: EntryRow) -> None:
        """Take a file out of its store.

        Raises:
            APIError: 503.
        """
        with stores_unavailable():
            async with self._storage.transaction() as transaction:
                await transaction.fetch(
                    "UPDATE vector_store_files SET status = 'deleted' WHERE entry = ?", entry.entry
                )

    async def file_is_gone(self, file_id: str) -> None:
        """Take a file that was deleted out of all stores."""
        async with self._storage.transaction() as transaction:
            await transaction.fetch(
                "UPDATE vector_store_files SET status = 'deleted'"
                " WHERE file = ? AND status <> 'deleted'",
                file_id,
            )

    async def texts(self, entry: EntryRow) -> list[TextChunk]:
        """The pieces of a file, in their order.

        Raises:
            APIError: 503.
        """
        with stores_unavailable():
            rows = await self._storage.fetch(
                "SELECT begins, text FROM vector_store_chunks WHERE entry = ? ORDER BY number",
                entry.entry,
            )
        return [TextChunk(*row) for row in rows]

    # File batches ---------------------------------------------------------------------------------

    async def batch(self, owner: str, store_id: str, batch_id: str) -> FileBatchRow:
        """A file batch.

        Raises:
            APIError: 404, the owner has none of this id in this store; 503.
        """
        with stores_unavailable():
            rows = await self._storage.fetch(
                f"SELECT {', '.join(_BATCH_COLUMNS)} FROM vector_store_batches"
                " WHERE id = ? AND store = ? AND owner = ?",
                *(each.replace("\x00", "") for each in (batch_id, store_id, owner)),
            )
        if not rows:
            raise APIError(
                404,
                f"No such file batch: '{batch_id[:100]}' in vector store '{store_id[:100]}'.",
                type="invalid_request_error",
                param="batch_id",
                code="file_batch_not_found",
            )
        return FileBatchRow(*rows[0])

    async def batch_counts(self, batch: FileBatchRow) -> FileCounts:
        """How far the files of a batch have come.

        Raises:
            APIError: 503.
        """
        with stores_unavailable():
            rows = await self._storage.fetch(
                "SELECT status, count(*), sum(bytes) FROM vector_store_files"
                " WHERE batch = ? AND status <> 'deleted' GROUP BY status",
                batch.id,
            )
        return FileCounts(
            {status: int(count) for status, count, _ in rows}, sum(int(size) for *_, size in rows)
        )

    async def cancel(self, batch: FileBatchRow) -> FileBatchRow:
        """Work no more on the files of a batch that are not done.

        Raises:
            APIError: 503.
        """
        with stores_unavailable():
            async with self._storage.transaction() as transaction:
                await transaction.fetch(
                    "UPDATE vector_store_files SET status = 'cancelled', claimed_by = NULL"
                    " WHERE batch = ? AND status = 'in_progress'",
                    batch.id,
                )
                await transaction.fetch(
                    "UPDATE vector_store_batches SET cancelled = 1 WHERE id = ?", batch.id
                )
        return msgspec.structs.replace(batch, cancelled=1)

    # Work -----------------------------------------------------------------------------------------

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
        while await self._remove_chunks(entry.entry):
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
            # Who gets on does not try in vain.
            changes = f"bytes = bytes + {size}, chunks = chunks + {len(chunks)}, attempts = 1"
            await self._lock(transaction, entry, changes)
            await self._has_room(transaction, entry.owner, 0, 0)
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
        while await self._remove_chunks(entry.entry):
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

    # Forgetting -----------------------------------------------------------------------------------

    async def without_files(self) -> None:
        """Take out of stores what is no file any more: it was deleted, or has expired."""
        async with self._storage.transaction() as transaction:
            await transaction.fetch(
                "UPDATE vector_store_files SET status = 'deleted' WHERE status <> 'deleted'"
                " AND NOT EXISTS (SELECT 1 FROM files WHERE files.id = vector_store_files.file)"
            )

    async def tidy(self) -> bool:
        """Remove some of what was taken out or cancelled; whether there may be more."""
        rows = await self._storage.fetch(
            "SELECT entry FROM vector_store_files WHERE status = 'deleted'"
            " OR (status = 'cancelled' AND chunks > 0) ORDER BY entry LIMIT 1"
        )
        if not rows:
            return False
        ((entry,),) = rows
        while await self._remove_chunks(entry):
            pass
        async with self._storage.transaction() as transaction:
            await transaction.fetch(
                "UPDATE vector_store_files SET bytes = 0, chunks = 0"
                " WHERE entry = ? AND status = 'cancelled'",
                entry,
            )
            await transaction.fetch(
                "DELETE FROM vector_store_files WHERE entry = ? AND status = 'deleted'", entry
            )
        return True

    async def _remove_chunks(self, entry: int) -> bool:
        async with self._storage.transaction() as transaction:
            gone = await transaction.fetch(
                "DELETE FROM vector_store_chunks WHERE id IN (SELECT id FROM vector_store_chunks"
                " WHERE entry = ? LIMIT ?) RETURNING id",
                entry,
                GONE_TOGETHER,
            )
        return bool(gone)


_NEW_COLUMNS = (
    "store",
    "file",
    "owner",
    "filename",
    "status",
    "attributes",
    "chunk_tokens",
    "overlap_tokens",
    "created",
    "batch",
    "bytes",
    "chunks",
    "free_from",
    "attempts",
)

_CHUNK_COLUMNS = ("store", "entry", "number", "begins", "text", "embedding")


def entry_not_found(store_id: str, file_id: str) -> APIError:
    """404: there is no such file in this store."""
    return APIError(
        404,
        f"No such file in vector store '{store_id[:100]}': '{file_id[:100]}'. It was never put into"
        " it, or was taken out.",
        type="invalid_request_error",
        param="file_id",
        code="vector_store_file_not_found",
    )
