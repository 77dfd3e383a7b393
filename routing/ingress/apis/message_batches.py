"""Anthropic's batches of messages: made of the requests themselves, with a stream of results."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import Query, Request
from fastapi.responses import Response
from msgspec import Raw, Struct

from llama_compat.dialects.anthropic_messages.models import render_page
from llama_compat.dialects.anthropic_messages.operations import ANTHROPIC
from llama_compat.errors import APIError, invalid_parameter, missing_parameter
from llama_compat.off_loop import off_loop
from routing.asgi import headers_by_name
from routing.batches.files import HIDDEN, unavailable
from routing.batches.journal.rows import AS_CANCELLED, ENDED, Job
from routing.batches.rendering import message_batch
from routing.batches.wires import MESSAGES_ENDPOINT
from routing.ingress.apis.batches import found_job, page_of_jobs, window_seconds, worker_of
from routing.ingress.apis.files.store import streamed
from routing.ingress.apis.json_body import answered, body_of
from routing.storage.pages import cursor_of

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = f"{MESSAGES_ENDPOINT}/batches"

KEPT_SECONDS = 29 * 86400
"""Results are forgotten after so long, as at Anthropic
(https://platform.claude.com/docs/en/build-with-claude/batch-processing, read 2026-11-23)."""

WINDOW = "24h"

MessageBatchLimit = Annotated[int, Query(ge=1, le=1000)]

_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def add_message_batch_routes(router: APIRouter) -> None:
    """Add them to `router`."""
    one = f"{PATH}/{{message_batch_id}}"
    routes: tuple[tuple[str, Callable[..., Any], str], ...] = (
        (PATH, create_message_batch, "POST"),
        (PATH, list_message_batches, "GET"),
        (one, retrieve_message_batch, "GET"),
        (one, delete_message_batch, "DELETE"),
        (f"{one}/cancel", cancel_message_batch, "POST"),
        (f"{one}/results", message_batch_results, "GET"),
    )
    for path, answer, method in routes:
        extra = _CREATE if answer is create_message_batch else None
        router.add_api_route(path, answer, methods=[method], tags=["messages"], openapi_extra=extra)


_CREATE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["requests"],
                    "properties": {
                        "requests": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "required": ["custom_id", "params"],
                                "properties": {
                                    "custom_id": {"type": "string"},
                                    "params": {"type": "object"},
                                },
                            },
                        }
                    },
                }
            }
        },
    }
}


class _Asked(Struct):
    custom_id: str
    params: dict[str, Raw]


_requests = msgspec.json.Decoder(list[_Asked])


def _lines(raw: Raw, max_lines: int) -> list[bytes]:
    """The lines of the input that `requests` comes to.

    Raises:
        APIError: 400, they are wrong.
    """
    try:
        requests = _requests.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid_parameter("requests", f"requests: {error}") from None
    if not requests:
        raise invalid_parameter("requests", "requests: there has to be one at least.")
    if len(requests) > max_lines:
        raise invalid_parameter(
            "requests", f"requests: {max_lines} at most, got {len(requests)}. Make several batches."
        )
    seen: set[str] = set()
    for place, each in enumerate(requests):
        if not _CUSTOM_ID.fullmatch(each.custom_id):
            raise invalid_parameter(
                f"requests.{place}.custom_id",
                f"requests.{place}.custom_id: 1 to 64 letters, digits, '_' and '-'.",
            )
        if each.custom_id in seen:
            raise invalid_parameter(
                f"requests.{place}.custom_id",
                f"requests.{place}.custom_id: '{each.custom_id}' is that of an earlier request.",
            )
        seen.add(each.custom_id)
    return [
        msgspec.json.encode(each).replace(b"\n", b" ").replace(b"\r", b" ") for each in requests
    ]


async def create_message_batch(request: Request) -> Response:
    """Have messages said when there is room for them."""
    worker = worker_of(request)
    fields = await body_of(request)
    if "requests" not in fields:
        raise missing_parameter("requests")
    raw = fields["requests"]
    settings = worker.settings
    lines = await off_loop(memoryview(raw).nbytes, _lines, raw, settings.max_lines)
    if max(map(len, lines)) > settings.max_line_bytes:
        raise invalid_parameter(
            "requests", f"requests: one may have {settings.max_line_bytes} bytes."
        )
    owner, now = request.scope["principal"].id, worker.files.now()
    file = await worker.files.begin(owner)
    try:
        for begin in range(0, len(lines), 1000):
            await file.write(b"\n".join([*lines[begin : begin + 1000], b""]))
        await file.keep("requests.jsonl", HIDDEN, KEPT_SECONDS)
    finally:
        await file.discard()
    job = Job(
        f"msgbatch_{os.urandom(12).hex()}",
        "messages",
        owner,
        MESSAGES_ENDPOINT,
        file.id,
        WINDOW,
        b"null",
        KEPT_SECONDS,
        now,
        now + window_seconds(WINDOW),
        total=len(lines),
    )
    try:
        with unavailable():
            await worker.journal.add(job, is_uploaded=True)
    except APIError:
        # Nobody else knows of it, and it would count for its key until it expires.
        with suppress(APIError):
            await worker.files.delete_hidden(owner, file.id)
        raise
    worker.wake()
    return answered(request, ANTHROPIC, _shown(request, job))


def _shown(request: Request, job: Job) -> dict[str, Any]:
    return message_batch(job, f"{_origin(request)}{PATH}/{job.id}/results")


def _origin(request: Request) -> str:
    """Where the client says that this server is; behind a proxy that ends TLS, too."""
    headers = headers_by_name(request.scope)
    host = headers.get(b"host", b"localhost").decode("latin-1")
    is_tls = headers.get(b"x-forwarded-proto") == b"https" or request.url.scheme == "https"
    return f"{'https' if is_tls else 'http'}://{host}"


async def list_message_batches(
    request: Request,
    before_id: str | None = None,
    after_id: str | None = None,
    limit: MessageBatchLimit = 20,
) -> Response:
    """The batches of the key that asks, the newest first."""
    jobs, more = await page_of_jobs(request, "messages", cursor_of(after_id, before_id), limit)
    return answered(
        request, ANTHROPIC, render_page([_shown(request, job) for job in jobs], more=more)
    )


async def retrieve_message_batch(request: Request, message_batch_id: str) -> Response:
    """How far a batch has come; besides Anthropic's members `cost_usd` so far, and of how many
    requests nobody knows that (`unpriced_requests`)."""
    job = await found_job(request, message_batch_id, "messages")
    return answered(request, ANTHROPIC, _shown(request, job))


async def cancel_message_batch(request: Request, message_batch_id: str) -> Response:
    """End a batch. What was said is kept; what is on its way ends within a second."""
    worker, job = worker_of(request), await found_job(request, message_batch_id, "messages")
    with unavailable():
        if await worker.journal.break_off(job.id, AS_CANCELLED):
            worker.wake(job.id)
    return await retrieve_message_batch(request, message_batch_id)


async def delete_message_batch(request: Request, message_batch_id: str) -> Response:
    """Forget a batch that has ended, and its results."""
    worker, job = worker_of(request), await found_job(request, message_batch_id, "messages")
    with unavailable():
        deleted = await worker.journal.delete(job.id)
    if not deleted:
        await found_job(request, message_batch_id, "messages")  # somebody else may have been sooner
        raise APIError(
            400,
            f"Batch '{job.id}' has not ended, so it can't be deleted. Cancel it first.",
            code="batch_in_progress",
        )
    for file_id in (job.input_file, job.output_file):
        if file_id is not None:
            await worker.files.delete_hidden(job.owner, file_id)
    return answered(request, ANTHROPIC, {"id": job.id, "type": "message_batch_deleted"})


async def message_batch_results(request: Request, message_batch_id: str) -> Response:
    """What became of each request, one a line."""
    worker, job = worker_of(request), await found_job(request, message_batch_id, "messages")
    if job.status not in ENDED:
        raise APIError(
            400,
            f"Batch '{job.id}' has not ended, so it has no results yet. Retrieve it until its"
            " 'processing_status' is 'ended'.",
            code="batch_in_progress",
        )
    if job.output_file is None:
        return Response(media_type="application/x-jsonl")
    file = await worker.files.get(job.owner, job.output_file, hidden=True)
    return await streamed(worker.files, file, "application/x-jsonl")
