"""JSON of requests that are answered beside the edge, and of their answers."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from llama_compat.dialects.base import Dialect
from llama_compat.off_loop import off_loop
from llama_compat.wire.json_fields import JSONFields
from routing.ingress.answer import request_id_of
from routing.ingress.body import parse_body, read_body
from routing.runtime import runtime_of


async def body_of(request: Request) -> JSONFields:
    """The members of the JSON object that a request is.

    Raises:
        APIError: 400, 408, 413, 503: it is none, or can't be had.
        ClientGone: the client left.
    """
    runtime = runtime_of(request)
    settings = runtime.settings
    with runtime.bodies.one() as held:
        body = await read_body(
            request.scope, request.receive, settings.max_body_bytes, held, settings.body_seconds
        )
        return await off_loop(len(body), parse_body, body)


def answered(request: Request, dialect: Dialect, value: dict[str, Any]) -> Response:
    """An answer that is `value`, with the headers that all of the dialect's answers have."""
    headers = dict(dialect.headers_of(request_id_of(request.scope)))
    return Response(json.dumps(value), headers=headers, media_type="application/json")
