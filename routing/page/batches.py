"""`/admin/batches`: what the page shows of the work that can wait, whoever's it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request

from llama_compat.errors import APIError
from routing.auth import ADMIN
from routing.batches.files import unavailable
from routing.batches.journal.rows import Job
from routing.batches.rendering import openai_batch
from routing.ingress.apis.batches import cancel_job, worker_of
from routing.page.audited import noted
from routing.runtime import runtime_of

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = f"{ADMIN}batches"

ShownBatches = Annotated[int, Query(ge=1, le=100)]


def add_batches_routes(router: APIRouter) -> None:
    """Add them to `router`."""
    routes: tuple[tuple[str, Callable[..., Any], str], ...] = (
        (PATH, tell_batches, "GET"),
        (f"{PATH}/{{batch_id}}/cancel", cancel_any_batch, "POST"),
    )
    for path, answer, method in routes:
        router.add_api_route(path, answer, methods=[method], tags=["admin"])


async def tell_batches(request: Request, limit: ShownBatches = 50) -> dict[str, Any]:
    """Batches of all keys: up to `limit` that are worked on and as many of the newest, with their
    progress, what they have cost so far, and when they will have ended. `names` are those of the
    keys."""
    worker = worker_of(request)
    journal, now = worker.journal, worker.files.now()
    with unavailable():
        open_ = await journal.open()
        newest, _ = await journal.page(None, None, limit=limit)
    # One that was begun long ago is still of interest while somebody works on it.
    jobs = {job.id: job for job in (*open_[:limit], *newest)}
    newest_first = sorted(jobs.values(), key=lambda job: (job.created, job.id), reverse=True)
    return {
        "object": "list",
        "data": [_told(job, now) for job in newest_first],
        "names": runtime_of(request).keys.names(),
    }


async def cancel_any_batch(request: Request, batch_id: str) -> dict[str, Any]:
    """End a batch of any key. What was answered is kept; what is on its way ends within a
    second."""
    worker = worker_of(request)
    with unavailable():
        job = await worker.journal.get(batch_id)
    if job is None:
        raise APIError(404, f"There is no batch '{batch_id[:100]}'.", code="batch_not_found")
    await cancel_job(request, job)
    await noted(request, "batch.cancel", job.id)
    with unavailable():
        job = await worker.journal.get(batch_id) or job
    return _told(job, worker.files.now())


def _told(job: Job, now: float) -> dict[str, Any]:
    return {**openai_batch(job, now), "api": job.api, "key": job.owner, "ended_at": job.ended}
