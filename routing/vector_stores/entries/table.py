"""The files of vector stores as clients put them in, see them and take them out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from llama_compat.errors import APIError
from llama_compat.hosted.asked.filters import Attributes
from routing.storage.pages import Cursor, PageStart, page_of
from routing.storage.storage import Transaction
from routing.vector_stores.chunking import TextChunk
from routing.vector_stores.entries.key_room import KeyIsFull, check_room
from routing.vector_stores.entries.rows import (
    BATCH_COLUMNS,
    ENTRY_COLUMNS,
    AddedFile,
    EntryRow,
    FileBatchRow,
    entry_not_found,
)
from routing.vector_stores.stores import (
    StoreTable,
    owned_store,
    store_has_expired,
    store_not_found,
    stores_unavailable,
)

_COLUMNS = ", ".join(ENTRY_COLUMNS)

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


class Entries:
    """The files of all stores.

    Args:
        stores: those.
    """

    def __init__(self, stores: StoreTable) -> None:
        self._stores = stores
        self._storage = stores.storage
        self._settings = stores.settings
        self._now: Callable[[], float] = stores.now

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
                await transaction.alone(f"vector stores of {owner}")
                await self._open_store(transaction, owner, store_id)
                await self._check_room(transaction, owner)
                if batch is not None:
                    row = tuple(getattr(batch, column) for column in BATCH_COLUMNS)
                    await transaction.insert("vector_store_batches", BATCH_COLUMNS, [row])
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
        store = await owned_store(transaction, owner, store_id)
        if store.has_expired(self._now()):
            raise store_has_expired(store_id)
        # It locks the store, so that nobody deletes it from here on; somebody may have until here.
        locked = await transaction.fetch(
            "UPDATE vector_stores SET active = ? WHERE id = ? RETURNING id", self._now(), store_id
        )
        if not locked:
            raise store_not_found(store_id)

    async def _check_room(self, transaction: Transaction, owner: str) -> None:
        try:
            await check_room(transaction, self._settings, owner, chunks=1, size=1)
        except KeyIsFull as full:
            raise APIError(413, str(full), code="vector_stores_too_large") from None

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
                file_id,
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
        cursor: Cursor | None,
        limit: int,
        ascending: bool,
    ) -> tuple[list[EntryRow], bool]:
        """Up to `limit` files of a store by age, and whether there are more.

        Args:
            owner: the id of a key.
            store_id: its store.
            batch: only those of this file batch.
            status: only those that have come so far.
            cursor: beside which file they are.
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
        place = None
        if cursor is None:
            await self._stores.get(owner, store_id)
        else:
            beside = await self.get(owner, store_id, cursor.row)
            place = PageStart(beside.created, beside.entry, cursor.backwards)
        with stores_unavailable():
            rows, more = await page_of(
                self._storage,
                f"SELECT {_COLUMNS} FROM vector_store_files WHERE {condition}",
                values,
                limit=limit,
                ascending=ascending,
                place=place,
                key="entry",
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
