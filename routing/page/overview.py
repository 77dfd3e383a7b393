"""`/admin/overview`, `/admin/errors`, `/admin/guardrails` and `/admin/live`: what the page shows of
the server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import Request as HTTPRequest

from llama_compat.errors import invalid_parameter
from routing.auth import ADMIN
from routing.health import engines_of
from routing.observability.records.overview import SPANS, last_errors, last_verdicts, overview
from routing.page.recorded import recorded, storage_of
from routing.runtime import Runtime, runtime_of

if TYPE_CHECKING:
    from fastapi import APIRouter

    from routing.request import Request


def add_overview_routes(router: APIRouter) -> None:
    """Add them to `router`."""

    async def tell_overview(request: HTTPRequest, span: str = "24h") -> dict[str, Any]:
        """Requests, tokens, cost, errors and latency over the last `span`: points in time, sums by
        model, team, key and provider, the sums of the period `before`, and the `errors` that there
        were most of. `names` are those of the keys."""
        if span not in SPANS:
            raise invalid_parameter("span", f"'span' is one of {', '.join(SPANS)}.")
        team_of = runtime_of(request).keys.team_of()
        told = await recorded(request, lambda storage: overview(storage, span, team_of=team_of))
        return {**told, "names": runtime_of(request).keys.names()}

    async def tell_errors(request: HTTPRequest) -> dict[str, Any]:
        """The last requests that went wrong, with their ids, the newest first."""
        told = await recorded(request, last_errors)
        return {"object": "list", "data": told, "names": runtime_of(request).keys.names()}

    async def tell_verdicts(request: HTTPRequest) -> dict[str, Any]:
        """The last requests in which a guardrail came to a verdict: `guardrails` has them, as
        `NAME:VERDICT`, a blank between two; the newest first."""
        told = await recorded(request, last_verdicts)
        return {"object": "list", "data": told, "names": runtime_of(request).keys.names()}

    async def tell_live(request: HTTPRequest) -> dict[str, Any]:
        """What runs in this process now: requests, targets and engines."""
        runtimes = request.app.runtimes()
        runtime = runtime_of(request)
        return {
            "process": os.getpid(),
            "requests": _requests(runtimes),
            "targets": [asdict(each) for each in runtime.states.snapshots(time.monotonic())],
            "engines": engines_of(runtime),
            "names": runtime.keys.names(),
            "records": storage_of(runtime) is not None,
            "stored_keys": runtime.settings.stored_keys,
        }

    routes: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("overview", tell_overview),
        ("errors", tell_errors),
        ("guardrails", tell_verdicts),
        ("live", tell_live),
    )
    for name, answer in routes:
        router.add_api_route(f"{ADMIN}{name}", answer, methods=["GET"], tags=["admin"])


def _requests(runtimes: Iterable[Runtime]) -> list[dict[str, Any]]:
    """Those that run now, the oldest first."""
    now = time.monotonic()
    running = [each for runtime in runtimes for each in runtime.running]
    return [_told(each, now) for each in sorted(running, key=lambda each: each.begun)]


def _told(request: Request, now: float) -> dict[str, Any]:
    call, last = request.call, request.attempts.last
    return {
        "request_id": request.request_id,
        "key": request.principal.id if request.principal is not None else "",
        "api": request.operation.dialect.name,
        "operation": request.operation.name,
        "model": call.model if call is not None else "",
        "stream": call is not None and call.stream,
        "target": last.target.id if last is not None else "",
        "attempts": request.attempts.sent,
        "seconds": now - request.begun,
        "sent_bytes": request.sample.size,
        "guardrails": request.told_verdicts,
    }
