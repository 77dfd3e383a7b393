"""A log that nobody reads stops nothing; what anybody can cause does not fill it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.abuse.connections import HEALTH, connect
from tests.integration import wire
from tests.integration.server_process import COMMAND, ServerProcess, running, write_template

INTO_A_PIPE = """\
#!{python}
import os, sys
os.dup2(os.open({pipe!r}, os.O_RDWR), 2)
os.execv({command!r}, [{command!r}, *sys.argv[1:]])
"""

ECHO: dict[str, Any] = {
    "providers": [{"id": "echo", "type": "local::echo"}],
    "models": [{"id": "echo", "provider": "echo"}],
}


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[tuple[ServerProcess, int]]:
    """A server whose log is a pipe, and the end of the pipe that nobody reads."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = tmp_path / "into-a-pipe"
    script.write_text(INTO_A_PIPE.format(python=sys.executable, pipe=str(pipe), command=COMMAND))
    script.chmod(0o755)
    template = write_template(tmp_path / "echo.yaml", **ECHO)
    server = ServerProcess(template, executable=str(script))
    try:
        server.wait_until_ready()
        yield server, reader
    finally:
        server.kill()
        os.close(reader)


def read_what_there_is(reader: int) -> str:
    data = b""
    while True:
        try:
            data += os.read(reader, 65536)
        except BlockingIOError:
            return data.decode()


def test_a_log_that_nobody_reads_stops_nothing(unread: tuple[ServerProcess, int]) -> None:
    server, reader = unread
    # Each is two kilobytes of the log, which holds one megabyte and what the pipe does.
    chat = {"model": "x" * 2000, "messages": [{"role": "user", "content": "?"}]}
    for _ in range(1500):
        assert wire.request("POST", f"{server.base_url}/chat/completions", chat).status == 404
    log = read_what_there_is(reader)
    for _ in range(1000):
        wire.request("GET", f"{server.url}/health")
        log += read_what_there_is(reader)
        if "lines are missing here" in log:
            break
    assert "lines are missing here: the log was not read fast enough" in log
    assert log.count("status=404") < 1500


def test_a_server_ends_although_nobody_reads_its_log(unread: tuple[ServerProcess, int]) -> None:
    server, _ = unread
    chat = {"model": "x" * 2000, "messages": [{"role": "user", "content": "?"}]}
    for _ in range(200):
        wire.request("POST", f"{server.base_url}/chat/completions", chat)
    assert server.stop() == 0


def test_who_is_turned_away_is_logged_a_few_times_a_second(tmp_path: Path) -> None:
    template = write_template(
        tmp_path / "locked.yaml", server={"api_keys": ["sk-right-one"]}, **ECHO
    )
    with running(template) as server:
        wrong = {"authorization": "Bearer sk-wrong-one", "x-request-id": "the-first"}
        assert wire.request("GET", f"{server.url}/v1/models", headers=wrong).status == 401
        line = server.wait_for_log("the-first")
        assert "GET /v1/models status=401" in line
        with connect(server) as connection:
            connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" * 2000)
            data = b""
            while data.count(b"HTTP/1.1 401 ") < 2000:
                data += connection.recv(65536)
        assert server.log.count("status=401") < 200
        right = {"authorization": "Bearer sk-right-one", "x-request-id": "nowhere"}
        assert wire.request("GET", f"{server.url}/v1/nowhere", headers=right).status == 404
        assert "GET /v1/nowhere status=404" in server.wait_for_log("nowhere")
        assert "sk-wrong" not in server.log


def test_what_is_said_of_a_path_is_one_line(server: ServerProcess) -> None:
    with connect(server) as connection:
        connection.sendall(HEALTH.replace(b"/health", b"/%0a%1b[31mforged" + b"x" * 5000))
        connection.recv(1000)
    line = server.wait_for_log("forged")
    assert "\\n\\x1b[31mforged" in line
    assert len(line) < 1500
