"""WebSockets, of which there are none: a plain answer that says so."""

from __future__ import annotations

from llama_compat.errors import APIError
from routing.asgi import Scope, Send


def no_websocket(scope: Scope) -> APIError:
    """426: there is no WebSocket at this path."""
    return APIError(
        426,
        f"There is no WebSocket at {scope['path']} yet. Send a POST, with 'stream' for a stream of"
        " events.",
        code="websocket_not_supported",
    )


async def refuse_websocket(scope: Scope, send: Send) -> None:
    """Tell so on the connection of a server that takes WebSockets; ours passes them as a GET."""
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
