"""OpenAI's files: uploaded while they arrive, listed, read, deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.media.documents import ANY_TYPE
from routing.batches.file_rows import StoredFile
from routing.ingress.apis.files.store import (
    files_of,
    forget,
    found,
    seconds_within,
    streamed,
    uploaded,
)
from routing.ingress.paging import list_page
from routing.storage.pages import cursor_of

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = "/files"

UPLOAD_PURPOSES = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
"""What clients may say that a file is for (https://platform.openai.com/docs/api-reference/files,
read 2026-11-23). Only `batch` means something here."""

BATCH_SECONDS = 30 * 86400
"""A batch's input is forgotten after so long unless its upload says otherwise, as at OpenAI."""

EXPIRES_SECONDS = (3600, 30 * 86400)
"""The least and the most that `expires_after` may say."""

FileLimit = Annotated[int, Query(ge=1, le=10000)]


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
    return JSONResponse(_shown(await uploaded(request, _asked, unnamed="file")))


def _asked(texts: Mapping[str, str]) -> tuple[str, int | None]:
    if "purpose" not in texts:
        raise missing_parameter("purpose")
    purpose = texts["purpose"]
    if purpose not in UPLOAD_PURPOSES:
        raise invalid_parameter(
            "purpose", f"'{purpose[:100]}' is none of {', '.join(UPLOAD_PURPOSES)}."
        )
    anchor, seconds = texts.get("expires_after[anchor]"), texts.get("expires_after[seconds]")
    return purpose, expiry_of(anchor, seconds, purpose)


def expiry_of(anchor: str | None, seconds: str | None, purpose: str) -> int | None:
    """After how many seconds a file expires; None for never.

    Args:
        anchor, seconds: the members of `expires_after`.
        purpose: what the file is for.

    Raises:
        APIError: 400, they are wrong.
    """
    if anchor is None and seconds is None:
        return BATCH_SECONDS if purpose == "batch" else None
    if anchor != "created_at":
        raise invalid_parameter(
            "expires_after[anchor]", "'expires_after[anchor]' has to be 'created_at'."
        )
    return seconds_within("expires_after[seconds]", seconds or "", EXPIRES_SECONDS)


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
    return list_page(list(map(_shown, files)), more=more)


async def retrieve_file(request: Request, file_id: str) -> dict[str, Any]:
    """What is known of a file."""
    return _shown(await found(request, file_id))


async def delete_file(request: Request, file_id: str) -> dict[str, Any]:
    """Forget a file, in all vector stores too. One that a batch is reading stays: 409."""
    await forget(request, file_id)
    return {"id": file_id, "object": "file", "deleted": True}


async def file_content(request: Request, file_id: str) -> Response:
    """What is in a file."""
    return await streamed(files_of(request), await found(request, file_id), ANY_TYPE)


def _shown(file: StoredFile) -> dict[str, Any]:
    """A file as OpenAI's API shows it."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created),
        "expires_at": None if file.expires is None else int(file.expires),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }
