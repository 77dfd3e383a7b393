"""A gateway under test as a process of its own: ours, and the bare relay beside it.

Other people's gateways are in `bench.load.others`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import end, resident_mib, start_pinned
from providers.remote.http1.connection import READ_BUFFER_BYTES

ROOT = Path(__file__).parents[2]

OURS_TEMPLATE = """\
version: 1
server: {{port: {port}, max_connections: {max_connections}}}
providers:
  - id: upstream
    type: remote::openai
    config:
      {{base_url: "{upstream}/v1", api_key: sk-benchmark, max_connections: {max_connections}}}
models:
  - {{id: model, provider: upstream, provider_model: upstream-model}}
"""


@dataclass(frozen=True)
class Gateway:
    """How a gateway is started, and how its chat completions are asked for.

    Attributes:
        port: where it listens; None if it chooses that itself, and writes `listening at URL`.
        command: starts it.
        model: what it calls the model.
        path: of its chat completions.
        headers: that it wants of a client.
        slow: whether it is given less to do, so that a round ends.
    """

    name: str
    port: int | None
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = "model"
    path: str = "/v1/chat/completions"
    headers: Mapping[str, str] = field(default_factory=dict)
    slow: bool = False


@dataclass(frozen=True)
class Started:
    """A gateway that runs.

    Attributes:
        url: of its chat completions.
        start_s: from its start to its first answer to a request.
        resident_mib: its memory then.
    """

    gateway: Gateway
    pid: int
    url: str
    start_s: float
    resident_mib: float


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def bare_relay(upstream: str, port: int) -> Gateway:
    """Thirty lines of ASGI and aiohttp under the server that we use too."""
    quiet = ("--no-access-log", "--log-level", "warning")
    command = [
        *(sys.executable, "-m", "uvicorn", "bench.load.bare_relay:app"),
        *("--port", str(port), "--loop", "uvloop", "--http", "httptools", *quiet),
    ]
    # As much is read ahead as by ours, so that neither has to read a fast stream more often.
    environment = {"UPSTREAM": upstream, "READ_BUFFER_BYTES": str(READ_BUFFER_BYTES)}
    return Gateway("bare relay", port, command, environment)


def ours(
    upstream: str, port: int, scratch: Path, workers: int = 1, max_connections: int = 1000
) -> Gateway:
    """This project, its access log written as it is by default."""
    template = scratch / f"ours-{port}.yaml"
    template.write_text(
        OURS_TEMPLATE.format(upstream=upstream, port=port, max_connections=max_connections)
    )
    command = [str(Path(sys.executable).with_name("llama-compat")), "run", str(template)]
    return Gateway("llama_compat", port, [*command, "--workers", str(workers)])


@contextmanager
def running(gateway: Gateway, cores: set[int], log: Path) -> Iterator[Started]:
    """Run `gateway` on `cores` alone; what it says goes to the file `log`."""
    environment = {**os.environ, **gateway.environment}
    begun = time.perf_counter()
    with log.open("wb") as output:
        process = start_pinned(
            list(gateway.command), cores, env=environment, stdout=output, stderr=output, cwd=ROOT
        )
        try:
            url = _wait_until_it_answers(gateway, process, log)
            took = time.perf_counter() - begun
            memory = resident_mib(process.pid)
            yield Started(gateway, process.pid, url, round(took, 2), round(memory, 1))
        finally:
            end(process)


def _wait_until_it_answers(
    gateway: Gateway, process: subprocess.Popen[bytes], log: Path, patience: float = 180
) -> str:
    body = json.dumps({"model": gateway.model, "messages": [_HELLO], "max_tokens": 1}).encode()
    headers = {"content-type": "application/json", **gateway.headers}
    deadline = time.monotonic() + patience
    error: object = "it does not say where it listens"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{gateway.name} ended at once:\n{log.read_text()[-2000:]}")
        port = gateway.port or _port_in(log)
        url = f"http://127.0.0.1:{port}{gateway.path}"
        try:
            if port:
                request = urllib.request.Request(url, body, headers)
                urllib.request.urlopen(request, timeout=10).close()
                return url
        except OSError as refused:  # not listening yet, or with nothing behind it yet
            error = refused
        time.sleep(0.02)
    raise RuntimeError(f"{gateway.name} does not answer ({error}):\n{log.read_text()[-2000:]}")


def _port_in(log: Path) -> int | None:
    found = _LISTENING.search(log.read_text())
    return int(found[1]) if found else None


_LISTENING = re.compile(r"listening at http://127\.0\.0\.1:(\d+)")
_HELLO = {"role": "user", "content": "Hello"}
