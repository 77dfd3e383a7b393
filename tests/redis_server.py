"""A Redis of the tests' own: Debian's `redis-server`, on a socket in a folder that goes with it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")

needs_redis = pytest.mark.skipif(
    PROGRAM is None, reason="there is no redis-server here (apt install redis-server)"
)

START_SECONDS = 20.0


class RedisServer:
    """The process, at `url`; it may be killed and started again.

    Args:
        folder: for its socket; it keeps nothing there but what it is told to with `SAVE`.
        port: for replicas; 0 for none.
        replica_of: the port of the one that it is a replica of.
    """

    def __init__(self, folder: Path, port: int = 0, replica_of: int = 0) -> None:
        self._socket = folder / "redis.sock"
        self._port = port
        self._replica_of = replica_of
        self.path = str(self._socket)
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        assert PROGRAM is not None
        command = [PROGRAM, "--port", str(self._port), "--unixsocket", str(self._socket)]
        if self._replica_of:
            command += ["--replicaof", "127.0.0.1", str(self._replica_of)]
        command += [
            "--repl-diskless-sync-delay",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            str(self._socket.parent),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._listens():
            assert self._process.poll() is None, "redis-server ended"
            assert time.monotonic() < deadline, "redis-server does not listen"
            time.sleep(0.01)

    def _listens(self) -> bool:
        # The file is there a moment before anybody listens.
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._socket)) == 0

    def pause(self) -> None:
        """Let it answer nothing any more until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after a `pause`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._socket.unlink(missing_ok=True)


class RedisWay:
    """A way to a Redis, on which answers take as long as one wants, and that may lead elsewhere
    one day, as the name of a Redis does that has failed over.

    Args:
        folder: for its socket.
        server: where it leads.

    Attributes:
        url: of the Redis, over this way.
        delay: seconds that an answer takes longer.
    """

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self._path = str(folder / "way.sock")
        self.url = f"unix://{self._path}"
        self.delay = 0.0
        self._server = server
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[RedisWay]:
        """Itself, while it leads there."""
        async with await asyncio.start_unix_server(self._carry, self._path):
            yield self
            self._cut()

    def lead_to(self, server: RedisServer) -> None:
        """Lead elsewhere; who was there hears that the connection is closed."""
        self._server = server
        self._cut()

    def _cut(self) -> None:
        for each in self._open:
            each.close()

    async def _carry(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            server, there = await asyncio.open_unix_connection(self._server.path)
        except OSError:
            back.close()
            return
        self._open |= {back, there}

        async def carry(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delays: bool
        ) -> None:
            while data := await reader.read(1 << 16):
                if delays and self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)

        ways = [
            asyncio.create_task(carry(client, there, False)),
            asyncio.create_task(carry(server, back, True)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        self._open -= {back, there}
        there.close()
        back.close()


@contextmanager
def redis_server(folder: Path, port: int = 0, replica_of: int = 0) -> Iterator[RedisServer]:
    """A Redis that is running."""
    server = RedisServer(folder, port, replica_of)
    server.start()
    try:
        yield server
    finally:
        server.kill()
