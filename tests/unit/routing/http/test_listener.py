"""Connections are accepted up to the bound, and the idle make room."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from routing.http import limits as limits_module
from routing.http.limits import Limits
from routing.http.listener import Listener
from routing.http.state import ServerState
from tests.unit.routing.http.serving import LIMITS, Client, Script, until

GET = b"GET /a HTTP/1.1\r\n\r\n"


class Flaky(socket.socket):
    """A listening socket whose `accept` fails so many times, as where descriptors have run out."""

    failures = 0

    def accept(self) -> Any:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@asynccontextmanager
async def listening(
    script: Script, max_connections: int, failures: int = 0
) -> AsyncIterator[tuple[ServerState, int]]:
    state = ServerState(script, Limits(**{**LIMITS, "max_connections": max_connections}))
    with Flaky() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.failures = failures
        listener = Listener(bound, state)
        listener.start()
        try:
            async with asyncio.timeout(30):
                yield state, bound.getsockname()[1]
        finally:
            listener.close()
            await listener.wait_closed()
            for connection in list(state.connections):
                connection.abort()
            for task in state.tasks:
                task.cancel()
            await asyncio.gather(*state.tasks, return_exceptions=True)


async def connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


async def test_the_one_that_has_been_idle_for_longest_makes_room() -> None:
    async with listening(Script(), 3) as (state, port):
        clients = [await connect(port) for _ in range(3)]
        await until(lambda: len(state.connections) == 3)
        await clients[0].say(GET)
        await clients[0].answer()  # now the second has been idle for longest
        last = await connect(port)
        await last.say(GET)
        assert (await last.answer())[0] == 200
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await clients[1].answer()
        assert len(state.connections) == 3
        await clients[0].say(GET)
        assert (await clients[0].answer())[0] == 200
        for client in [*clients, last]:
            client.close()


async def test_where_none_is_idle_one_more_is_refused() -> None:
    script = Script()
    script.go_on.clear()
    async with listening(script, 2) as (state, port):
        clients = [await connect(port) for _ in range(2)]
        for client in clients:
            await client.say(GET)
        await until(lambda: len(script.asked) == 2)
        refused = await connect(port)
        status, headers, body = await refused.answer()
        assert (status, headers[b"retry-after"], headers[b"connection"]) == (503, b"1", b"close")
        assert json.loads(body)["error"]["code"] == "too_many_connections"
        assert await refused.rest() == b""
        script.go_on.set()
        for client in clients:
            assert (await client.answer())[0] == 200
        assert len(state.connections) == 2
        for client in [*clients, refused]:
            client.close()


@pytest.mark.parametrize("count", [1, 50])
async def test_many_at_once_are_never_more_than_may_be(count: int) -> None:
    async with listening(Script(), 5) as (state, port):
        clients = await asyncio.gather(*[connect(port) for _ in range(count)])
        last = await connect(port)
        await last.say(GET)
        assert (await last.answer())[0] == 200
        assert len(state.connections) <= 5
        for client in [*clients, last]:
            client.close()


async def test_it_goes_on_where_descriptors_had_run_out(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Script(), 5, failures=3) as (_, port):
        client = await connect(port)
        await client.say(GET)
        assert (await client.answer())[0] == 200
        client.close()
    assert "can't take a connection (Too many open files)" in caplog.text


async def test_when_it_is_closed_nobody_is_let_in() -> None:
    script = Script()
    async with listening(script, 5) as (state, port):
        state.ending = True
        client = await connect(port)
        assert await client.rest() == b""
        client.close()
    assert not state.connections


# --------------------------------------------------------------------------------------------------
# Descriptors
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "fits", "raised"),
    [
        (1024, 4096, 100, 100, None),
        (1024, 4096, 496, 496, None),
        (1024, 4096, 497, 497, 1026),
        (1024, 4096, 2032, 2032, 4096),
        (1024, 4096, 5000, 2032, 4096),
        (1024, -1, 5000, 5000, 10032),
        (-1, -1, 5000, 5000, None),
        (64, 64, 4096, 16, 64),
        (20, 20, 4096, 1, 20),
    ],
)
def test_there_are_descriptors_for_all_connections(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    wanted: int,
    fits: int,
    raised: int | None,
) -> None:
    resource = pytest.importorskip("resource")
    assert resource.RLIM_INFINITY == -1
    new: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda what, both: new.append(both))
    limits = Limits(**{**LIMITS, "max_connections": wanted}).fitting()
    assert limits.max_connections == fits
    assert new == ([] if raised is None else [(raised, hard)])
    assert bool(caplog.records) == (fits != wanted)
    assert limits_module.RESERVED_DESCRIPTORS + 2 * fits <= max(raised or soft, 34) or soft == -1
