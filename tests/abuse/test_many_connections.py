"""Connections are bounded, and no number of them ends service."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.abuse.connections import (
    HEALTH,
    connect,
    connected,
    post,
    read_all,
    read_answer,
)
from tests.abuse.watch import descriptors
from tests.integration.server_process import COMMAND, ServerProcess, running, write_template

ECHO: dict[str, Any] = {
    "providers": [{"id": "echo", "type": "local::echo"}],
    "models": [{"id": "echo", "provider": "echo"}],
}

LIMITED = """\
#!{python}
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({count}, {count}))
os.execv({command!r}, [{command!r}, *sys.argv[1:]])
"""


@contextmanager
def with_descriptors(path: Path, count: int, **server: Any) -> Iterator[ServerProcess]:
    """A server whose process may open only so many files and sockets."""
    script = path / "limited"
    script.write_text(LIMITED.format(python=sys.executable, command=COMMAND, count=count))
    script.chmod(0o755)
    template = write_template(path / "echo.yaml", server=server, **ECHO)
    process = ServerProcess(template, executable=str(script))
    try:
        process.wait_until_ready()
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log
    finally:
        process.kill()


def test_silent_connections_end_no_service_where_descriptors_are_few(tmp_path: Path) -> None:
    with with_descriptors(tmp_path, 64) as server:
        server.wait_for_log("may open 64 files and sockets")
        with connected(server, 120):
            for _ in range(3):
                assert server.health()["status"] == "ok"
            server.wait_for_log("to make room")
            assert descriptors(server) < 64
        assert server.health()["status"] == "ok"


def test_the_idle_make_room_for_the_next(tmp_path: Path) -> None:
    template = write_template(tmp_path / "echo.yaml", server={"max_connections": 8}, **ECHO)
    with running(template) as server, connected(server, 40) as connections:
        assert server.health()["status"] == "ok"
        # The first have gone, in their order; the last are there.
        assert read_all(connections[0]) == b""
        connections[-1].sendall(HEALTH)
        assert read_answer(connections[-1]).startswith(b"HTTP/1.1 200 ")
        server.wait_for_log("to make room: 8 are open")


def test_where_all_are_busy_one_more_is_told_so(tmp_path: Path) -> None:
    template = write_template(
        tmp_path / "echo.yaml",
        server={"max_connections": 4},
        providers=[{"id": "echo", "type": "local::echo", "config": {"delay_ms": 200}}],
        models=ECHO["models"],
    )
    chat = {"model": "echo", "messages": [{"role": "user", "content": "word " * 1000}]}
    body = json.dumps({**chat, "stream": True}).encode()
    with running(template) as server:
        with connected(server, 4) as busy:
            for connection in busy:
                connection.sendall(post(body))
                assert read_answer(connection).startswith(b"HTTP/1.1 200 ")
            with connect(server) as one_more:
                answer = read_all(one_more)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in answer
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == (
                "too_many_connections"
            )
            server.wait_for_log("4 connections are open (max_connections)")
        server.wait_for_log("client disconnected")
        server.wait_until_ready()
