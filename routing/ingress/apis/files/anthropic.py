"""Anthropic's files: the same that OpenAI's clients have, in Anthropic's words.

https://platform.claude.com/docs/en/build-with-claude/files, read 2026-11-28; anthropic 2.11.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from llama_compat.dialects.anthropic_messages.models import render_page
from llama_compat.dialects.anthropic_messages.operations import ANTHROPIC
from llama_compat.dialects.moments import exact_utc_text
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.media.documents import ANY_TYPE
from routing.batches.file_rows import StoredFile
from routing.ingress.answer import request_id_of
from routing.ingress.apis.files.store import (
    files_of,
    forget,
    found,
    seconds_within,
    streamed,
    uploaded,
)
from routing.ingress.apis.json_body import answered
from routing.storage.pages import cursor_of

if TYPE_CHECKING:
    from fastapi import APIRouter
    from fastapi.routing import APIRoute

PATH = "/v1/files"

PURPOSE = "user_data"
"""What such a file is for, as OpenAI's clients see it."""

EXPIRES_SECONDS = (3600, 90 * 86400)
"""The least and the most that `expires_in_seconds` may say."""

MOST_IDS = 100
"""So many files may be asked for by name."""

_PAGE = "page_"

FileLimit = Annotated[int, Query(ge=1, le=1000)]
FileIds = Annotated[list[str] | None, Query()]
ListedFileIds = Annotated[list[str] | None, Query(alias="ids[]")]


def add_anthropic_file_routes(router: APIRouter, route_class: type[APIRoute]) -> None:
    """Add them to `router`.

    Args:
        router: that.
        route_class: finds what Anthropic's clients ask alone, as OpenAI's paths are the same.
    """
    one = f"{PATH}/{{file_id}}"
    routes: tuple[tuple[str, Callable[..., Any], str], ...] = (
        (PATH, upload_file, "POST"),
        (PATH, list_files, "GET"),
        (one, retrieve_file, "GET"),
        (one, delete_file, "DELETE"),
        (f"{one}/content", file_content, "GET"),
    )
    for at, answer, method in routes:
        router.add_api_route(
            at,
            answer,
            methods=[method],
            route_class_override=route_class,
            include_in_schema=False,
        )


async def upload_file(request: Request) -> Response:
    """Keep a file, a form with `file`; it is the key's alone."""
    file = await uploaded(request, _asked, unnamed="unnamed", needs_name=False)
    return answered(request, ANTHROPIC, _shown(file))


def _asked(texts: Mapping[str, str]) -> tuple[str, int | None]:
    seconds = texts.get("expires_in_seconds")
    if seconds is None:
        return PURPOSE, None
    return PURPOSE, seconds_within("expires_in_seconds", seconds, EXPIRES_SECONDS)


async def list_files(
    request: Request,
    page: str | None = None,
    before_id: str | None = None,
    after_id: str | None = None,
    limit: FileLimit = 20,
    ids: FileIds = None,
    listed: ListedFileIds = None,
) -> Response:
    """The files of the key that asks, the newest first."""
    named = [*(ids or ()), *(listed or ())]
    if named:
        return answered(request, ANTHROPIC, _page(await _named(request, named), more=False))
    if page is not None and not page.startswith(_PAGE):
        raise invalid_parameter("page", "'page' must be the 'next_page' of an earlier page.")
    after = after_id if page is None else page.removeprefix(_PAGE)
    files, more = await files_of(request).page(
        request.scope["principal"].id,
        purpose=None,
        cursor=cursor_of(after, before_id),
        limit=limit,
        ascending=False,
    )
    return answered(request, ANTHROPIC, _page(list(map(_shown, files)), more=more))


async def _named(request: Request, ids: list[str]) -> list[dict[str, Any]]:
    unique = list(dict.fromkeys(ids))
    if len(unique) > MOST_IDS:
        raise invalid_parameter("ids", f"'ids' may have {MOST_IDS} at most, got {len(unique)}.")
    shown = []
    for file_id in unique:
        try:
            shown.append(_shown(await found(request, file_id)))
        except APIError as error:
            if error.code != "file_not_found":
                raise
    return shown


def _page(shown: list[dict[str, Any]], *, more: bool) -> dict[str, Any]:
    """A page, as clients turn it that know `next_page`, and as those do that go on behind an id."""
    next_page = f"{_PAGE}{shown[-1]['id']}" if more else None
    return {**render_page(shown, more=more), "next_page": next_page}


async def retrieve_file(request: Request, file_id: str) -> Response:
    """What is known of a file."""
    return answered(request, ANTHROPIC, _shown(await found(request, file_id)))


async def delete_file(request: Request, file_id: str) -> Response:
    """Forget a file, in all vector stores too. One that a batch is reading stays: 409."""
    await forget(request, file_id)
    return answered(request, ANTHROPIC, {"id": file_id, "type": "file_deleted"})


async def file_content(request: Request, file_id: str) -> Response:
    """What is in a file."""
    response = await streamed(files_of(request), await found(request, file_id), ANY_TYPE)
    response.headers.update(ANTHROPIC.headers_of(request_id_of(request.scope)))
    return response


def _shown(file: StoredFile) -> dict[str, Any]:
    """A file as Anthropic's API shows it. All can be downloaded here, which Anthropic has of those
    alone that a tool made."""
    return {
        "id": file.id,
        "type": "file",
        "filename": file.filename,
        "mime_type": file.media_type,
        "size_bytes": file.bytes,
        "created_at": exact_utc_text(file.created),
        "expires_at": None if file.expires is None else exact_utc_text(file.expires),
        "downloadable": True,
    }
