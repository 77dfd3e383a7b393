"""What the connections of one server have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.server import ServerState as UvicornState

from routing.asgi import ASGIApplication
from routing.http.limits import Limits
from routing.http.repeats import Repeats

if TYPE_CHECKING:
    from routing.http.connection import Connection
    from routing.http.websocket import WebSocket


class ServerState(UvicornState):
    """What the connections of one server share, with what uvicorn's `Server` counts and sets.

    Args:
        application: answers the requests.
        limits: what a client may ask for.

    Attributes:
        connections: those that are open.
        idle: of them those of whose next request the head has not come, or on which nothing is
            asked, in the order since when.
        tasks: the requests that are answered.
        repeats: requests that may come again.
        default_headers: those of every answer; uvicorn keeps the date in them.
        ending: no more requests are taken.
    """

    def __init__(self, application: ASGIApplication, limits: Limits) -> None:
        super().__init__()
        self.application = application
        self.limits = limits
        self.connections: set[Any] = set()
        self.idle: dict[Connection | WebSocket, None] = {}
        self.repeats = Repeats()
        self.ending = False
