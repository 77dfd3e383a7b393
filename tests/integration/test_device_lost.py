"""A process that has lost a GPU: what it says of that, and how another takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, write_template

pytestmark = pytest.mark.server

LOST_DEVICE = "LLAMA_COMPAT_TESTS_LOST_DEVICE"
"""The variable that `tests.integration.lost_device` reads."""

WAIT_SECONDS = 60


@contextmanager
def server_that_may_lose(folder: Path, *options: str, **settings: Any) -> Iterator[ServerProcess]:
    template = write_template(
        folder / "echo.yaml",
        server=settings,
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )
    server = ServerProcess(
        template,
        env={LOST_DEVICE: str(folder / "lost")},
        options=options,
        first="tests.integration.lost_device",
    )
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()


def wait_for(server: ServerProcess, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, server.log
        time.sleep(0.02)


def ask(server: ServerProcess) -> wire.Reply:
    body = {"model": "echo", "messages": [{"role": "user", "content": "Hi"}]}
    return wire.request("POST", f"{server.base_url}/chat/completions", body)


def test_health_says_so_and_the_rest_answers(tmp_path: Path) -> None:
    with server_that_may_lose(tmp_path) as server:
        (tmp_path / "lost").touch()
        told = wire.request("GET", f"{server.url}/health")
        assert (told.status, told.json()["status"]) == (503, "device_lost")
        assert told.json()["lost_devices"] == ["cuda:0"]
        time.sleep(1)  # nothing ends the process
        assert ask(server).status == 200
        assert server.stop() == 0


def test_a_process_that_is_to_end_has_an_exit_code_that_says_why(tmp_path: Path) -> None:
    with server_that_may_lose(tmp_path, end_when_device_lost=True) as server:
        assert ask(server).status == 200
        (tmp_path / "lost").touch()
        assert server.wait() == 4
        assert "cuda:0 lost: no new requests; the running ones may finish" in server.log


def test_a_worker_that_ends_is_replaced(tmp_path: Path) -> None:
    with server_that_may_lose(tmp_path, "--workers", "2", end_when_device_lost=True) as server:
        wait_for(server, lambda: server.log.count("serving at") == 2)
        (tmp_path / "lost").touch()
        wait_for(server, lambda: server.log.count("serving at") == 3)
        assert "died (4); another starts" in server.log
        assert ask(server).status == 200
        assert wire.request("GET", f"{server.url}/health").status == 200
        assert server.stop() == 0
