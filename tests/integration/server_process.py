"""A `llama-compat run` process: started, waited for, and ended with a signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import yaml

from llama_compat.distribution import template_path
from tests.forked import TORCH, Forked
from tests.integration import wire

COMMAND = str(Path(sys.executable).with_name("llama-compat"))

START_SECONDS = 120
STOP_SECONDS = 30
LOG_SECONDS = 60


class ServerFailed(Exception):
    """The process did not do what it should; the message holds its log."""


class ServerProcess:
    """One server process on a port of its own.

    Args:
        template: a template's name or path.
        env: variables beside those of this process.
        options: more of the command line.
        executable: the console script, such as `COMMAND`, where it matters how a server starts; by
            default the server is a fork of a process that has imported what it needs.
        port: where to listen; a free port if None.
        first: a module that a fork imports before it serves.
    """

    ports: ClassVar[set[int]] = set()
    """Those of all servers that the tests have started."""

    def __init__(
        self,
        template: str | Path,
        *,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        executable: str | None = None,
        port: int | None = None,
        first: str | None = None,
    ) -> None:
        self.port = port or free_port()
        self.ports.add(self.port)
        self.url = f"http://127.0.0.1:{self.port}"
        self.base_url = f"{self.url}/v1/openai/v1"
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 (read until the tests are over)
        self.command = [executable or COMMAND, "run", str(template), "--host", "127.0.0.1"]
        self.command += ["--port", str(self.port), *options]
        whole = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self.process: Forked | subprocess.Popen[bytes]
        if executable is None and sys.platform == "linux":
            self.process = Forked(
                self.command,
                env=whole,
                output=self._log.fileno(),
                imported=_imported(template),
                first=first,
            )
        else:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=whole,
            )

    @property
    def log(self) -> str:
        """All that the process has written so far."""
        # The process shares the file's offset, so it is read by position instead of seeking.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def wait_for_log(self, text: str) -> str:
        """Wait until a line of the log holds `text`; that line.

        A request is logged when it has been answered: the client may be faster.
        """
        deadline = time.monotonic() + LOG_SECONDS
        while time.monotonic() < deadline:
            for line in self.log.splitlines():
                if text in line:
                    return line
            time.sleep(0.01)
        raise self._failure(f"has no line with {text!r} in its log")

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait for `GET /health` to answer 200.

        Raises:
            ServerFailed: the process ended, or is not ready in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise self._failure(f"ended with exit code {self.process.returncode}")
            try:
                if wire.request("GET", f"{self.url}/health").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise self._failure(f"was not ready within {seconds} s")

    def health(self, key: str = "") -> dict[str, Any]:
        """The body of `GET /health`, to who has the key `key`."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        reply = wire.request("GET", f"{self.url}/health", headers=headers).json()
        assert isinstance(reply, dict)
        return reply

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process; SIGINT, as a terminal's Ctrl-C, to its children too."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for the process to end; its exit code.

        Raises:
            ServerFailed: it is still there after `seconds`; it is killed.
        """
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"did not end within {seconds} s") from None

    def stop(self) -> int:
        """End the process with SIGTERM; its exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End the process at once, if it is still there."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _failure(self, what: str) -> ServerFailed:
        return ServerFailed(f"`{' '.join(self.command)}` {what}. Its log:\n{self.log}")


def _imported(template: str | Path) -> tuple[str, ...]:
    try:
        return TORCH if "local::torch" in template_path(str(template)).read_text("utf-8") else ()
    except (OSError, UnicodeError):
        return ()  # which is what the server is to say


@contextmanager
def running(
    template: str | Path,
    *,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    executable: str | None = None,
) -> Iterator[ServerProcess]:
    """A server that is ready; afterwards it has to end on SIGTERM with exit code 0.

    A test may have ended it already, and seen to the exit code itself.
    """
    server = ServerProcess(template, env=env, options=options, executable=executable)
    try:
        server.wait_until_ready()
        yield server
        if server.process.poll() is None:
            code = server.stop()
            assert code == 0, f"exit code {code} after SIGTERM. The log:\n{server.log}"
    finally:
        server.kill()


def write_template(path: Path, **sections: Any) -> Path:
    """Write a template with these sections to `path`, which is returned."""
    path.write_text(yaml.safe_dump({"version": 1, **sections}, sort_keys=False))
    return path


def free_port() -> int:
    """A port of 127.0.0.1 where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port
