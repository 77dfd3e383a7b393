"""Gateways on a Redis of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from llama_compat.distribution import FleetSettings
from routing.fleet.fleet import Fleet
from routing.fleet.redis_store import RedisFleetStore
from routing.policy.targets import States
from tests.redis_server import RedisServer, redis_server

HEARTBEAT = 0.05
GONE = 1.0

Join = Callable[..., AbstractAsyncContextManager[Fleet]]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture
def join(redis: RedisServer) -> Join:
    """Makes a gateway that knows the targets `a/m` and `b/m`."""

    @asynccontextmanager
    async def joined(
        states: States | None = None, answer_seconds: float = 10.0
    ) -> AsyncIterator[Fleet]:
        settings = FleetSettings(store=SecretStr(redis.url))
        store = RedisFleetStore(redis.url, answer_seconds)
        fleet = Fleet(settings, store=store, heartbeat=HEARTBEAT, gone=GONE)
        await fleet.start()
        try:
            fleet.watch(states or States())
            await fleet.exchanged()
            yield fleet
        finally:
            await fleet.stop()

    return joined
