"""Gateways that hear of each other, through a Redis that is well and one that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from routing.fleet.fleet import Fleet
from routing.policy.balance import LeastBusy
from routing.policy.group import Group
from routing.policy.prefix.affinity import sent_to
from routing.policy.targets import LiveTarget, States, TargetState
from routing.waiting import cancelled
from tests.redis_server import RedisServer, needs_redis
from tests.unit.routing.fleet.conftest import Join
from tests.unit.routing.policy import models

pytestmark = needs_redis


async def until(happened: Callable[[], object]) -> None:
    for _ in range(6000):
        if happened():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen in time")


def states(*names: str) -> States:
    found = States()
    for name in names:
        found.provider(name).target("m")
    return found


def target(of: States, name: str) -> TargetState:
    return of.provider(name).target("m")


async def test_gateways_count_each_other(join: Join) -> None:
    async with join() as one:
        assert one.gateways == 1
        async with join() as other:
            await until(lambda: one.gateways == other.gateways == 2)
            assert one.told()["others"][0]["id"] == other.gateway
        # Who says goodbye is not waited for.
        await until(lambda: one.gateways == 1)


async def test_one_that_is_killed_is_gone_soon(join: Join) -> None:
    async with join() as one, join() as other:
        await until(lambda: one.gateways == 2)
        assert other._running is not None
        await cancelled([other._running])
        other._running = None
        await until(lambda: one.gateways == 1)


async def test_what_others_have_in_flight_counts_for_least_busy(join: Join) -> None:
    here, there = states("a", "b"), states("a", "b")
    async with join(here), join(there):
        target(there, "a").in_flight = 5
        await until(lambda: target(here, "a").busy == 5)
        targets: list[LiveTarget] = [
            replace(models.target(name), state=target(here, name)) for name in ("a", "b")
        ]
        balancer = LeastBusy(lambda: 0.0)
        assert balancer.pick(Group(targets), 0.0, None, True).state.id == "b/m"
        target(there, "a").in_flight = 0
        await until(lambda: target(here, "a").busy == 0)


async def test_what_others_have_in_flight_ends_with_them_and_with_the_store(
    join: Join, redis: RedisServer
) -> None:
    here, there = states("a"), states("a")
    async with join(here, 0.2) as one:
        async with join(there, 0.2):
            target(there, "a").in_flight = 5
            await until(lambda: target(here, "a").busy == 5)
        await until(lambda: target(here, "a").busy == 0)
        async with join(there, 0.2):
            await until(lambda: target(here, "a").busy == 5)
            redis.pause()
            try:
                await until(lambda: one.is_away)
                assert target(here, "a").busy == 0
                # Those that were seen last share what there is.
                assert one.gateways == 2
            finally:
                redis.resume()
            await until(lambda: not one.is_away and target(here, "a").busy == 5)


async def test_prompts_that_others_sent_are_known_here(join: Join) -> None:
    here, there = states("a"), states("a")
    chain = [bytes([each]) * 8 for each in range(20)]
    async with join(here), join(there):
        sent_to(target(there, "a"))
        await until(lambda: sent_to(target(there, "a"))._news is not None)
        sent_to(target(there, "a")).add(chain, 1e9, 0.0, 100)
        await until(lambda: sent_to(target(here, "a")).held(chain, 0.0) == 20)
        # What was heard is not told back.
        assert not sent_to(target(here, "a")).news_from_now(100)
        late = states("a")
        async with join(late):
            # Who comes later hears of it from who is there.
            await until(lambda: sent_to(target(late, "a")).held(chain, 0.0) == 20)


async def test_a_store_that_forgets_all_is_told_again(join: Join, redis: RedisServer) -> None:
    async with join() as one, join() as other:
        await until(lambda: one.gateways == other.gateways == 2)
        await other._store._redis.flushall()  # type: ignore[attr-defined]
        await one.exchanged()
        await until(lambda: one.gateways == other.gateways == 2)


async def test_what_no_gateway_wrote_ends_nothing(
    join: Join, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with join() as one, join() as other:
        redis_of_one = one._store._redis  # type: ignore[attr-defined]
        await redis_of_one.hset("{llama_compat}:fleet:gateways", b"\xff", b"\xff")
        async with asyncio.timeout(20):
            await one.exchanged()
            await other.exchanged()
        await until(lambda: one.gateways == other.gateways == 2)
    assert "may not be right" not in caplog.text


async def test_a_store_that_was_away_is_found_again(join: Join, redis: RedisServer) -> None:
    async with join(None, 0.2) as one, join(None, 0.2) as other:
        await until(lambda: one.gateways == other.gateways == 2)
        redis.kill()
        await until(lambda: one.is_away and other.is_away)
        redis.start()
        await until(lambda: not one.is_away and not other.is_away)
        await until(lambda: one.gateways == other.gateways == 2)


async def test_nobody_waits_for_a_store_that_is_away_at_the_start(
    join: Join, redis: RedisServer
) -> None:
    redis.pause()
    try:
        fleet: Fleet
        entering = join(None, 0.2)
        starting = asyncio.create_task(entering.__aenter__())
        await asyncio.sleep(0)
        assert not starting.done()  # only the test waits for the others
    finally:
        redis.resume()
    fleet = await starting
    assert not fleet.is_away
    await entering.__aexit__(None, None, None)
