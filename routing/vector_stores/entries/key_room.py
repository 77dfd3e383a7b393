"""How much the vector stores of one key may come to."""

from __future__ import annotations

from llama_compat.distribution import VectorStoresSettings
from routing.storage.storage import Transaction


class KeyIsFull(Exception):
    """The stores of a key would come to more than they may; the message says which limit."""


async def check_room(
    transaction: Transaction,
    settings: VectorStoresSettings,
    owner: str,
    *,
    chunks: int = 0,
    size: int = 0,
) -> None:
    """See whether the stores of a key may have more.

    Args:
        transaction: in which more is put in, or will be.
        settings: how much all of them may have together.
        owner: the id of the key.
        chunks, size: pieces and bytes that are not there yet.

    Raises:
        KeyIsFull: they may not.
    """
    ((has_chunks, has_bytes),) = await transaction.fetch(
        "SELECT coalesce(sum(chunks), 0), coalesce(sum(bytes), 0) FROM vector_store_files"
        " WHERE owner = ? AND status <> 'deleted'",
        owner,
    )
    for there, more, limit, unit in (
        (has_chunks, chunks, settings.max_key_chunks, "pieces"),
        (has_bytes, size, settings.max_key_bytes, "bytes"),
    ):
        if int(there) + more > limit:
            raise KeyIsFull(
                f"The vector stores of this key may have {limit} {unit} together. Delete files"
                " or stores that are not needed any more."
            )
