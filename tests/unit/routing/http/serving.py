"""Connections over real sockets in the test's own event loop, and a scripted application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from routing.http.connection import Connection
from routing.http.limits import Limits
from routing.http.state import ServerState

LIMITS = {
    "max_connections": 10,
    "max_header_bytes": 1024,
    "max_headers": 10,
    "header_seconds": 10,
    "body_seconds": 20,
    "idle_seconds": 30,
    "write_seconds": 40,
}

Answering = Callable[[Any, Any, Any], Awaitable[None]]


async def respond(send: Any, body: bytes = b"yes", status: int = 200) -> None:
    """A whole answer with its length."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


class Script:
    """An application that notes what it is asked, and answers with the path and the body.

    Attributes:
        asked: the scope and the body of each request.
        gone: how many clients left before their answer.
        go_on: answers wait for it.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, Any], bytes]] = []
        self.gone = 0
        self.late = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                if message.get("late"):
                    self.late += 1
                    await respond(send, b"late", 408)
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.asked.append((scope, body))
        if not self.go_on.is_set():
            waiting = asyncio.create_task(self.go_on.wait())
            leaving = asyncio.create_task(receive())
            await asyncio.wait([waiting, leaving], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            leaving.cancel()
            if not self.go_on.is_set():
                self.gone += 1
                return
        await respond(send, scope["path"].encode() + b":" + body)


class Client:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """Status, headers and body of the next answer, which has to tell its length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get(b"content-length", 0)))
        return int(first.split()[1]), headers, body

    async def rest(self) -> bytes:
        return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


class Serving:
    """The server's side: its state, and the connections as they come."""

    def __init__(self, state: ServerState, port: int) -> None:
        self.state = state
        self.port = port
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24))
        self.clients.append(client)
        await until(lambda: len(self.state.connections) >= len(self.clients))
        return client

    @property
    def connection(self) -> Connection:
        """The only one there is."""
        (connection,) = self.state.connections
        assert isinstance(connection, Connection)
        return connection


@asynccontextmanager
async def serving(application: Answering, **limits: Any) -> AsyncIterator[Serving]:
    """Serve `application` on a port of its own."""
    state = ServerState(application, Limits(**{**LIMITS, **limits}))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", 0)
    one = Serving(state, server.sockets[0].getsockname()[1])
    try:
        async with asyncio.timeout(30):
            yield one
    finally:
        for client in one.clients:
            client.close()
        server.close()
        for connection in list(state.connections):
            connection.abort()
        for task in state.tasks:
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go round until `condition` holds."""
    while not condition():  # noqa: ASYNC110 (what is waited for is no event of asyncio's)
        await asyncio.sleep(0.001)
