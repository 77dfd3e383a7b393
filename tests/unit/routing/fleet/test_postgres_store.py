"""Gateways that share a PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import SecretStr

from llama_compat.distribution import FleetSettings
from routing.fleet.fleet import Fleet
from routing.fleet.postgres_store import PostgresFleetStore
from routing.policy.targets import States
from tests import postgres
from tests.unit.routing.fleet.conftest import HEARTBEAT
from tests.unit.routing.fleet.test_cooldowns import LONG, RULE, admits, fails
from tests.unit.routing.fleet.test_fleet import states, target, until


@asynccontextmanager
async def joined(
    server: postgres.PostgresServer, known: States, answer_seconds: float = 10.0
) -> AsyncIterator[Fleet]:
    settings = FleetSettings(store=SecretStr(server.address))
    store = PostgresFleetStore(server.address, answer_seconds)
    fleet = Fleet(settings, store=store, heartbeat=HEARTBEAT, gone=2.0)
    await fleet.start()
    try:
        fleet.watch(known)
        await fleet.exchanged()
        yield fleet
    finally:
        await fleet.stop()


async def test_what_is_shared(postgres_server: postgres.PostgresServer) -> None:
    await postgres.emptied(postgres_server.address)
    here, there = states("a"), states("a")
    async with joined(postgres_server, here) as one:
        async with joined(postgres_server, there) as other:
            await until(lambda: one.gateways == other.gateways == 2)
            target(there, "a").in_flight = 3
            await until(lambda: target(here, "a").busy == 3)
            fails(there, LONG)
            await until(lambda: not admits(here))
        await until(lambda: one.gateways == 1)


async def test_one_probes(postgres_server: postgres.PostgresServer) -> None:
    await postgres.emptied(postgres_server.address)
    here, there = states("a"), states("a")
    async with joined(postgres_server, here), joined(postgres_server, there):
        fails(here, RULE)
        await until(lambda: target(there, "a").cooldown.until)
        await until(lambda: admits(here) or admits(there))
        for _ in range(30):
            assert not (admits(here) and admits(there))
            await asyncio.sleep(0.005)
        probing = here if admits(here) else there
        cooldown = target(probing, "a").cooldown
        probe = cooldown.begin(time.monotonic(), LONG)
        assert probe is not None
        cooldown.answers(probe)
        await until(lambda: admits(here) and admits(there))


async def test_what_is_kept(postgres_server: postgres.PostgresServer) -> None:
    await postgres.emptied(postgres_server.address)
    store = PostgresFleetStore(postgres_server.address, 10.0)
    assert await store.read("template") is None
    await store.keep("template", b"one")
    await store.keep("template", b"two")
    assert await store.read("template") == b"two"
    assert await store.claim("probe:a/m", "one", 60)
    assert await store.claim("probe:a/m", "one", 60)
    assert not await store.claim("probe:a/m", "two", 60)
    await store.release("probe:a/m", "two")
    assert not await store.claim("probe:a/m", "two", 60)
    await store.release("probe:a/m", "one")
    assert await store.claim("probe:a/m", "two", 60)
    await store.stop()


async def test_one_that_is_frozen_is_away_for_as_long(
    postgres_server: postgres.PostgresServer,
) -> None:
    await postgres.emptied(postgres_server.address)
    async with joined(postgres_server, states("a"), 0.5) as one:
        postgres_server.pause()
        try:
            await until(lambda: one.is_away)
        finally:
            postgres_server.resume()
        await until(lambda: not one.is_away)
