"""`/admin/requests`: the records of single requests, for the page and for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query
from fastapi import Request as HTTPRequest

from llama_compat.errors import APIError, invalid_parameter
from routing.auth import ADMIN
from routing.observability.records.export import exported
from routing.observability.records.reports import WrongFilter
from routing.observability.records.search import (
    MOST_FOUND,
    Numbered,
    RecordWords,
    later,
    newest,
    newest_number,
    whole,
)
from routing.page.conversation import as_chat, said
from routing.page.recorded import recorded
from routing.runtime import runtime_of
from routing.storage.storage import Storage

if TYPE_CHECKING:
    from fastapi import APIRouter

Text = Annotated[str | None, Query(max_length=500)]
Texts = Annotated[list[str] | None, Query(max_length=100)]


def add_requests_routes(router: APIRouter) -> None:
    """Add them to `router`."""
    router.add_api_route(f"{ADMIN}requests", tell_requests, methods=["GET"], tags=["admin"])
    path = f"{ADMIN}requests/{{request_id:path}}"
    router.add_api_route(path, tell_request, methods=["GET"], tags=["admin"])


async def tell_requests(
    request: HTTPRequest,
    since: str = "24h",
    until: Text = None,
    key: Texts = None,
    team: Texts = None,
    model: Text = None,
    provider: Text = None,
    status: Text = None,
    error: Text = None,
    text: Text = None,
    limit: Annotated[int, Query(ge=1, le=MOST_FOUND)] = 100,
    before: Annotated[int | None, Query(ge=0)] = None,
    after: Annotated[int | None, Query(ge=0)] = None,
) -> dict[str, Any]:
    """The last requests that were recorded, the newest first.

    `since` and `until` are as in `7d`, `12h` or `2026-03-01`; `status` is 429, or `4xx`; `error` is
    the class of what went wrong, or `any`; `text` is in the id, the model or the error. `before` is
    the `number` of the last one of the page before, and with `after`, that of the first one, those
    come that were recorded since then, the oldest first. `newest` is the number to go on from with
    `after`: that of the last record of all, or of the last one here where there are more of them.
    `names` are those of the keys.
    """
    keys = runtime_of(request).keys
    words = RecordWords(
        since=since,
        until=until,
        keys=key,
        teams=team,
        model=model,
        provider=provider,
        status=status,
        error=error,
        text=text,
    )
    try:
        chosen = words.read(keys.principals())
    except WrongFilter as wrong:
        raise invalid_parameter(wrong.name, f"'{wrong.name}': {wrong}.") from None

    async def find(storage: Storage) -> tuple[int, list[Numbered]]:
        # What is written between the two is found by the next look.
        last = await newest_number(storage)
        if after is not None:
            found = await later(storage, chosen, after)
            return (found[-1].number if len(found) == MOST_FOUND else last), found
        return last, await newest(storage, chosen, limit, before)

    last, found = await recorded(request, find)
    return {"object": "list", "data": _shown(found), "newest": last, "names": keys.names()}


async def tell_request(request: HTTPRequest, request_id: str) -> dict[str, Any]:
    """All that is recorded of one request.

    `data` has several records where clients chose an id twice. `request` and `reply` are the bodies
    where they are kept, and `headers` are the request's then, with what may be secret covered;
    `chat` is the request and `said` the reply as OpenAI's chat completions have them, whichever API
    they came by, where they can be read.
    """

    found = await recorded(request, lambda storage: whole(storage, request_id))
    if found is None:
        raise APIError(
            404,
            f"No request '{request_id}' is recorded here: it is too old, of another storage, or not"
            " written yet, which takes a second.",
            code="request_not_found",
        )
    told: dict[str, Any] = {
        "object": "request",
        "data": _shown(found.found),
        "names": runtime_of(request).keys.names(),
        "headers": None,
        "request": None,
        "reply": None,
        "chat": None,
        "said": None,
    }
    if found.kept is not None:
        record = found.found[0].record
        told.update(
            **found.kept.shown(),
            chat=as_chat(record, found.kept.request),
            said=said(record, found.kept.reply),
        )
    return told


def _shown(found: Iterable[Numbered]) -> list[dict[str, Any]]:
    """Records as JSON, with their numbers."""
    return [{"number": each.number, **exported(each.record)} for each in found]
