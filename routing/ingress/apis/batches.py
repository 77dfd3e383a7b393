"""OpenAI's batches: made of a file, looked at, listed, cancelled."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from llama_compat.errors import APIError, invalid_parameter, missing_parameter
from llama_compat.text.durations import seconds_of
from llama_compat.wire.json_fields import JSONFields, from_raw
from routing.batches.files import FileStore, unavailable
from routing.batches.journal.rows import AS_CANCELLED, Job
from routing.batches.rendering import openai_batch
from routing.batches.wires import OPENAI_ENDPOINTS
from routing.ingress.apis.files.openai import EXPIRES_SECONDS
from routing.ingress.apis.json_body import body_of
from routing.ingress.paging import list_page
from routing.runtime import runtime_of
from routing.storage.pages import Cursor, PageStart, cursor_of

if TYPE_CHECKING:
    from fastapi import APIRouter

    from routing.batches.worker import BatchWorker

PATH = "/batches"

BatchLimit = Annotated[int, Query(ge=1, le=100)]

LONGEST_WINDOW_SECONDS = 30 * 86400
MAX_METADATA = 16
"""Members of `metadata`."""


def worker_of(request: Request) -> BatchWorker:
    """Who works on batches.

    Raises:
        APIError: 404, nobody does.
    """
    worker = runtime_of(request).batches
    if worker is None:
        raise APIError(
            404,
            "This server works on no batches: set `server.batches: {}` in its template.",
            code="batches_disabled",
        )
    return worker


def add_batch_routes(router: APIRouter, prefixes: tuple[str, ...]) -> None:
    """Add them to `router`, below each of `prefixes`."""
    for prefix in prefixes:
        path = prefix + PATH
        one = f"{path}/{{batch_id}}"
        routes: tuple[tuple[str, Callable[..., Any], str], ...] = (
            (path, create_batch, "POST"),
            (path, list_batches, "GET"),
            (one, retrieve_batch, "GET"),
            (f"{one}/cancel", cancel_batch, "POST"),
        )
        for at, answer, method in routes:
            extra = _CREATE if answer is create_batch else None
            router.add_api_route(
                at, answer, methods=[method], tags=["batches"], openapi_extra=extra
            )


_CREATE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["input_file_id", "endpoint", "completion_window"],
                    "properties": {
                        "input_file_id": {"type": "string"},
                        "endpoint": {"type": "string", "enum": list(OPENAI_ENDPOINTS)},
                        "completion_window": {"type": "string"},
                        "metadata": {"type": "object"},
                        "output_expires_after": {"type": "object"},
                    },
                }
            }
        },
    }
}


async def create_batch(request: Request) -> Response:
    """Ask all lines of a file when there is room for them. Its input is checked before."""
    worker = worker_of(request)
    fields = await body_of(request)
    job = await _ordered(fields, request.scope["principal"].id, worker.files)
    with unavailable():
        await worker.journal.add(job, is_uploaded=True)
    worker.wake()
    return JSONResponse(_shown(worker, job))


async def _ordered(fields: JSONFields, owner: str, files: FileStore) -> Job:
    """The batch that a client asks for."""
    values = {name: from_raw(fields[name]) for name in _MEMBERS if name in fields}
    input_file = _text(values, "input_file_id")
    endpoint = _text(values, "endpoint")
    window = _text(values, "completion_window")
    # Clients with the longer base URL say the longer path.
    endpoint = endpoint.removeprefix("/v1/openai") if endpoint.startswith("/v1/o") else endpoint
    if endpoint not in OPENAI_ENDPOINTS:
        raise invalid_parameter(
            "endpoint", f"'{endpoint[:100]}' is none of {', '.join(OPENAI_ENDPOINTS)}."
        )
    file = await files.get(owner, input_file)
    if file.purpose != "batch":
        raise invalid_parameter(
            "input_file_id", f"File '{file.id}' was uploaded for '{file.purpose}', not for 'batch'."
        )
    now = files.now()
    return Job(
        f"batch_{os.urandom(12).hex()}",
        "openai",
        owner,
        endpoint,
        file.id,
        window,
        msgspec.json.encode(parse_metadata(values.get("metadata"))),
        _output_seconds(values.get("output_expires_after")),
        now,
        now + window_seconds(window),
    )


_MEMBERS = (
    "input_file_id",
    "endpoint",
    "completion_window",
    "metadata",
    "output_expires_after",
)


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is None:
        raise missing_parameter(name)
    if not isinstance(value, str):
        raise invalid_parameter(name, f"'{name}' has to be a text.", "invalid_type")
    return value


def window_seconds(window: str) -> float:
    """How long a completion window is.

    Raises:
        APIError: 400, it is none.
    """
    try:
        seconds = seconds_of(window)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_WINDOW_SECONDS:
        raise invalid_parameter(
            "completion_window",
            "'completion_window' has to be '24h', or another time of up to '30d' in s, m, h or d.",
        )
    return seconds


def parse_metadata(value: Any) -> dict[str, str] | None:
    """The `metadata` of something that a client makes.

    Raises:
        APIError: 400, it is none.
    """
    if value is None:
        return None
    if (
        not isinstance(value, dict)
        or len(value) > MAX_METADATA
        or not all(len(name) <= 64 for name in value)
        or not all(isinstance(each, str) and len(each) <= 512 for each in value.values())
    ):
        raise invalid_parameter(
            "metadata",
            f"'metadata' has to be an object of up to {MAX_METADATA} texts: names of up to 64"
            " characters, values of up to 512.",
        )
    return value


def _output_seconds(value: Any) -> int | None:
    if value is None:
        return None
    least, most = EXPIRES_SECONDS
    seconds = value.get("seconds") if isinstance(value, dict) else None
    if (
        not isinstance(seconds, int)
        or isinstance(seconds, bool)
        or not least <= seconds <= most
        or value.get("anchor") != "created_at"
    ):
        raise invalid_parameter(
            "output_expires_after",
            "'output_expires_after' has to have 'anchor': 'created_at', and 'seconds' from"
            f" {least} to {most}.",
        )
    return seconds


def _shown(worker: BatchWorker, job: Job) -> dict[str, Any]:
    return openai_batch(job, worker.files.now())


async def found_job(request: Request, batch_id: str, api: str) -> Job:
    """A batch of the key that asks.

    Raises:
        APIError: 404, it has none of this id; 503.
    """
    with unavailable():
        job = await worker_of(request).journal.get(batch_id)
    if job is None or job.owner != request.scope["principal"].id or job.api != api:
        raise APIError(
            404,
            f"No such batch: '{batch_id[:100]}'. It was never made with this key, or was deleted.",
            type="invalid_request_error",
            param="batch_id",
            code="batch_not_found",
        )
    return job


async def page_of_jobs(
    request: Request, api: str, cursor: Cursor | None, limit: int
) -> tuple[list[Job], bool]:
    """Up to `limit` batches of the key that asks, the newest first, and whether there are more.

    Args:
        request: who asks.
        api: by which they were made.
        cursor: beside which batch they are.
        limit: how many.

    Raises:
        APIError: 404, there is no such batch; 503.
    """
    place = None
    if cursor is not None:
        beside = await found_job(request, cursor.row, api)
        place = PageStart(beside.created, beside.id, cursor.backwards)
    with unavailable():
        return await worker_of(request).journal.page(
            request.scope["principal"].id, api, limit=limit, place=place
        )


async def list_batches(
    request: Request, after: str | None = None, limit: BatchLimit = 20
) -> dict[str, Any]:
    """The batches of the key that asks, the newest first."""
    worker = worker_of(request)
    jobs, more = await page_of_jobs(request, "openai", cursor_of(after), limit)
    return list_page([_shown(worker, job) for job in jobs], more=more)


async def retrieve_batch(request: Request, batch_id: str) -> dict[str, Any]:
    """How far a batch has come: `request_counts`, and besides OpenAI's members `cost_usd` so far,
    of how many lines nobody knows that (`unpriced_requests`), and `estimated_end_at`."""
    return _shown(worker_of(request), await found_job(request, batch_id, "openai"))


async def cancel_batch(request: Request, batch_id: str) -> dict[str, Any]:
    """End a batch. What was answered is kept; what is on its way ends within a second."""
    await cancel_job(request, await found_job(request, batch_id, "openai"))
    return await retrieve_batch(request, batch_id)


async def cancel_job(request: Request, job: Job) -> None:
    """Have `job` end before its lines are done.

    Raises:
        APIError: 409, it has ended; 503, where batches are kept can't be reached.
    """
    worker = worker_of(request)
    with unavailable():
        if await worker.journal.break_off(job.id, AS_CANCELLED):
            worker.wake(job.id)
            return
        # Since it was looked for it may have ended, or been cancelled by somebody else.
        now = await worker.journal.get(job.id) or job
    if now.status != "cancelling":
        raise APIError(
            409,
            f"Batch '{job.id}' is {now.status}: it can't be cancelled any more.",
            code="batch_has_ended",
        )
