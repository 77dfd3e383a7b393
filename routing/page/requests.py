"""`/admin/requests`: the records of single requests, for the page and for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query
from fastapi import Request as HTTPRequest

from llama_compat.errors import APIError, invalid_parameter
from routing.auth import ADMIN
from routing.observability.records.export import exported
from routing.observability.records.reports import parse_since, parse_until
from routing.observability.records.search import (
    MOST_FOUND,
    Numbered,
    RecordFilter,
    body_of,
    key_ids,
    later,
    newest,
    newest_number,
    of_request,
    parse_status,
)
from routing.page.conversation import as_chat, said
from routing.page.recorded import recorded
from routing.runtime import runtime_of
from routing.storage.storage import Storage

if TYPE_CHECKING:
    from routing.app import Application

Text = Annotated[str | None, Query(max_length=500)]
Texts = Annotated[list[str] | None, Query(max_length=100)]


def add_requests_routes(app: Application) -> None:
    """Add them to `app`."""
    app.add_api_route(f"{ADMIN}requests", tell_requests, methods=["GET"], tags=["admin"])
    path = f"{ADMIN}requests/{{request_id:path}}"
    app.add_api_route(path, tell_request, methods=["GET"], tags=["admin"])


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
    come that were recorded since then, the oldest first. `newest` is the number of the last record
    of all, to go on from where none is like these. `names` are those of the keys.
    """
    keys = runtime_of(request).keys
    chosen = RecordFilter(
        since=_parsed("since", parse_since, since).time,
        until=_parsed("until", parse_until, until).time if until else None,
        keys=key_ids(keys.principals(), key, team),
        model=model or None,
        provider=provider or None,
        status=_parsed("status", parse_status, status) if status else None,
        error=error or None,
        text=text or None,
    )

    async def find(storage: Storage) -> tuple[int, list[Numbered]]:
        # What is written between the two is found by the next look.
        last = await newest_number(storage)
        if after is not None:
            return last, await later(storage, chosen, after)
        return last, await newest(storage, chosen, limit, before)

    last, found = await recorded(request, find)
    return {"object": "list", "data": _shown(found), "newest": last, "names": keys.names()}


async def tell_request(request: HTTPRequest, request_id: str) -> dict[str, Any]:
    """All that is recorded of one request.

    `data` has several records where clients chose an id twice. `request` and `reply` are the bodies
    where they are kept; `chat` is the request and `said` the reply as OpenAI's chat completions
    have them, whichever API they came by, where they can be read.
    """

    async def find(storage: Storage) -> tuple[list[Numbered], tuple[bytes, bytes] | None]:
        found = await of_request(storage, request_id)
        return found, await body_of(storage, found[0].record) if found else None

    found, bodies = await recorded(request, find)
    if not found:
        raise APIError(
            404,
            f"No request '{request_id}' is recorded here: it is too old, of another storage, or not"
            " written yet, which takes a second.",
            code="request_not_found",
        )
    told: dict[str, Any] = {
        "object": "request",
        "data": _shown(found),
        "names": runtime_of(request).keys.names(),
        "request": None,
        "reply": None,
        "chat": None,
        "said": None,
    }
    if bodies is not None:
        asked, answered = bodies
        record = found[0].record
        told.update(
            request=asked.decode(errors="replace"),
            reply=answered.decode(errors="replace"),
            chat=as_chat(record, asked),
            said=said(record, answered),
        )
    return told


def _parsed(name: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise invalid_parameter(name, f"'{name}': {error}.") from None


def _shown(found: Iterable[Numbered]) -> list[dict[str, Any]]:
    """Records as JSON, with their numbers."""
    return [{"number": each.number, **exported(each.record)} for each in found]
