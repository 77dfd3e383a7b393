"""A Redis of the tests' own: Debian's `redis-server`, on a socket in a folder that goes with it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    """

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        assert PROGRAM is not None
        command = [PROGRAM, "--port", "0", "--unixsocket", str(self._socket)]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._socket.parent)]
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


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """A Redis that is running."""
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
