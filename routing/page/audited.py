"""`/admin/audit`, and how what is done under `/admin/` gets there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

from fastapi import Query, Request

from routing.auth import ADMIN
from routing.runtime import runtime_of
from routing.storage.outage import unavailable

if TYPE_CHECKING:
    from fastapi import APIRouter

OPERATOR_HEADER = "x-llama-compat-operator"
"""Of a request under `/admin/`: who asks, by their own word, as all have the same key; in percent
encoding where that is not ASCII."""


def add_audit_routes(router: APIRouter) -> None:
    """Add them to `router`."""
    router.add_api_route(f"{ADMIN}audit", tell_audit, methods=["GET"], tags=["admin"])


async def tell_audit(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=0)] = None,
) -> dict[str, Any]:
    """What was done under `/admin/`, by whom and to what; the newest first. `before` is the `id` of
    the last one of the page before."""
    audit = runtime_of(request).audit
    assert audit is not None
    with unavailable("What was done under `/admin/`"):
        found = await audit.newest(limit, before)
    return {"object": "list", "data": found}


async def noted(request: Request, action: str, subject: str, detail: str = "") -> None:
    """Have it in the audit that `request` has done something.

    Args:
        request: under `/admin/`.
        action: what, as in `target.drain`.
        subject: to what.
        detail: what else there is to say of it; never what is secret.
    """
    audit = runtime_of(request).audit
    assert audit is not None
    await audit.note(
        action,
        subject,
        request_id=request.scope["request_id"],
        client=request.client.host if request.client is not None else "",
        operator=unquote(request.headers.get(OPERATOR_HEADER, "")),
        detail=detail,
    )
