"""What clients take too long for ends, whatever goes wrong with one of them."""

from __future__ import annotations

import asyncio

import pytest

from routing.http import clock as module
from routing.http.clock import watch_the_clock
from tests.unit.routing.http.serving import Script, serving, until


async def test_one_that_cant_be_looked_at_is_closed_and_all_others_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)

    def fail(now: float) -> None:
        raise RuntimeError("no sense")

    async with serving(Script(), header_seconds=0) as server:
        for _ in range(5):
            await server.connect()
        for connection in list(server.state.connections)[:2]:
            monkeypatch.setattr(connection, "look_at_clock", fail)
        watching = asyncio.create_task(watch_the_clock(server.state))
        await until(lambda: watching.done() or not server.state.connections)
        assert not watching.done()
        watching.cancel()
    assert caplog.text.count("RuntimeError: no sense") == 2
