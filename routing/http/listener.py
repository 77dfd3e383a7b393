"""Takes connections, as many as there may be, and never stops doing so."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import suppress

from llama_compat.connection_errors import too_many_connections
from llama_compat.going_on import going_on
from routing.http.connection import Connection
from routing.http.exchange import STATUS_LINES
from routing.http.state import ServerState
from routing.observability.logs import BoundedLog

log = BoundedLog(logging.getLogger(__name__))

BACKLOG = 2048

TAKEN_AT_ONCE = 32
"""Connections that are accepted before the requests of others get their turn."""

PAUSE_SECONDS = 0.1
"""Where a connection can't be accepted for want of descriptors or memory, which may pass."""

_WANT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """Accepts from a socket that is bound already.

    At the bound on connections, the one that has been idle for longest makes room: so silent
    connections, however many, take nobody's place for long. Where none is idle, the new one is
    told so and closed. Other processes may accept from the same socket.
    """

    def __init__(self, listener: socket.socket, server: ServerState) -> None:
        self._listener = listener
        self._server = server
        self._accepting: asyncio.Task[None] | None = None
        self._taking: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to accept."""
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._accepting = asyncio.create_task(going_on("connections", self._accept_on))

    def close(self) -> None:
        """Accept no more."""
        if self._accepting is not None:
            self._accepting.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is accepted any more."""
        tasks = self._taking if self._accepting is None else {self._accepting, *self._taking}
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno in _WANT:
                    log.warning("can't take a connection (%s); trying again", error.strerror)
                    self._make_room()
                # Else the client has left before its turn.
                await asyncio.sleep(PAUSE_SECONDS if error.errno in _WANT else 0)
                continue
            for each in [accepted, *self._others_waiting()]:
                await self._admit(each)

    def _others_waiting(self) -> list[socket.socket]:
        waiting: list[socket.socket] = []
        with suppress(OSError):
            while len(waiting) < TAKEN_AT_ONCE:
                waiting.append(self._listener.accept()[0])
        return waiting

    async def _admit(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        limit = self._server.limits.max_connections
        if self._taking and len(self._server.connections) + len(self._taking) >= limit:
            await asyncio.wait(self._taking)
        there_are = len(self._server.connections) + len(self._taking)
        if there_are >= limit and not self._make_room():
            log.warning("a client is refused: %s connections are open (max_connections)", limit)
            _refuse(accepted, limit)
            return
        # A task of its own: one that is taken half-way could not be closed any more.
        taking = asyncio.create_task(self._take(accepted))
        self._taking.add(taking)
        taking.add_done_callback(self._taking.discard)

    async def _take(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: Connection(self._server), accepted)
        except OSError:
            accepted.close()

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest, if one is."""
        for idle in self._server.idle:
            log.info(
                "an idle connection is closed to make room: %s are open",
                len(self._server.connections),
            )
            idle.abort()
            return True
        return False


def _refuse(accepted: socket.socket, limit: int) -> None:
    error = too_many_connections(limit)
    body = error.json()
    head = "".join(f"{name}: {value}\r\n" for name, value in error.headers.items())
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    with accepted, suppress(OSError):
        accepted.send(STATUS_LINES[503] + head.encode() + b"connection: close\r\n\r\n" + body)
        accepted.shutdown(socket.SHUT_WR)
        accepted.recv(65536)  # what is unread when it closes would reset it under the answer
