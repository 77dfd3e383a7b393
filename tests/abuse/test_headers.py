"""Request headers are bounded, before anybody is asked for a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.abuse.connections import connect, read_all, read_answer, send_until_closed
from tests.abuse.watch import MIB, cpu_seconds
from tests.integration.server_process import ServerProcess, running, write_template

Unharmed = Callable[..., AbstractContextManager[Any]]

BEGIN = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    template = write_template(
        tmp_path_factory.mktemp("headers") / "locked.yaml",
        server={"api_keys": ["sk-nobody-knows"]},
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )
    with running(template) as process:
        yield process
        assert "Traceback" not in process.log


def many(count: int) -> bytes:
    return b"".join(b"x-%d: y\r\n" % number for number in range(count))


TOO_LARGE = {
    "one value": BEGIN + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
    "one name": BEGIN + b"x" * 70_000 + b": y\r\n\r\n",
    "the target": b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "long ones": BEGIN + (b"x: " + b"y" * 1000 + b"\r\n") * 70 + b"\r\n",
    "too many": BEGIN + many(200) + b"\r\n",
}


@pytest.mark.parametrize("request_bytes", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_is_too_large_is_refused_before_a_key_is_asked_for(
    locked: ServerProcess, request_bytes: bytes
) -> None:
    with connect(locked) as connection:
        connection.sendall(request_bytes)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"request_headers_too_large"' in answer


def test_what_is_just_not_too_large_is_not(locked: ServerProcess) -> None:
    for headers in (many(199), b"x: " + b"y" * 65_000 + b"\r\n"):
        with connect(locked) as connection:
            connection.sendall(BEGIN + headers + b"\r\n")
            assert read_answer(connection).startswith(b"HTTP/1.1 401 ")


ENDLESS = {
    "value": BEGIN + b"x: " + b"y" * (32 * MIB),
    "headers": BEGIN + many(1_000_000),
    "target": b"GET /" + b"x" * (32 * MIB),
    "blank lines": b"\r\n" * (16 * MIB),
    "chunk extension": (
        b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;"
        + b"x" * (32 * MIB)
    ),
    "trailers": (
        b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        + many(1_000_000)
    ),
}


@pytest.mark.parametrize("endless", ENDLESS.values(), ids=ENDLESS.keys())
def test_what_does_not_end_is_not_read(
    server: ServerProcess, unharmed: Unharmed, endless: bytes
) -> None:
    before = cpu_seconds(server)
    with unharmed(server, grows=8 * MIB), connect(server) as connection:
        send_until_closed(connection, endless)
        answer = read_all(connection)
    assert not answer or answer[:13] in (b"HTTP/1.1 431 ", b"HTTP/1.1 400 ")
    assert cpu_seconds(server) - before < 5


@pytest.mark.parametrize("step", [1, 7])
def test_a_head_in_tiny_pieces_costs_what_it_is_long(
    server: ServerProcess, unharmed: Unharmed, step: int
) -> None:
    head = BEGIN + b"x: " + b"y" * 70_000
    before = cpu_seconds(server)
    with unharmed(server, grows=8 * MIB), connect(server) as connection:
        try:
            for at in range(0, len(head), step):
                connection.send(head[at : at + step])
        except OSError:
            pass
    assert cpu_seconds(server) - before < 10
