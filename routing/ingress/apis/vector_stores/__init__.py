"""OpenAI's vector stores: the stores, the files in them, and batches of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from routing.ingress.apis.vector_stores.batches import (
    cancel_file_batch,
    create_file_batch,
    list_batch_files,
    retrieve_file_batch,
)
from routing.ingress.apis.vector_stores.files import (
    add_store_file,
    list_store_files,
    remove_store_file,
    retrieve_store_file,
    store_file_content,
    update_store_file,
)
from routing.ingress.apis.vector_stores.stores import (
    create_store,
    delete_store,
    list_stores,
    modify_store,
    retrieve_store,
    search_store,
)

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = "/vector_stores"


def add_vector_store_routes(router: APIRouter, prefixes: tuple[str, ...]) -> None:
    """Add them to `router`, below each of `prefixes`."""
    for prefix in prefixes:
        path = prefix + PATH
        one = f"{path}/{{vector_store_id}}"
        file, batch = f"{one}/files/{{file_id}}", f"{one}/file_batches/{{batch_id}}"
        routes: tuple[tuple[str, Callable[..., Any], str, tuple[str, ...] | None], ...] = (
            (path, create_store, "POST", ()),
            (path, list_stores, "GET", None),
            (one, retrieve_store, "GET", None),
            (one, modify_store, "POST", ()),
            (one, delete_store, "DELETE", None),
            (f"{one}/search", search_store, "POST", ("query",)),
            (f"{one}/files", add_store_file, "POST", ("file_id",)),
            (f"{one}/files", list_store_files, "GET", None),
            (file, retrieve_store_file, "GET", None),
            (file, update_store_file, "POST", ("attributes",)),
            (file, remove_store_file, "DELETE", None),
            (f"{file}/content", store_file_content, "GET", None),
            (f"{one}/file_batches", create_file_batch, "POST", ()),
            (batch, retrieve_file_batch, "GET", None),
            (f"{batch}/cancel", cancel_file_batch, "POST", None),
            (f"{batch}/files", list_batch_files, "GET", None),
        )
        for at, answer, method, required in routes:
            extra = None if required is None else _body(required)
            router.add_api_route(
                at, answer, methods=[method], tags=["vector stores"], openapi_extra=extra
            )


def _body(required: tuple[str, ...]) -> dict[str, Any]:
    """What `/docs` says of a body: that it is an object, and what it has to have."""
    schema: dict[str, Any] = {"type": "object"}
    if required:
        schema["required"] = list(required)
        schema["properties"] = {name: {} for name in required}
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}
