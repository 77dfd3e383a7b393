"""The files of a vector store: put in, looked at, given attributes, read, taken out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from llama_compat.errors import APIError, missing_parameter
from llama_compat.hosted.asked.filters import parse_attributes
from llama_compat.off_loop import off_loop
from llama_compat.wire.json_fields import encode_json
from routing.ingress.apis.vector_stores.asked import (
    Order,
    StoreLimit,
    added_file,
    owner_of,
    stores_of,
    values_of,
)
from routing.ingress.paging import list_page
from routing.storage.pages import cursor_of
from routing.vector_stores.chunking import TextChunk
from routing.vector_stores.entries.rows import EntryRow
from routing.vector_stores.stores import Status


async def add_store_file(request: Request, vector_store_id: str) -> Response:
    """Put a file into a vector store. It is found once its status is `completed`."""
    stores, owner = stores_of(request), owner_of(request)
    await stores.stores.get(owner, vector_store_id)
    values = await values_of(request)
    added = await added_file(values, "", stores.stores.files, owner, stores.settings)
    await stores.entries.add(owner, vector_store_id, [added])
    stores.wake()
    entry = await stores.entries.get(owner, vector_store_id, added.file)
    return JSONResponse(entry.shown())


async def list_store_files(
    request: Request,
    vector_store_id: str,
    after: str | None = None,
    before: str | None = None,
    limit: StoreLimit = 20,
    order: Order = "desc",
    filter: Status | None = None,
) -> dict[str, Any]:
    """The files of a vector store."""
    found, more = await stores_of(request).entries.page(
        owner_of(request),
        vector_store_id,
        batch=None,
        status=filter,
        cursor=cursor_of(after, before),
        limit=limit,
        ascending=order == "asc",
    )
    return list_page([each.shown() for each in found], more=more)


async def retrieve_store_file(
    request: Request, vector_store_id: str, file_id: str
) -> dict[str, Any]:
    """How far a file of a vector store has come, and what went wrong if it has failed."""
    entry = await stores_of(request).entries.get(owner_of(request), vector_store_id, file_id)
    return entry.shown()


async def update_store_file(request: Request, vector_store_id: str, file_id: str) -> Response:
    """Give a file of a vector store other attributes."""
    stores = stores_of(request)
    entry = await stores.entries.get(owner_of(request), vector_store_id, file_id)
    values = await values_of(request)
    if "attributes" not in values:
        raise missing_parameter("attributes")
    attributes = parse_attributes(values["attributes"], "attributes")
    return JSONResponse((await stores.entries.set_attributes(entry, attributes)).shown())


async def remove_store_file(request: Request, vector_store_id: str, file_id: str) -> dict[str, Any]:
    """Take a file out of a vector store. It stays a file."""
    stores = stores_of(request)
    entry = await stores.entries.get(owner_of(request), vector_store_id, file_id)
    await stores.entries.remove(entry)
    stores.wake()
    return {"id": file_id, "object": "vector_store.file.deleted", "deleted": True}


async def store_file_content(request: Request, vector_store_id: str, file_id: str) -> Response:
    """The text that was found in a file of a vector store."""
    stores = stores_of(request)
    entry = await stores.entries.get(owner_of(request), vector_store_id, file_id)
    if entry.status != "completed":
        raise APIError(
            409,
            f"File '{file_id}' is {entry.status}: its text is there once it is completed.",
            param="file_id",
            code="vector_store_file_not_ready",
        )
    content = await off_loop(entry.bytes, _content, entry, await stores.entries.texts(entry))
    return Response(content, media_type="application/json")


def _content(entry: EntryRow, chunks: Sequence[TextChunk]) -> bytes:
    data, end = [], 0
    for chunk in chunks:
        # What a piece has in common with the one before has been said.
        data.append({"type": "text", "text": chunk.text[max(0, end - chunk.begins) :]})
        end = chunk.begins + len(chunk.text)
    return encode_json(
        {
            "object": "vector_store.file_content.page",
            "file_id": entry.file,
            "filename": entry.filename,
            "attributes": entry.shown()["attributes"],
            "data": data,
            "has_more": False,
            "next_page": None,
        }
    )
