"""Files that are put into a vector store together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from llama_compat.errors import invalid_parameter, missing_parameter
from routing.ingress.apis.vector_stores.asked import (
    Order,
    Status,
    StoreLimit,
    added_files,
    owner_of,
    stores_of,
    values_of,
)
from routing.ingress.paging import list_page
from routing.storage.pages import cursor_of
from routing.vector_stores.entries.rows import FileBatchRow

if TYPE_CHECKING:
    from routing.vector_stores.service import VectorStores


async def _shown(stores: VectorStores, batch: FileBatchRow) -> dict[str, Any]:
    return batch.shown(await stores.batches.counts(batch))


async def create_file_batch(request: Request, vector_store_id: str) -> Response:
    """Put files into a vector store, up to 2,000 together."""
    stores, owner = stores_of(request), owner_of(request)
    await stores.stores.get(owner, vector_store_id)
    values = await values_of(request)
    named = [name for name in ("file_ids", "files") if values.get(name) is not None]
    if not named:
        raise missing_parameter("file_ids")
    if len(named) > 1:
        raise invalid_parameter("files", "Give either 'file_ids' or 'files', not both.")
    files = stores.stores.files
    added = await added_files(values, named[0], files, owner, stores.settings)
    if not added:
        raise invalid_parameter(named[0], f"'{named[0]}' has to name a file.", "empty_array")
    batch = await stores.entries.add(owner, vector_store_id, added, as_batch=True)
    assert batch is not None
    stores.wake()
    return JSONResponse(await _shown(stores, batch))


async def retrieve_file_batch(
    request: Request, vector_store_id: str, batch_id: str
) -> dict[str, Any]:
    """How far the files of a batch have come."""
    stores = stores_of(request)
    batch = await stores.batches.get(owner_of(request), vector_store_id, batch_id)
    return await _shown(stores, batch)


async def cancel_file_batch(
    request: Request, vector_store_id: str, batch_id: str
) -> dict[str, Any]:
    """Work no more on the files of a batch; those that are done stay in the store."""
    stores = stores_of(request)
    batch = await stores.batches.get(owner_of(request), vector_store_id, batch_id)
    batch = await stores.batches.cancel(batch)
    stores.wake()
    return await _shown(stores, batch)


async def list_batch_files(
    request: Request,
    vector_store_id: str,
    batch_id: str,
    after: str | None = None,
    before: str | None = None,
    limit: StoreLimit = 20,
    order: Order = "desc",
    filter: Status | None = None,
) -> dict[str, Any]:
    """The files of a batch."""
    stores, owner = stores_of(request), owner_of(request)
    batch = await stores.batches.get(owner, vector_store_id, batch_id)
    found, more = await stores.entries.page(
        owner,
        vector_store_id,
        batch=batch.id,
        status=filter,
        cursor=cursor_of(after, before),
        limit=limit,
        ascending=order == "asc",
    )
    return list_page([each.shown() for each in found], more=more)
