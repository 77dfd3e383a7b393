"""`llama-compat status`: what the server says, as a table, or why there is none."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from routing.cli import app
from routing.cli.status import Server
from tests.local_server import Handler, send, serving

COMMAND = str(Path(sys.executable).with_name("llama-compat"))

CALM = {
    "id": "openai/gpt",
    "provider": "openai",
    "model": "gpt",
    "in_flight": 3,
    "attempts": 40,
    "errors": 0,
    "recent_failures": 0,
    "last_error": None,
    "cooling_seconds": 0.0,
    "first_content_seconds": 0.3456,
    "whole_reply_seconds": 2.5,
    "waiting": 0,
}
COOLING = {
    **CALM,
    "id": "azure/gpt",
    "waiting": 2,
    "errors": 7,
    "last_error": "rate_limit",
    "cooling_seconds": 60.0,
    "first_content_seconds": None,
}
UNKNOWN = {**CALM, "id": "new/gpt", "in_flight": 0, "attempts": 0, "first_content_seconds": None}
UNKNOWN["whole_reply_seconds"] = None


def status(*arguments: str) -> Result:
    environment = {"COLUMNS": "100", "OPENAI_API_KEY": None}
    return CliRunner().invoke(app, ["status", *arguments], env=environment)


class Told:
    """A server that says `health`; what it was asked is kept."""

    def __init__(self) -> None:
        self.health: Any = {"status": "ok", "targets": [CALM, COOLING, UNKNOWN]}
        self.code = 200
        self.asked: list[tuple[str, str | None, int]] = []
        self.url = ""

    def answer(self, handler: Handler) -> None:
        port = handler.client_address[1]
        self.asked.append((handler.path, handler.headers.get("authorization"), port))
        body = self.health if isinstance(self.health, bytes) else json.dumps(self.health).encode()
        send(handler, self.code, body)


@pytest.fixture
def server() -> Iterator[Told]:
    told = Told()
    with serving(told.answer) as told.url:
        yield told


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    return [line for line in lines if line and "/" in line[0]]


def test_each_target_is_a_row(server: Told) -> None:
    begun = time.time()
    calm, cooling, unknown = rows(status("--url", server.url))
    assert calm == ["openai/gpt", "3", "40", "0", "346", "ms"]
    times = {time.strftime("%H:%M:%S", time.localtime(begun + 60 + late)) for late in range(5)}
    assert cooling[6] in times
    expected = ["azure/gpt", "3", "(+2)", "40", "7", "rate_limit", cooling[6], "2.5", "s"]
    assert cooling == expected
    assert unknown == ["new/gpt", "0", "0", "0"]


def test_a_target_that_is_drained_is_said_to_be(server: Told) -> None:
    server.health = {"status": "ok", "targets": [{**COOLING, "drained": True}]}
    [drained] = rows(status("--url", server.url))
    assert drained[6] == "drained"


def test_a_device_that_is_lost_is_told_with_the_targets(server: Told) -> None:
    server.health |= {"status": "device_lost", "lost_devices": ["cuda:0", "cuda:1"]}
    server.code = 503
    result = status("--url", server.url)
    assert len(rows(result)) == 3
    assert "Lost until the server is started again: cuda:0, cuda:1" in result.stdout


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/openai/v1"])
def test_a_clients_base_url_will_do(server: Told, path: str) -> None:
    assert len(rows(status("--url", server.url + path))) == 3
    assert server.asked[0][:2] == ("/health", None)


def test_a_path_before_it_stays(server: Told) -> None:
    assert rows(status("--url", f"{server.url}/behind/a/proxy/v1", "--api-key", "k"))
    assert server.asked[0][:2] == ("/behind/a/proxy/health", "Bearer k")


def test_the_same_connection_is_asked_again(server: Told) -> None:
    one = Server(server.url)
    one.health()
    one.health()
    one.close()
    assert len({port for *_, port in server.asked}) == 1


@pytest.mark.parametrize(
    ("health", "code", "said"),
    [
        ({"status": "ok"}, 200, "--api-key KEY, or the variable OPENAI_API_KEY"),
        ({"status": "starting"}, 503, "is starting. Ask again later."),
        ({"error": {}}, 404, "is no llama-compat server"),
        ([], 200, "is no llama-compat server"),
        (b"<html>", 200, "is no llama-compat server"),
    ],
)
def test_why_there_is_no_table(server: Told, health: Any, code: int, said: str) -> None:
    server.health, server.code = health, code
    result = status("--url", server.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert server.url in result.stderr


@pytest.mark.parametrize("url", ["localhost:8321", "ftp://localhost", "http://"])
def test_what_is_no_url_is_said(url: str) -> None:
    result = status("--url", url)
    assert result.exit_code == 1
    assert result.stderr == f"'{url}' is no URL such as http://localhost:8321\n"


def test_where_no_server_is_it_says_how_to_start_one() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        result = status("--url", f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert result.exit_code == 1
    assert "llama-compat run starter" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.program
def test_a_watched_table_is_renewed_until_ctrl_c_whatever_becomes_of_the_server(
    server: Told,
) -> None:
    terminal, shown = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "status", "--watch", "--url", server.url],
        stdout=shown,
        stderr=shown,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(shown)
    output = bytearray()
    reading = threading.Thread(target=_read_all, args=(terminal, output))
    reading.start()
    try:
        _until(lambda: len(server.asked) >= 2 and b"openai/gpt" in output)
        server.health = {"status": "starting"}
        _until(lambda: b"is starting" in output)
        server.health = {"status": "ok", "targets": [{**CALM, "id": "later/gpt"}]}
        _until(lambda: b"later/gpt" in output)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        reading.join()
        os.close(terminal)
    assert b"Traceback" not in output


def test_who_watches_without_the_key_is_told_so_once(server: Told) -> None:
    server.health = {"status": "ok"}
    result = status("--watch", "--url", server.url)
    assert result.exit_code == 1
    assert result.output.count("its metrics_key, its admin_key or one of its api_keys") == 1
    assert len(server.asked) == 1


def _read_all(terminal: int, output: bytearray) -> None:
    while True:
        try:
            output += os.read(terminal, 4096)
        except OSError:  # nobody has the other end any more
            return


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_models_that_share_memory_are_rows_of_their_own(server: Told) -> None:
    there = {
        "provider": "torch",
        "model": "qwen",
        "state": "ready",
        "sizes": {"cpu": 4_200_000_000},
        "leases": 3,
        "waiting": 0,
        "keep": "idle 10m",
        "idle_seconds": 2.0,
        "expires_seconds": 598.0,
        "loads": 2,
        "load_seconds": 1.5,
    }
    waited_for = {**there, "model": "coder", "state": "out", "sizes": {}, "leases": 0, "waiting": 7}
    waited_for |= {"keep": "always", "expires_seconds": None, "loads": 0, "load_seconds": None}
    server.health["memory"] = {
        "devices": {
            "cpu": {"bound": 12_000_000_000, "used": 4_200_000_000},
            "cuda:0": {"bound": 800_000_000, "used": 44_000_000},
        },
        "models": [there, waited_for],
    }
    result = status("--url", server.url)
    *_, qwen, coder = rows(result)
    assert qwen == [
        "torch/qwen",
        "ready",
        "4.2",
        "GB",
        "3",
        "0",
        "2",
        "(1.5",
        "s)",
        "idle",
        "10m,",
        "598.0",
        "s",
        "left",
    ]
    assert coder == ["torch/coder", "out", "0", "7", "0", "always"]
    assert "cpu 4.2 GB of 12.0 GB" in result.stdout
    assert "cuda:0 44 MB of 800 MB" in result.stdout
