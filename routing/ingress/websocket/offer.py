"""Whether a request becomes a WebSocket; where there is none, a plain answer that says so."""

from __future__ import annotations

from urllib.parse import urlsplit

from llama_compat.distribution import ServerSettings
from llama_compat.errors import APIError
from routing.asgi import UPGRADE, Scope, Send, headers_by_name


def wants_websocket(scope: Scope) -> bool:
    """Whether a request would become one."""
    return b"websocket" in headers_by_name(scope).get(b"upgrade", b"").lower()


def offers_websocket(scope: Scope, settings: ServerSettings) -> bool:
    """Whether a request would become one, and server and template have them."""
    return (
        settings.websockets is not None
        and wants_websocket(scope)
        and UPGRADE in scope.get("extensions", {})
    )


def check_origin(scope: Scope, settings: ServerSettings) -> None:
    """Let web pages have none but those that the template names, and the server's own.

    A browser asks nobody before it opens one, and lets the page read it: where there are no keys,
    every page that somebody looks at would be let in.

    Raises:
        APIError: 403.
    """
    headers = headers_by_name(scope)
    origin = headers.get(b"origin", b"").decode("latin-1")
    if not origin or urlsplit(origin).netloc == headers.get(b"host", b"").decode("latin-1"):
        return
    allowed = settings.cors.origins if settings.cors is not None else []
    if "*" not in allowed and origin not in allowed:
        raise APIError(
            403,
            "A web page of this origin may open no WebSocket here. Name the origin in the template,"
            " under `server.cors.origins`.",
            code="origin_not_allowed",
        )


def no_websocket(scope: Scope) -> APIError:
    """426: there is no WebSocket at this path."""
    return APIError(
        426,
        f"There is no WebSocket at {scope['path']}. Send a POST, with 'stream' for a stream of"
        " events.",
        code="websocket_not_supported",
    )


async def refuse_websocket(scope: Scope, send: Send) -> None:
    """Tell so on the connection of a server that takes WebSockets itself; ours passes a GET."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    error = no_websocket(scope)
    body = error.json()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "websocket.http.response.start", "status": 426, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
