"""OpenAI's files: uploaded while they arrive, listed, read, deleted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.background import BackgroundTask

from llama_compat.errors import (
    APIError,
    invalid_parameter,
    missing_parameter,
)
from routing.asgi import headers_by_name
from routing.batches.files import (
    PIECE_BYTES,
    UPLOAD_PURPOSES,
    FileStore,
    NewFile,
    StoredFile,
    expiry_of,
    file_too_large,
)
from routing.ingress.body import is_longer, part_in
from routing.ingress.paging import list_page
from routing.runtime import runtime_of
from routing.storage.pages import cursor_of

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = "/files"

HOW_TO_KEEP_FILES = "This server keeps no files: set `server.files: {}` in its template."

FileLimit = Annotated[int, Query(ge=1, le=10000)]


def files_of(request: Request) -> FileStore:
    """The files of the server.

    Raises:
        APIError: 404, it keeps none.
    """
    store = runtime_of(request).files
    if store is None:
        raise APIError(404, HOW_TO_KEEP_FILES, code="files_disabled")
    return store


def add_file_routes(router: APIRouter, prefixes: tuple[str, ...]) -> None:
    """Add them to `router`, below each of `prefixes`."""
    for prefix in prefixes:
        path = prefix + PATH
        one = f"{path}/{{file_id}}"
        routes: tuple[tuple[str, Callable[..., Any], str], ...] = (
            (path, upload_file, "POST"),
            (path, list_files, "GET"),
            (one, retrieve_file, "GET"),
            (one, delete_file, "DELETE"),
            (f"{one}/content", file_content, "GET"),
        )
        for at, answer, method in routes:
            extra = _UPLOAD if answer is upload_file else None
            router.add_api_route(at, answer, methods=[method], tags=["files"], openapi_extra=extra)


_UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"type": "string", "enum": list(UPLOAD_PURPOSES)},
                        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
                        "expires_after[seconds]": {"type": "integer"},
                    },
                }
            }
        },
    }
}


async def upload_file(request: Request) -> Response:
    """Keep a file, a form with `file` and `purpose`; it is the key's alone."""
    store = files_of(request)
    file = await store.begin(request.scope["principal"].id)
    try:
        kept = await _received(request, store, file)
    finally:
        await file.discard()
    return JSONResponse(kept.shown())


async def _received(request: Request, store: FileStore, file: NewFile) -> StoredFile:
    """The file in the body of `request`, which is kept."""
    # Its parser is not imported where nobody sends forms.
    from llama_compat.wire.form_stream import MAX_TEXT_BYTES, FormWithFile

    scope, settings = request.scope, runtime_of(request).settings
    headers = headers_by_name(scope)
    most = store.settings.max_bytes
    if is_longer(headers, most + 2 * MAX_TEXT_BYTES):
        raise file_too_large(most)
    form = FormWithFile(headers.get(b"content-type", b"").decode("latin-1"))
    more = True
    while more:
        message = await request.receive()
        form.feed(part_in(message, settings.body_seconds))
        more = message.get("more_body", False)
        if len(form.data) >= PIECE_BYTES or not more:
            piece, form.data = bytes(form.data), bytearray()
            await file.write(piece)
    form.finish()
    texts = form.texts
    if "purpose" not in texts:
        raise missing_parameter("purpose")
    purpose = texts["purpose"]
    if purpose not in UPLOAD_PURPOSES:
        raise invalid_parameter(
            "purpose", f"'{purpose[:100]}' is none of {', '.join(UPLOAD_PURPOSES)}."
        )
    seconds = expiry_of(
        texts.get("expires_after[anchor]"), texts.get("expires_after[seconds]"), purpose
    )
    expires = None if seconds is None else store.now() + seconds
    assert form.filename is not None
    return await file.keep(form.filename, purpose, expires)


async def list_files(
    request: Request,
    purpose: str | None = None,
    after: str | None = None,
    limit: FileLimit = 10000,
    order: Literal["asc", "desc"] = "desc",
) -> dict[str, Any]:
    """The files of the key that asks."""
    files, more = await files_of(request).page(
        request.scope["principal"].id,
        purpose=purpose,
        cursor=cursor_of(after),
        limit=limit,
        ascending=order == "asc",
    )
    return list_page([file.shown() for file in files], more=more)


async def _found(request: Request, file_id: str) -> StoredFile:
    return await files_of(request).get(request.scope["principal"].id, file_id)


async def retrieve_file(request: Request, file_id: str) -> dict[str, Any]:
    """What is known of a file."""
    return (await _found(request, file_id)).shown()


async def delete_file(request: Request, file_id: str) -> dict[str, Any]:
    """Forget a file, in all vector stores too. One that a batch is reading stays: 409."""
    await files_of(request).delete(request.scope["principal"].id, file_id)
    stores = runtime_of(request).vector_stores
    if stores is not None:
        await stores.file_is_gone(file_id)
    return {"id": file_id, "object": "file", "deleted": True}


async def file_content(request: Request, file_id: str) -> Response:
    """What is in a file."""
    file = await _found(request, file_id)
    return await streamed(files_of(request), file, "application/octet-stream")


async def streamed(store: FileStore, file: StoredFile, media_type: str) -> Response:
    """A response of what is in `file`, sent while it is read.

    Raises:
        APIError: 503, it can't be read at all.
    """
    content = store.content(file.id)
    first = await anext(content, b"")
    return StreamingResponse(
        _with_first(first, content),
        headers={"content-length": str(file.bytes)},
        media_type=media_type,
        background=BackgroundTask(content.aclose),
    )


async def _with_first(
    first: bytes, content: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(content):
        yield first
        async for piece in content:
            yield piece
