"""A server that does to the byte what a script says, connection by connection."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from providers.remote import http1

TLS = Path(__file__).parents[4] / "integration" / "tls"
CERTIFICATE = TLS / "certificate.pem"

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
NO_HEADERS = http1.encode_headers({})


def server_tls() -> ssl.SSLContext:
    """For servers: a certificate for 127.0.0.1 and localhost that signs itself."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE, TLS / "key.pem")
    return context


def client_tls() -> ssl.SSLContext:
    """For clients that trust it."""
    context = http1.new_tls_context()
    context.load_verify_locations(CERTIFICATE)
    return context


class Peer:
    """The server's side of one connection.

    Attributes:
        number: counted from 1.
    """

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer

    async def request(self) -> tuple[bytes, bytes]:
        """The next request's head and body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return head, await self.reader.readexactly(length)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Break the connection: the peer gets a TCP reset."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def left(self) -> None:
        """Wait until the peer has closed the connection."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionError:
            pass


Script = Callable[[Peer], Awaitable[None]]


class Server:
    """A running script.

    Attributes:
        connections: how many were accepted.
        open: how many are open now.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone = asyncio.Condition()
        self.connections = 0
        self.open = 0
        self.port = 0
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def route(self) -> http1.NetworkRoute:
        return http1.NetworkRoute(http1.parse_url(self.url).origin)

    async def all_left(self) -> None:
        """Wait until no connection is open."""
        async with self._gone:
            await asyncio.wait_for(self._gone.wait_for(lambda: not self.open), 5)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self.open += 1
        try:
            await self._script(Peer(self.connections, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort() if writer.is_closing() else writer.close()
            self.open -= 1
            async with self._gone:
                self._gone.notify_all()

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server that runs `script` for each connection, which closes when the script ends."""
    server = Server(script)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    server.scheme = "https" if tls else "http"
    try:
        yield server
    finally:
        listening.close()
        await server.stop()


@asynccontextmanager
async def client_with(
    timeouts: http1.Timeouts | None = None, **settings: object
) -> AsyncIterator[http1.Client]:
    """A client, which has to leave nothing behind."""
    client = http1.Client(timeouts=timeouts, **settings)  # type: ignore[arg-type]
    before = asyncio.all_tasks()
    try:
        yield client
    finally:
        await client.close()
        assert client.counts == (0, 0, 0)
        ours = {
            task
            for task in asyncio.all_tasks() - before
            if "http1" in getattr(task.get_coro(), "__qualname__", "")
            or (task.get_name().startswith(("dial ", "addresses of ")))
        }
        assert not ours


async def ask(
    client: http1.Client,
    server: Server,
    body: bytes | None = None,
    target: str = "/",
    *,
    idempotent: bool = False,
) -> bytes:
    """The whole body of an answer."""
    method = "GET" if body is None else "POST"
    response = await client.send(
        method, server.route, target, NO_HEADERS, body, idempotent=idempotent
    )
    try:
        return await response.read()
    finally:
        response.close()


async def answers(peer: Peer) -> None:
    """Answer every request with its own body, or "ok"."""
    while True:
        _, body = await peer.request()
        await peer.send(OK if not body else b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (
            len(body), body
        ))  # fmt: skip


async def until(happened: Callable[[], bool]) -> None:
    """Wait until something has happened, which it has to."""
    async with asyncio.timeout(5):
        while not happened():  # noqa: ASYNC110 (what happens has no event to wait for)
            await asyncio.sleep(0.001)
