"""Requests that wait behind another are not read, and a client that leaves is seen all the same."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.abuse.connections import HEALTH, connect, read_answer, send_until_it_waits
from tests.abuse.watch import MIB
from tests.integration.relay import Gateway, gateway_template
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import ServerProcess, running

Unharmed = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as one:
        yield one


@pytest.fixture(scope="module")
def gateway(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    template = gateway_template(tmp_path_factory.mktemp("relay") / "relay.yaml", upstream)
    with running(template, env=Gateway.ENVIRONMENT) as process:
        yield process
        assert "Traceback" not in process.log


def asking(model: str, request_id: str) -> bytes:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "?"}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nx-request-id: {request_id}\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def test_unread_requests_do_not_pile_up(server: ServerProcess, unharmed: Unharmed) -> None:
    flood = HEALTH * (4 * MIB // len(HEALTH))
    with unharmed(server, grows=16 * MIB), connect(server) as connection:
        # Nothing is read: at some point the server must take no more.
        sent = send_until_it_waits(connection, flood, 2)
    assert sent < 1024 * MIB


def test_requests_behind_one_that_waits_are_not_read(
    gateway: ServerProcess, upstream: ScriptedUpstream, unharmed: Unharmed
) -> None:
    with unharmed(gateway, grows=8 * MIB), connect(gateway) as connection:
        connection.sendall(asking("scripted/holds", "pile"))
        upstream.request("pile")
        sent = send_until_it_waits(connection, HEALTH * 4096, 2)
    assert sent < 16 * MIB  # what the system's buffers hold
    upstream.request("pile").wait_until_disconnected()


@pytest.mark.parametrize("behind", [1, 10_000])
@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_leaves_is_seen_behind_what_it_has_sent(
    gateway: ServerProcess, upstream: ScriptedUpstream, behind: int, reset: bool
) -> None:
    name = f"leaves-{behind}-{reset}"
    with connect(gateway) as connection:
        connection.sendall(asking("scripted/holds", name))
        upstream.request(name)
        connection.sendall(HEALTH * behind)
        if reset:
            linger = b"\1\0\0\0\0\0\0\0"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    upstream.request(name).wait_until_disconnected()


def test_what_waited_is_answered_in_its_turn(gateway: ServerProcess) -> None:
    count = 5000
    with connect(gateway) as connection:
        connection.sendall(asking("scripted/plain", "first") + HEALTH * count)
        data, begins, answered = bytearray(), b'{"status":"ok"', 0
        while answered < count:
            searched = max(0, len(data) - len(begins) + 1)
            piece = connection.recv(65536)
            assert piece
            data += piece
            answered += data.count(begins, searched)
    assert data.count(b"HTTP/1.1 200 OK") == count + 1
    assert data.index(b'"choices"') < data.index(b'{"status"')


def test_what_is_no_request_ends_the_connection_behind_its_answers(gateway: ServerProcess) -> None:
    with connect(gateway) as connection:
        connection.sendall(asking("scripted/plain", "torn") + b"\0\0\0\0 no request\r\n\r\n")
        assert read_answer(connection).startswith(b"HTTP/1.1 200 OK")
