"""Vector stores: made, looked at, changed, deleted, searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from llama_compat.errors import APIError
from routing.ingress.apis.vector_stores.asked import (
    Order,
    StoreLimit,
    added_files,
    description_of,
    owner_of,
    sought,
    store_changes,
    stores_of,
    values_of,
)
from routing.ingress.paging import list_page
from routing.storage.pages import cursor_of
from routing.vector_stores.stores import FileCounts, VectorStoreRow

if TYPE_CHECKING:
    from routing.vector_stores.service import VectorStores


async def _shown(stores: VectorStores, found: list[VectorStoreRow]) -> list[dict[str, Any]]:
    counts = await stores.stores.counts([each.id for each in found])
    now = stores.stores.now()
    return [each.shown(counts.get(each.id, FileCounts({})), now) for each in found]


async def create_store(request: Request) -> Response:
    """Make a vector store, perhaps of files."""
    stores, owner = stores_of(request), owner_of(request)
    values = await values_of(request)
    changes, description = store_changes(values), description_of(values)
    added = await added_files(values, "file_ids", stores.stores.files, owner, stores.settings)
    store = await stores.stores.create(
        owner,
        name=changes.get("name", ""),
        description=description,
        metadata=changes.get("metadata", {}),
        expires_days=changes.get("expires_days"),
    )
    if added:
        try:
            await stores.entries.add(owner, store.id, added)
        except APIError:
            await stores.stores.delete(owner, store.id)  # which nobody knows of
            raise
        stores.wake()
    (shown,) = await _shown(stores, [store])
    return JSONResponse(shown)


async def list_stores(
    request: Request,
    after: str | None = None,
    before: str | None = None,
    limit: StoreLimit = 20,
    order: Order = "desc",
) -> dict[str, Any]:
    """The vector stores of the key that asks."""
    stores = stores_of(request)
    found, more = await stores.stores.page(
        owner_of(request), cursor=cursor_of(after, before), limit=limit, ascending=order == "asc"
    )
    return list_page(await _shown(stores, found), more=more)


async def retrieve_store(request: Request, vector_store_id: str) -> dict[str, Any]:
    """A vector store, and how far its files have come."""
    stores = stores_of(request)
    store = await stores.stores.get(owner_of(request), vector_store_id)
    (shown,) = await _shown(stores, [store])
    return shown


async def modify_store(request: Request, vector_store_id: str) -> Response:
    """Change the name of a vector store, its metadata, or when it expires."""
    stores, owner = stores_of(request), owner_of(request)
    await stores.stores.get(owner, vector_store_id)
    changes = store_changes(await values_of(request))
    if "metadata" in changes:
        changes["metadata"] = msgspec.json.encode(changes["metadata"])
    store = await stores.stores.modify(owner, vector_store_id, changes)
    (shown,) = await _shown(stores, [store])
    return JSONResponse(shown)


async def delete_store(request: Request, vector_store_id: str) -> dict[str, Any]:
    """Forget a vector store. Its files stay files."""
    stores = stores_of(request)
    await stores.stores.delete(owner_of(request), vector_store_id)
    stores.wake()
    return {"id": vector_store_id, "object": "vector_store.deleted", "deleted": True}


async def search_store(request: Request, vector_store_id: str) -> Response:
    """The pieces of a store's files that fit a query best, by their words and by what they mean."""
    stores = stores_of(request)
    await stores.stores.get(owner_of(request), vector_store_id)
    wanted = sought(await values_of(request))
    found = await stores.find(request.scope["principal"], [vector_store_id], wanted)
    return JSONResponse(
        {
            "object": "vector_store.search_results.page",
            "search_query": list(wanted.queries),
            "data": [
                {
                    "file_id": each.file_id,
                    "filename": each.filename,
                    "score": each.score,
                    "attributes": dict(each.attributes),
                    "content": [{"type": "text", "text": each.text}],
                }
                for each in found
            ],
            "has_more": False,
            "next_page": None,
        }
    )
