"""Ollama's API: chats, generation, embeddings, and what there is to know of models.

`GET /` is left alone, as no client reads its "Ollama is running"; but Ollama's own command line
asks for the head of it before it does anything.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from llama_compat.dialects.ollama import models
from llama_compat.dialects.ollama.operations import (
    CHAT,
    EMBED,
    EMBEDDINGS,
    GENERATE,
    OLLAMA,
)
from llama_compat.errors import APIError, missing_parameter
from llama_compat.wire.json_fields import from_raw
from providers.local.residency.resident import Whereabouts
from routing.ingress.apis.client_api import ClientAPI, is_below
from routing.ingress.apis.json_body import body_of
from routing.runtime import list_models, runtime_of

if TYPE_CHECKING:
    from fastapi import APIRouter

    from providers.local.residency.resident import Resident


_MANAGED = (
    ("POST", "/api/pull"),
    ("POST", "/api/push"),
    ("POST", "/api/create"),
    ("POST", "/api/copy"),
    ("DELETE", "/api/delete"),
    ("POST", "/api/blobs/{digest}"),
    ("HEAD", "/api/blobs/{digest}"),
)
"""What an Ollama server does with models, and this one does not."""


async def version() -> dict[str, str]:
    """The version of Ollama whose API this is."""
    return {"version": models.API_VERSION}


async def tags(request: Request) -> dict[str, Any]:
    """Every model that can be asked for, aliases included."""
    listed = await list_models(request)
    return {"models": [models.render_tag(each) for each in listed]}


async def running(request: Request) -> dict[str, Any]:
    """The models of the engines in this process: those that share memory while they are loaded,
    the others as long as it runs."""
    runtime = runtime_of(request)
    engines = {each.id for each in runtime.providers.values() if each.stats()}
    listed = [each for each in await list_models(request) if each.owned_by in engines]
    shown: list[dict[str, Any]] = []
    # A model and its adapters are in memory once: its own line, or the first of theirs where it has
    # none, says what that takes, and the others nothing.
    sized: dict[Resident, tuple[bool, int]] = {}
    for each in listed:
        route = await runtime.models.seen(each.id, request.scope["principal"])
        provider, model = route.provider, route.target.model
        is_adapted = provider.is_adapted(model)
        if is_adapted and not provider.has_adapter(model):
            continue
        resident = provider.resident(model)
        if resident is None:
            shown.append(models.render_running(each))
            continue
        now = resident.snapshot()
        if now.state is Whereabouts.ready:
            sized[resident] = min(sized.get(resident, (True, len(shown))), (is_adapted, len(shown)))
            left = now.expires_seconds
            expires = None if left is None else time.time() + left
            shown.append(models.render_running(each, sizes=now.sizes, expires=expires))
    told = {place for _, place in sized.values()}
    for place, line in enumerate(shown):
        if place not in told:
            line |= models.NO_SIZE
    return {"models": shown}


async def show(request: Request) -> Response:
    """What is known of one model."""
    runtime, fields = runtime_of(request), await body_of(request)
    # `name` is what older clients call it.
    named = (from_raw(fields[name]) for name in ("model", "name") if name in fields)
    model = next((each for each in named if isinstance(each, str) and each), None)
    if model is None:
        raise missing_parameter("model")
    principal, others = request.scope["principal"], models.other_names(model)
    route = await runtime.models.seen(model, principal, others)
    info = runtime.models.describe(model, route)
    parameters = route.provider.parameters_of(route.target.model)
    return JSONResponse(models.render_show(info, parameters))


async def managed() -> Response:
    """Models are the template's to say."""
    raise APIError(
        501,
        "This server's models are those of its template: none is pulled, pushed, created,"
        " copied or deleted by a request. GET /api/tags lists them.",
        code="not_implemented",
    )


async def heartbeat() -> Response:
    """That the server is there."""
    return Response()


def _add_routes(router: APIRouter) -> None:
    for path, answer in (("/api/version", version), ("/api/tags", tags), ("/api/ps", running)):
        router.add_api_route(path, answer, tags=["ollama"])
        router.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)
    router.add_api_route("/api/show", show, methods=["POST"], tags=["ollama"])
    router.add_api_route("/", heartbeat, methods=["HEAD"], include_in_schema=False)
    for method, path in _MANAGED:
        router.add_api_route(path, managed, methods=[method], include_in_schema=False)


OLLAMA_API = ClientAPI(
    name="ollama",
    dialect=OLLAMA,
    owns=lambda scope: is_below(scope["path"], "/api"),
    operations={
        f"/api/{name}": operation
        for name, operation in {
            "chat": CHAT,
            "generate": GENERATE,
            "embed": EMBED,
            "embeddings": EMBEDDINGS,
        }.items()
    },
    add_routes=_add_routes,
    summaries={
        "/api/chat": "Say the next message of a conversation.",
        "/api/generate": "Answer a prompt, or continue it in raw mode.",
        "/api/embed": "Embed texts.",
        "/api/embeddings": "Embed one text.",
    },
    streams=dict.fromkeys(("/api/chat", "/api/generate"), "application/x-ndjson"),
)
