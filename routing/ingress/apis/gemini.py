"""Gemini's API: generateContent, its streams, token counts, embeddings, and the list of models.

It is under `/v1beta` and, for that is where Google's own client looks for it now, under `/v1` as
well. There the list of models is OpenAI's, but for those who send a header of Google's.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.routing import Match

from llama_compat.dialects.gemini.models import render_model, render_models
from llama_compat.dialects.gemini.operations import (
    BATCH_EMBED,
    COUNT_TOKENS,
    EMBED,
    GEMINI,
    GENERATE,
    STREAM_ARRAY,
    STREAM_EVENTS,
)
from llama_compat.errors import APIError, invalid_parameter
from routing.asgi import Scope
from routing.ingress.apis.client_api import ClientAPI, PathPattern, is_shared
from routing.runtime import find_model, list_models

if TYPE_CHECKING:
    from fastapi import APIRouter

PREFIXES = ("/v1beta", "/v1")

_METHODS = {
    "generateContent": GENERATE,
    "countTokens": COUNT_TOKENS,
    "embedContent": EMBED,
    "batchEmbedContents": BATCH_EMBED,
}


def _add_routes(router: APIRouter) -> None:
    async def list_all(request: Request) -> dict[str, Any]:
        """Every model that can be asked for, aliases included; `pageSize` and `pageToken`."""
        size, token = (request.query_params.get(name, "") for name in ("pageSize", "pageToken"))
        if size and not (size.isascii() and size.isdecimal()):
            raise invalid_parameter("pageSize", f"Invalid value: {size[:20]!r}. Send a number.")
        models = await list_models(request)
        return render_models(models, int(size[:9] or 0), token)

    async def retrieve_model(request: Request, model_id: str) -> dict[str, Any]:
        """One model; ids may hold slashes."""
        return render_model(await find_model(request, model_id))

    async def call_another_method(model_id: str, method: str) -> None:
        """Any other method: 404, as at Google, with those that there are."""
        raise APIError(
            404,
            f"There is no method '{method[:100]}' for the model '{model_id[:200]}' here. There are"
            f" {', '.join((*_METHODS, 'streamGenerateContent'))}.",
        )

    for prefix in PREFIXES:
        router.add_api_route(
            f"{prefix}/models/{{model_id:path}}:{{method}}",
            call_another_method,
            methods=["POST"],
            include_in_schema=False,
        )
        for path, answer in (("", list_all), ("/{model_id:path}", retrieve_model)):
            router.add_api_route(
                f"{prefix}/models{path}",
                answer,
                tags=["gemini"],
                include_in_schema=prefix == "/v1beta",
                route_class_override=_GooglesRoute if prefix == "/v1" else None,
            )


class _GooglesRoute(APIRoute):
    """A route for those who send a header of Google's."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
        return super().matches(scope) if _is_googles(scope) else (Match.NONE, {})


def _is_googles(scope: Scope) -> bool:
    return any(name.startswith(b"x-goog-") for name, _ in scope["headers"])


_PATTERNS = tuple(
    # Ids may hold slashes and colons.
    PathPattern(
        re.compile(f"(?:{'|'.join(PREFIXES)})/models/(?P<model>.+):{method}"), operation, query
    )
    for method, operation, query in (
        *((method, operation, None) for method, operation in _METHODS.items()),
        ("streamGenerateContent", STREAM_EVENTS, ("alt", "sse")),
        ("streamGenerateContent", STREAM_ARRAY, None),
    )
)


_OWN_PATHS = re.compile(r"(?s)/*(?:v1(?:alpha|beta)|upload/v1(?:alpha|beta)?)[0-9]*(?:/.*)?")
"""Google's versions of the API, and where its clients put files: nobody else's paths begin so."""

_METHOD_CALL = re.compile(r"/v1/models/.+:[A-Za-z]+", re.DOTALL)
"""A call of one of Google's methods where OpenAI's clients only read."""


def _owns(scope: Scope) -> bool:
    path = scope["path"]
    if _OWN_PATHS.fullmatch(path):
        return True
    if not is_shared(path):
        return False
    return _is_googles(scope) or (scope["method"] == "POST" and bool(_METHOD_CALL.fullmatch(path)))


GEMINI_API = ClientAPI(
    name="gemini",
    dialect=GEMINI,
    owns=_owns,
    patterns=_PATTERNS,
    add_routes=_add_routes,
    summaries={
        f"{prefix}/models/{{model}}:{method}": summary
        for prefix in PREFIXES
        for method, summary in {
            "generateContent": "Say the next message of a conversation.",
            "streamGenerateContent": "The same as a stream; as events with `?alt=sse`.",
            "countTokens": "Count the tokens of a conversation.",
            "embedContent": "Embed one text.",
            "batchEmbedContents": "Embed texts.",
        }.items()
    },
    streams={
        f"{prefix}/models/{{model}}:streamGenerateContent": "text/event-stream"
        for prefix in PREFIXES
    },
)
