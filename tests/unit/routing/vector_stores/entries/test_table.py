"""The files of vector stores, and what others do to the stores meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="needs the extra 'vector-stores'")

from llama_compat.errors import APIError
from routing.storage.storage import Transaction
from routing.vector_stores.entries import table
from routing.vector_stores.entries.rows import AddedFile
from routing.vector_stores.stores import VectorStoreRow, owned_store
from tests.unit.routing.vector_stores.kept import Clock, kept


@pytest.mark.parametrize("as_batch", [False, True])
async def test_nothing_is_put_into_a_store_that_was_just_deleted(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_batch: bool
) -> None:
    """Its files stayed for good where another process deleted it between two statements."""

    async def found_and_deleted(
        transaction: Transaction, owner: str, store_id: str
    ) -> VectorStoreRow:
        store = await owned_store(transaction, owner, store_id)
        await transaction.fetch("DELETE FROM vector_stores WHERE id = ?", store_id)
        return store

    monkeypatch.setattr(table, "owned_store", found_and_deleted)
    async with kept(address, tmp_path, Clock()) as here:
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=None
        )
        added = [AddedFile("f", "f.txt", {}, 800, 400)]
        with pytest.raises(APIError) as caught:
            await here.entries.add("key-a", store.id, added, as_batch=as_batch)
        assert (caught.value.status, caught.value.code) == (404, "vector_store_not_found")
        for name in ("vector_store_files", "vector_store_batches"):
            assert await here.stores.storage.fetch(f"SELECT * FROM {name}") == []
