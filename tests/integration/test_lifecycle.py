"""How a server starts and how it ends."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import (
    COMMAND,
    ServerProcess,
    free_port,
    running,
    write_template,
)

ECHO: dict[str, Any] = {
    "providers": [{"id": "echo", "type": "local::echo"}],
    "models": [{"id": "echo", "provider": "echo"}],
}


def relay_template(path: Path, upstream: ScriptedUpstream, grace_seconds: int) -> Path:
    """A server whose one model says a piece and waits for the test before it goes on."""
    return write_template(
        path / "relay.yaml",
        server={"shutdown_grace_seconds": grace_seconds},
        providers=[
            {"id": "up", "type": "remote::passthrough", "config": {"base_url": upstream.url}}
        ],
        models=[{"id": "slow", "provider": "up", "provider_model": "one-at-a-time"}],
    )


QUESTION = {"model": "slow", "messages": [{"role": "user", "content": "?"}], "stream": True}


def wait_until_refused(port: int) -> None:
    """Wait until nobody listens on `port`."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            continue  # it was still in the queue of those that nobody took


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish(
    upstream: ScriptedUpstream, tmp_path: Path, request_id: str, number: signal.Signals
) -> None:
    template = relay_template(tmp_path, upstream, grace_seconds=60)
    with running(template, executable=COMMAND) as server:
        url, headers = f"{server.base_url}/chat/completions", {"x-request-id": request_id}
        with wire.open_reply("POST", url, QUESTION, headers) as reply:
            events = wire.events(reply)
            wire.next_text(events)
            server.send_signal(number)
            wait_until_refused(server.port)
            upstream.request(request_id).release()
            *rest, last = events
        assert last == b"[DONE]"
        assert json.loads(rest[-1])["choices"][0]["finish_reason"] == "stop"
        assert server.wait() == 0


def test_what_does_not_finish_in_time_ends_with_an_error(
    upstream: ScriptedUpstream, tmp_path: Path, request_id: str
) -> None:
    template = relay_template(tmp_path, upstream, grace_seconds=1)
    with running(template, executable=COMMAND) as server:
        url, headers = f"{server.base_url}/chat/completions", {"x-request-id": request_id}
        with wire.open_reply("POST", url, QUESTION, headers) as reply:
            events = wire.events(reply)
            wire.next_text(events)
            server.send_signal(signal.SIGTERM)
            *_, error, last = events
        assert last == b"[DONE]"
        assert json.loads(error)["error"]["code"] == "server_shutting_down"
        assert server.wait() == 0
    upstream.request(request_id).wait_until_disconnected()


def test_an_idle_connection_does_not_keep_the_server_alive(tmp_path: Path) -> None:
    with (
        running(write_template(tmp_path / "echo.yaml", **ECHO), executable=COMMAND) as server,
        socket.create_connection(("127.0.0.1", server.port)) as idle,
    ):
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200")
        assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_several_workers_serve_and_end_as_one(
    upstream: ScriptedUpstream, tmp_path: Path, request_id: str, number: signal.Signals
) -> None:
    template = relay_template(tmp_path, upstream, grace_seconds=60)
    with running(template, options=["--workers", "2"], executable=COMMAND) as server:
        url, headers = f"{server.base_url}/chat/completions", {"x-request-id": request_id}
        with wire.open_reply("POST", url, QUESTION, headers) as reply:
            events = wire.events(reply)
            wire.next_text(events)
            server.send_signal(number)
            wait_until_refused(server.port)
            upstream.request(request_id).release()
            assert list(events)[-1] == b"[DONE]"
        assert server.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_no_harm(tmp_path: Path, number: signal.Signals) -> None:
    server = ServerProcess(write_template(tmp_path / "echo.yaml", **ECHO), executable=COMMAND)
    try:
        server.wait_until_ready()
        server.send_signal(number)
        server.send_signal(number)
        assert server.wait() == 0
        assert "Traceback" not in server.log
    finally:
        server.kill()


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    template = write_template(tmp_path / "echo.yaml", **ECHO)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        server = ServerProcess(template, port=port, executable=COMMAND)
        try:
            assert server.wait() not in (0, None)
        finally:
            server.kill()
    assert str(port) in server.log
    assert "--port" in server.log
    assert "Traceback" not in server.log


def test_a_provider_that_cannot_start_is_one_sentence(tmp_path: Path) -> None:
    template = write_template(
        tmp_path / "missing.yaml",
        providers=[{"id": "local", "type": "local::torch"}],
        models=[
            {"id": "nobody", "provider": "local", "provider_model": str(tmp_path / "no-model")}
        ],
    )
    server = ServerProcess(template, executable=COMMAND)
    try:
        assert server.wait(60) not in (0, None)
    finally:
        server.kill()
    assert "no-model" in server.log
    assert "Traceback" not in server.log


def test_a_mistake_in_the_template_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("providers:\n- id: echo\n  typ: local::echo\nmodels: []\n")
    server = ServerProcess(path, executable=COMMAND)
    try:
        assert server.wait() == 2
    finally:
        server.kill()
    assert "broken.yaml:3" in server.log
    assert "typ" in server.log
    assert "Traceback" not in server.log
