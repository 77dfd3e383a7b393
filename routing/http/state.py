"""What the connections of one server have in common."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from routing.asgi import ASGIApplication
from routing.http.limits import Limits

if TYPE_CHECKING:
    from routing.http.connection import Connection
    from routing.http.websocket import WebSocket


class ServerState:
    """What the connections of one server share; uvicorn's `Server` takes it for its own.

    Args:
        application: answers the requests.
        limits: what a client may ask for.

    Attributes:
        connections: those that are open.
        idle: of them those of whose next request the head has not come, or on which nothing is
            asked, in the order since when.
        tasks: the requests that are answered.
        default_headers: those of every answer; uvicorn keeps the date in them.
        total_requests: uvicorn's to read, for a limit that is not set.
        ending: no more requests are taken.
    """

    def __init__(self, application: ASGIApplication, limits: Limits) -> None:
        self.application = application
        self.limits = limits
        self.connections: set[Any] = set()
        self.idle: dict[Connection | WebSocket, None] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.default_headers: list[tuple[bytes, bytes]] = []
        self.total_requests = 0
        self.ending = False
