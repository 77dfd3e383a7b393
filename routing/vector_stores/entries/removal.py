"""What is forgotten of files that were taken out of vector stores, a little at a time."""

from __future__ import annotations

from routing.storage.storage import Storage

GONE_TOGETHER = 500
"""So many pieces are removed in one transaction, so that others get their turn."""


class EntryRemoval:
    """Removes what nobody sees any more.

    Args:
        storage: where it is.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

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
        while await remove_chunks(self._storage, entry):
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


async def remove_chunks(storage: Storage, entry: int) -> bool:
    """Remove some pieces of a file; whether there were any."""
    async with storage.transaction() as transaction:
        gone = await transaction.fetch(
            "DELETE FROM vector_store_chunks WHERE id IN (SELECT id FROM vector_store_chunks"
            " WHERE entry = ? LIMIT ?) RETURNING id",
            entry,
            GONE_TOGETHER,
        )
    return bool(gone)
