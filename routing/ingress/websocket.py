"""WebSockets, of which there are none: a plain answer that says so."""

from __future__ import annotations

from llama_compat.errors import APIError
from routing.asgi import Scope, Send


async def refuse_websocket(scope: Scope, send: Send) -> None:
    """Answer the request for a WebSocket with 426, or, where the server can't, with its own 403."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    error = APIError(
        426,
        f"There is no WebSocket at {scope['path']} yet. Send a POST, with 'stream' for a stream of"
        " events.",
        code="websocket_not_supported",
    )
    body = error.json()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "websocket.http.response.start", "status": 426, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
