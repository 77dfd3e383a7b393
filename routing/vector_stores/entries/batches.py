"""Files that were put into a vector store together, and are seen to together."""

from __future__ import annotations

import msgspec

from llama_compat.errors import APIError
from routing.storage.storage import Storage
from routing.vector_stores.entries.rows import BATCH_COLUMNS, FileBatchRow
from routing.vector_stores.stores import FileCounts, stores_unavailable


class FileBatches:
    """The file batches of all stores.

    Args:
        storage: where they are.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def get(self, owner: str, store_id: str, batch_id: str) -> FileBatchRow:
        """A file batch.

        Raises:
            APIError: 404, the owner has none of this id in this store; 503.
        """
        with stores_unavailable():
            rows = await self._storage.fetch(
                f"SELECT {', '.join(BATCH_COLUMNS)} FROM vector_store_batches"
                " WHERE id = ? AND store = ? AND owner = ?",
                batch_id,
                store_id,
                owner,
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

    async def counts(self, batch: FileBatchRow) -> FileCounts:
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
