"""`/admin/targets/`: a target is drained, opened again, or tried."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Request as HTTPRequest
from pydantic import BaseModel, ConfigDict, Field

from llama_compat.errors import APIError
from llama_compat.exchange import Principal
from llama_compat.wire.malformed import UNREADABLE
from providers.answer import answer
from routing.auth import ADMIN
from routing.batches.wires import OPERATIONS
from routing.ingress.body import parse_body
from routing.ingress.own_requests import lasting, read_through, within
from routing.page.audited import noted
from routing.policy.dispatch import ask_one
from routing.request import Request
from routing.runtime import Runtime, runtime_of

if TYPE_CHECKING:
    from fastapi import APIRouter

    from routing.models import Route
    from routing.policy.targets import LiveTarget

PATH = f"{ADMIN}targets/{{target:path}}"

OPERATOR = Principal("admin", "admin")
"""Whose requests those are by which targets are tried."""

TRY_SECONDS = 60.0
MOST_SHOWN = 2000
"""Of what a target says so many characters are told."""

_ENDPOINTS = {"chat": "/v1/chat/completions", "embedding": "/v1/embeddings"}


class Trial(BaseModel):
    """What a target is asked when it is tried."""

    model_config = ConfigDict(extra="forbid")

    prompt: Annotated[str, Field(min_length=1, max_length=4000)] = "Say hello in one sentence."
    kind: Literal["chat", "embedding"] = "chat"
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64


def add_targets_routes(router: APIRouter) -> None:
    """Add them to `router`."""
    routes: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("drain", drain_target),
        ("open", open_target),
        ("try", try_target),
    )
    for name, answer_ in routes:
        router.add_api_route(f"{PATH}/{name}", answer_, methods=["POST"], tags=["admin"])


async def drain_target(request: HTTPRequest, target: str) -> dict[str, Any]:
    """Send nothing to a target, named by its id (`provider/model`), until it is opened again; what
    runs there goes on to its end. At all gateways of a fleet; without one in this process alone. A
    reload keeps it, a restart does not."""
    _, live = _found(runtime_of(request), target)
    live.state.cooldown.drain()
    await noted(request, "target.drain", target)
    return _told(runtime_of(request), live)


async def open_target(request: HTTPRequest, target: str) -> dict[str, Any]:
    """Send requests to a target again that was drained, or that cools."""
    _, live = _found(runtime_of(request), target)
    live.state.cooldown.open()
    await noted(request, "target.open", target)
    return _told(runtime_of(request), live)


async def try_target(
    request: HTTPRequest, target: str, trial: Trial | None = None
) -> dict[str, Any]:
    """Ask one target something, whether it cools, is drained or neither, and tell what it says: its
    text or its error, and how long that took. Nobody's limits and no cache have to do with it; its
    record is of the key `admin`."""
    runtime = runtime_of(request)
    route, live = _found(runtime, target)
    asked = trial or Trial()
    await noted(request, "target.try", target, asked.kind)
    return await _tried(runtime, route, live, asked, request.scope["request_id"])


def _found(runtime: Runtime, target: str) -> tuple[Route, LiveTarget]:
    for route in runtime.models:
        for each in route.targets:
            if each.id == target:
                return route, each
    known = ", ".join(sorted({each.id for route in runtime.models for each in route.targets})[:20])
    raise APIError(
        404,
        f"No model leads to a target '{target[:200]}'. Targets are {known}.",
        code="target_not_found",
    )


def _told(runtime: Runtime, live: LiveTarget) -> dict[str, Any]:
    return {
        "id": live.id,
        "drained": live.state.cooldown.is_drained,
        "in_flight": live.state.in_flight,
        "process": os.getpid(),
        "shared": runtime.fleet is not None and not runtime.fleet.is_away,
    }


# To try it ----------------------------------------------------------------------------------------


async def _tried(
    runtime: Runtime, route: Route, live: LiveTarget, trial: Trial, request_id: str
) -> dict[str, Any]:
    operation = OPERATIONS[_ENDPOINTS[trial.kind]]
    asking = Request(operation, request_id, OPERATOR, path=_ENDPOINTS[trial.kind])
    asking.body = _body(route.name, trial)
    asking.route = route
    began = time.monotonic()
    told: dict[str, Any] = {"id": live.id, "request_id": request_id}
    try:
        with lasting(asking, runtime.begin):
            content = await within(TRY_SECONDS, _asked(asking, live))
        told |= {"ok": True, "status": 200, "text": _text(content, trial)[:MOST_SHOWN]}
    except APIError as error:
        told |= {"ok": False, "status": error.status, "code": error.code, "text": error.message}
    return {**told, "seconds": time.monotonic() - began}


async def _asked(asking: Request, live: LiveTarget) -> bytes:
    fields = parse_body(asking.body)
    asking.asks(fields, asking.operation.look(fields, {}), counts_usage=True)
    call = asking.call
    assert call is not None
    reply = await ask_one(
        live,
        call,
        lambda provider, target: answer(provider, call, target),
        asking.attempts,
    )
    return await read_through(asking, reply)


def _body(model: str, trial: Trial) -> bytes:
    asked: dict[str, Any] = {"model": model}
    if trial.kind == "embedding":
        asked["input"] = trial.prompt
    else:
        asked["messages"] = [{"role": "user", "content": trial.prompt}]
        asked["max_completion_tokens"] = trial.max_tokens
    return json.dumps(asked).encode()


def _text(content: bytes, trial: Trial) -> str:
    """What a reply says, for people."""
    try:
        told = json.loads(content)
        if trial.kind == "embedding":
            return f"{len(told['data'][0]['embedding'])} numbers"
        return str(told["choices"][0]["message"].get("content") or "")
    except UNREADABLE:
        return content.decode(errors="replace")
