"""The body of a request."""

from __future__ import annotations

from llama_compat.errors import APIError, request_too_large
from llama_compat.wire.json_fields import JSONFields, parse_fields
from routing.asgi import Receive, Scope
from routing.ingress.disconnect import ClientGone


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body of a request.

    Raises:
        APIError: 413 as soon as it is known to be over `limit` bytes.
        ClientGone: the client left before it had sent everything.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > limit:
            raise request_too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise request_too_large(limit)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def parse_body(body: bytes) -> JSONFields:
    """The members of the JSON object that a request is.

    Raises:
        APIError: 400, it is none.
    """
    try:
        return parse_fields(body)
    except ValueError as error:
        raise APIError(
            400,
            f"The request body must be a JSON object: {error}.",
            code="invalid_json",
        ) from None
