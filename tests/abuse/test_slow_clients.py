"""Who is silent, slow or deaf is waited for only so long."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.abuse.connections import HEALTH, connect, connected, post, read_all, read_answer
from tests.abuse.watch import MIB
from tests.integration.relay import Gateway, gateway_template
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import ServerProcess, running, write_template

LIMITS = {"header_seconds": 2, "body_seconds": 2, "idle_seconds": 3, "write_seconds": 2}

ECHO: dict[str, Any] = {
    "providers": [{"id": "echo", "type": "local::echo"}],
    "models": [{"id": "echo", "provider": "echo"}],
}

CHAT = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "one two"}]}).encode()


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("slow") / "hurried.yaml"
    with running(write_template(path, server=LIMITS, **ECHO)) as process:
        yield process
        assert "Traceback" not in process.log


STOPS: list[tuple[bytes, bytes]] = [
    (b"", b""),
    (b"\r\n", b"HTTP/1.1 408 "),
    (b"GET /health HTT", b"HTTP/1.1 408 "),
    (b"GET /health HTTP/1.1\r\nhost: x\r\n", b"HTTP/1.1 408 "),
    (HEALTH, b"HTTP/1.1 200 "),
    (post(CHAT), b"HTTP/1.1 200 "),
    (post(b"{", length=1000), b"HTTP/1.1 408 "),
    (post(b"", length=1000), b"HTTP/1.1 408 "),
    (post(CHAT, "/v1/messages", length=10_000), b"HTTP/1.1 504 "),
    (
        b"POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{",
        b"HTTP/1.1 408 ",
    ),
]
"""What is said on a connection before nothing comes any more, and how the answer begins."""


@pytest.fixture(scope="module")
def answers(hurried: ServerProcess) -> list[bytes]:
    """What came on each connection before it was closed; all of them were waited for together."""
    with connected(hurried, len(STOPS)) as connections:
        for connection, (said, _) in zip(connections, STOPS, strict=True):
            connection.sendall(said)
        return [read_all(connection) for connection in connections]


@pytest.mark.parametrize("number", range(len(STOPS)), ids=[repr(said[:40]) for said, _ in STOPS])
def test_a_connection_on_which_nothing_comes_any_more_is_closed(
    answers: list[bytes], number: int
) -> None:
    got, answer = answers[number], STOPS[number][1]
    assert got.startswith(answer)
    assert bool(got) == bool(answer)
    if answer[9:12] in (b"408", b"504"):
        error = json.loads(got.partition(b"\r\n\r\n")[2])["error"]
        assert error.get("code", error["type"]) in ("request_timeout", "timeout_error")
        assert "in time" in error["message"]


def test_the_error_is_in_the_client_s_language(hurried: ServerProcess) -> None:
    with connect(hurried) as connection:
        connection.sendall(post(b"{", "/v1/messages", length=1000))
        body = json.loads(read_all(connection).partition(b"\r\n\r\n")[2])
    assert body["type"] == "error"


def test_a_body_of_a_byte_now_and_then_is_not_waited_for(hurried: ServerProcess) -> None:
    with connect(hurried) as connection:
        connection.sendall(post(b"", length=1_000_000))
        connection.settimeout(0.2)
        begun, answer = time.monotonic(), b""
        while not answer and time.monotonic() - begun < 30:
            connection.sendall(b" ")
            try:
                answer = connection.recv(65536)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_long_body_that_makes_progress_is_waited_for(hurried: ServerProcess) -> None:
    padding = b" " * 20_000
    body = CHAT + padding * 5
    with connect(hurried) as connection:
        connection.sendall(post(CHAT, length=len(body)))
        for _ in range(5):  # longer than `body_seconds` by half
            time.sleep(0.6)
            connection.sendall(padding)
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")


def test_half_sent_bodies_do_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    template = write_template(tmp_path / "echo.yaml", **ECHO)
    with running(template) as server, connected(server, 20) as connections:
        for connection in connections:
            connection.sendall(post(b"{", length=1000))
        server.health()
        begun = time.monotonic()
        server.send_signal(signal.SIGTERM)
        answers = [read_all(connection) for connection in connections]
        assert server.wait() == 0
        assert time.monotonic() - begun < 15  # of the 30 that requests have
    assert all(b" 503 " in answer[:16] for answer in answers)
    assert all(b"server_shutting_down" in answer for answer in answers)
    assert "Traceback" not in server.log


def test_who_does_not_read_its_answer_frees_what_answers(tmp_path: Path) -> None:
    with ScriptedUpstream() as upstream:
        template = gateway_template(tmp_path / "relay.yaml", upstream)
        text = template.read_text().replace("server:", "server:\n  write_seconds: 2")
        template.write_text(text)
        question = {"model": "scripted/floods", "stream": True}
        question["messages"] = [{"role": "user", "content": "?"}]
        body = json.dumps(question).encode()
        request = post(body).replace(b"Host: x", b"x-request-id: deaf")
        with running(template, env=Gateway.ENVIRONMENT) as server, connect(server) as connection:
            connection.sendall(request)
            upstream.request("deaf").wait_until_disconnected()
            line = server.wait_for_log("write_seconds")
            assert "took no answer" in line
            server.wait_for_log("client disconnected")
            assert "Traceback" not in server.log


def test_a_whole_answer_that_nobody_reads_is_dropped(tmp_path: Path) -> None:
    limits = {"write_seconds": 2, "max_body_bytes": 64 * MIB}
    with running(write_template(tmp_path / "echo.yaml", server=limits, **ECHO)) as server:
        content = "x" * (16 * MIB)  # more than the system's buffers hold
        chat = {"model": "echo", "messages": [{"role": "user", "content": content}]}
        with connect(server) as connection:
            connection.sendall(post(json.dumps(chat).encode()))
            server.wait_for_log("write_seconds")
