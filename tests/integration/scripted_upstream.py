"""A vendor that does as it is told: a real HTTP server with one behaviour a model name.

It runs in a thread of the test process, with an event loop of its own. A request's model picks a
function of `BEHAVIOURS`, which writes the answer, to the byte where that matters. Every request is
kept with its headers and its body; tests find theirs by its `x-request-id`, wait for what happens
to it, and let behaviours that hold still go on.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.server_thread import ServerThread

WAIT_SECONDS = 20

REASONS = {200: "OK", 307: "Temporary Redirect", 429: "Too Many Requests"}


@dataclass
class Recorded:
    """One request as it arrived, and what became of it.

    Attributes:
        connection: the number of the connection that it came on, counted from 1.
        disconnected: set once the peer has closed the connection before the answer's end.
    """

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    disconnected: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def header(self, name: str) -> str | None:
        """The value of a header, by its name in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def json(self) -> Any:
        """The body, which has to be JSON."""
        return json.loads(self.body)

    def release(self) -> None:
        """Let a behaviour that holds still (`Exchange.held`) go on."""
        self._released.set()

    def wait_until_disconnected(self) -> None:
        """Wait until the peer has closed the connection; it has to."""
        assert self.disconnected.wait(WAIT_SECONDS), "the upstream connection is still open"


class Afterwards(Enum):
    """What becomes of the connection when an answer is written."""

    KEEP_OPEN = "keep open"
    CLOSE = "close"
    CLOSE_WHEN_REUSED = "close when the next request arrives, without an answer"


class Exchange:
    """One request and the writing of its answer."""

    def __init__(self, recorded: Recorded, writer: asyncio.StreamWriter) -> None:
        self.request = recorded
        self._writer = writer
        self._chunked = False
        self.afterwards = Afterwards.KEEP_OPEN

    @property
    def body(self) -> dict[str, Any]:
        """The request's JSON, empty where it has none."""
        return json.loads(self.request.body) if self.request.body else {}

    @property
    def wants_stream(self) -> bool:
        """Whether the request asks for a stream."""
        return bool(self.body.get("stream"))

    @property
    def wants_usage(self) -> bool:
        """Whether the request asks for a stream's last chunk to hold the usage."""
        return bool((self.body.get("stream_options") or {}).get("include_usage"))

    async def raw(self, data: bytes) -> None:
        """Write bytes as they are, past all framing."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Write the status line and the headers."""
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def reply(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: str = "application/json",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Write a whole reply."""
        length = ("Content-Length", str(len(body)))
        await self.head(status, [("Content-Type", content_type), length, *headers])
        await self.raw(body)

    async def json(
        self, value: Any, *, status: int = 200, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Write a whole reply of JSON."""
        await self.reply(json.dumps(value).encode(), status=status, headers=headers)

    async def start_stream(self, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Write the head of a stream, whose bytes follow with `send`."""
        framing = ("Transfer-Encoding", "chunked")
        await self.head(200, [("Content-Type", "text/event-stream"), framing, *headers])
        self._chunked = True

    async def send(self, data: bytes) -> None:
        """Write bytes of a stream, as one chunk of HTTP's."""
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, value: Any) -> None:
        """Write one event with `value` as JSON."""
        await self.send(b"data: " + json.dumps(value).encode() + b"\n\n")

    async def done(self) -> None:
        """Write the event that ends OpenAI's streams."""
        await self.send(b"data: [DONE]\n\n")

    async def end(self) -> None:
        """End a stream's bytes as HTTP has it, if one was begun."""
        if self._chunked:
            await self.raw(b"0\r\n\r\n")
            self._chunked = False

    async def held(self) -> None:
        """Hold still until the test lets go."""
        await asyncio.to_thread(self.request._released.wait)

    @property
    def released(self) -> bool:
        """Whether the test has let go."""
        return self.request._released.is_set()

    async def pause(self) -> None:
        """Wait a moment, shorter than any timeout."""
        await asyncio.sleep(0.02)

    def cut(self) -> None:
        """Break the connection: the peer gets a TCP reset."""
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()
        self._writer.transport.abort()

    def close(self) -> None:
        """Close the connection in order, wherever the answer stands."""
        self._chunked = False
        self.afterwards = Afterwards.CLOSE


Behaviour = Callable[[Exchange], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(answer: Behaviour) -> Behaviour:
    """Make `answer` what the model of its name does, with `-` for each `_`."""
    BEHAVIOURS[answer.__name__.replace("_", "-")] = answer
    return answer


def at_path(path: str) -> Callable[[Behaviour], Behaviour]:
    """Make a function the answer to requests without a body for `path`."""

    def register(answer: Behaviour) -> Behaviour:
        BEHAVIOURS[path] = answer
        return answer

    return register


class ScriptedUpstream(ServerThread):
    """The server; a context manager that runs it.

    Args:
        tls: to speak HTTPS.
        port: where to listen; a free one by default.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._tls = tls
        self.port = port
        self.connections = 0
        self._recorded: list[Recorded] = []
        self._open: set[int] = set()
        self._arrived = threading.Condition()

    @property
    def url(self) -> str:
        """Where it listens, with OpenAI's `/v1`."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    def requests(self, request_id: str) -> list[Recorded]:
        """The requests that came with this `x-request-id` so far."""
        with self._arrived:
            return [one for one in self._recorded if one.header("x-request-id") == request_id]

    def request(self, request_id: str) -> Recorded:
        """The request with this `x-request-id`, waited for; the first where there are several."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self.requests(request_id), WAIT_SECONDS)
        return self.requests(request_id)[0]

    def wait_until_closed(self, connection: int) -> None:
        """Wait until the connection of that number is closed; it has to be."""
        with self._arrived:
            closed = self._arrived.wait_for(lambda: connection not in self._open, WAIT_SECONDS)
        assert closed, f"connection {connection} is still open"

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[int]:
        self._serving: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=self._tls)
        yield server.sockets[0].getsockname()[1]
        server.close()
        for recorded in self._recorded:
            recorded.release()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self.connections += 1
        number = self.connections
        connection = _Connection(number, reader, writer, self._record)
        with self._arrived:
            self._open.add(number)
        try:
            await connection.serve()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with self._arrived:
                self._open.discard(number)
                self._arrived.notify_all()

    def _record(self, recorded: Recorded) -> None:
        with self._arrived:
            self._recorded.append(recorded)
            self._arrived.notify_all()


class _Connection:
    """One client connection: its requests are read, recorded and answered one after another."""

    def __init__(
        self,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        record: Callable[[Recorded], None],
    ) -> None:
        self._number = number
        self._reader = reader
        self._writer = writer
        self._record = record
        self._begun = b""

    async def serve(self) -> None:
        while (recorded := await self._read_request()) is not None:
            self._record(recorded)
            afterwards = await self._answer(recorded)
            if afterwards is Afterwards.CLOSE_WHEN_REUSED and not self._begun:
                await self._reader.read(1)
            if afterwards is not Afterwards.KEEP_OPEN:
                return

    async def _read_request(self) -> Recorded | None:
        self._begun = self._begun or await self._reader.read(1)
        if not self._begun.isalpha():
            # The peer is gone, or speaks something else, such as TLS.
            return None
        head = self._begun + await self._reader.readuntil(b"\r\n\r\n")
        self._begun = b""
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ")
        headers = [
            (name, value.strip()) for name, _, value in (line.partition(":") for line in lines)
        ]
        recorded = Recorded(method, path, headers, b"", self._number)
        if recorded.header("transfer-encoding") == "chunked":
            recorded.body = await self._read_chunks()
        else:
            length = int(recorded.header("content-length") or 0)
            recorded.body = await self._reader.readexactly(length)
        return recorded

    async def _read_chunks(self) -> bytes:
        body = b""
        while size := int(await self._reader.readline(), 16):
            body += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return body

    async def _answer(self, recorded: Recorded) -> Afterwards:
        """Let the behaviour answer, for as long as the client is there."""
        exchange = Exchange(recorded, self._writer)
        answering = asyncio.create_task(_behave(exchange))
        watching = asyncio.create_task(self._reader.read(1))
        try:
            await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
            broken = answering.done() and isinstance(answering.exception(), ConnectionError)
            if broken or not answering.done():
                recorded.disconnected.set()
                return Afterwards.CLOSE
            answering.result()
            if watching.done() and watching.exception() is None:
                self._begun = watching.result()
            return exchange.afterwards
        finally:
            recorded.release()
            answering.cancel()
            watching.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)


async def _behave(exchange: Exchange) -> None:
    if exchange.request.body:
        # Some vendors' ids have more before the name.
        name = exchange.body["model"].rpartition("/")[2]
    else:
        name = exchange.request.path
    await BEHAVIOURS[name](exchange)
    await exchange.end()
