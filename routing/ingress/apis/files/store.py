"""What the files of all APIs have in common: how they come in, go out, and are forgotten."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.background import BackgroundTask

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.media.documents import ANY_TYPE
from routing.asgi import headers_by_name
from routing.batches.file_rows import StoredFile
from routing.batches.files import (
    PIECE_BYTES,
    FileStore,
    file_too_large,
)
from routing.ingress.body import is_longer, part_in
from routing.runtime import runtime_of

HOW_TO_KEEP_FILES = "This server keeps no files: set `server.files: {}` in its template."

Asked = Callable[[Mapping[str, str]], tuple[str, int | None]]
"""What a file is for, and after how many seconds it expires, of the texts of its form. Raises
APIError: 400, they are wrong."""


def files_of(request: Request) -> FileStore:
    """The files of the server.

    Raises:
        APIError: 404, it keeps none.
    """
    store = runtime_of(request).files
    if store is None:
        raise APIError(404, HOW_TO_KEEP_FILES, code="files_disabled")
    return store


async def uploaded(
    request: Request, asked: Asked, *, unnamed: str, needs_name: bool = True
) -> StoredFile:
    """The file in the form that `request` is, kept while it arrives; it is the key's alone.

    Args:
        request: that.
        asked: what its other members say.
        unnamed: what a file is called whose name is empty.
        needs_name: whether it is no file without any.

    Raises:
        APIError: 400, 413, 503: it can't be kept.
    """
    # Its parser is not imported where nobody sends forms.
    from llama_compat.wire.form_stream import MAX_TEXT_BYTES, FormWithFile

    store, settings = files_of(request), runtime_of(request).settings
    file = await store.begin(request.scope["principal"].id)
    try:
        headers = headers_by_name(request.scope)
        most = store.settings.max_bytes
        if is_longer(headers, most + 2 * MAX_TEXT_BYTES):
            raise file_too_large(most)
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        form = FormWithFile(content_type, needs_name=needs_name)
        more = True
        while more:
            message = await request.receive()
            form.feed(part_in(message, settings.body_seconds))
            more = message.get("more_body", False)
            if len(form.data) >= PIECE_BYTES or not more:
                piece, form.data = bytes(form.data), bytearray()
                await file.write(piece)
        form.finish()
        purpose, seconds = asked(form.texts)
        filename = form.filename or unnamed
        media_type = _media_type(form.media_type, filename)
        return await file.keep(filename, purpose, seconds, media_type)
    finally:
        await file.discard()


def _media_type(told: str, filename: str) -> str:
    """What a file is: as its upload says, or as its name ends."""
    if told and told != ANY_TYPE:
        return told
    return mimetypes.guess_type(filename)[0] or ANY_TYPE


def seconds_within(name: str, text: str, bounds: tuple[int, int]) -> int:
    """The number that the member `name` of a form says.

    Raises:
        APIError: 400, it is none, or not within `bounds`.
    """
    least, most = bounds
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not least <= number <= most:
        raise invalid_parameter(name, f"'{name}' has to be a number from {least} to {most}.")
    return number


async def found(request: Request, file_id: str) -> StoredFile:
    """A file of the key that asks.

    Raises:
        APIError: 404, it has none of this id; 503.
    """
    return await files_of(request).get(request.scope["principal"].id, file_id)


async def forget(request: Request, file_id: str) -> None:
    """Forget a file, in all vector stores too.

    Raises:
        APIError: 404, the key has none of this id; 409, a batch is reading it; 503.
    """
    await files_of(request).delete(request.scope["principal"].id, file_id)
    stores = runtime_of(request).vector_stores
    if stores is not None:
        await stores.file_is_gone(file_id)


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
