"""What is said of a file in a vector store, and of files that were put into one together."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.errors import APIError
from llama_compat.hosted.asked.filters import Attributes
from routing.vector_stores.stores import FileCounts


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


ENTRY_COLUMNS = EntryRow.__struct_fields__
"""Of the table of files, in the order of a row."""

BATCH_COLUMNS = FileBatchRow.__struct_fields__
"""Of the table of file batches, in the order of a row."""


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
