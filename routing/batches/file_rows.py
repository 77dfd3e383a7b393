"""What is known of files, as rows of a table, which who deletes one and who reads one share."""

from __future__ import annotations

from msgspec import Struct

from llama_compat.media.documents import ANY_TYPE
from routing.storage.storage import Transaction


class StoredFile(Struct, frozen=True):
    """What is known of a file: the columns of the table, in their order.

    Attributes:
        owner: the id of the key that it belongs to.
        created, expires: in seconds since 1970.
        media_type: what it is, such as `image/png`; `ANY_TYPE` where nobody knows.
    """

    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created: float
    expires: float | None
    media_type: str = ANY_TYPE


COLUMNS = StoredFile.__struct_fields__


async def lock_files(transaction: Transaction, condition: str, value: object) -> bool:
    """Hold up others that delete files or have batches read them; False where there are none."""
    update = f"UPDATE files SET bytes = bytes WHERE {condition} RETURNING id"
    return bool(await transaction.fetch(update, value))


async def note(transaction: Transaction, file: StoredFile) -> None:
    """Note a file whose content is there, in place of one with its id."""
    await transaction.fetch("DELETE FROM files WHERE id = ?", file.id)
    row = tuple(getattr(file, name) for name in COLUMNS)
    await transaction.insert("files", COLUMNS, [row])
