"""What gateways let in while Redis is away: none, a share of each limit, or all."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llama_compat.distribution import OnOutage
from llama_compat.errors import APIError
from routing.access.keys.keeper import Keeper
from routing.access.limits.limiter import Admission, Limiter
from routing.access.limits.names import PREFIX
from routing.access.limits.redis import RedisCounters
from routing.access.limits.rules import Demand, Resource, Rule, Rules
from tests.conftest import ROOT
from tests.redis_server import RedisServer, RedisWay, needs_redis, redis_server
from tests.unit.routing.access.limits.test_shared_away import until_back, used

pytestmark = [needs_redis, pytest.mark.server]

REQUESTS = Rule("key:r", Resource.requests, 10, "key 'r'")
TOKENS = Rule("key:t", Resource.tokens, 1000, "key 't'")
CONCURRENT = Rule("key:c", Resource.concurrent, 4, "key 'c'")
BUDGET = Rule("key:b", Resource.budget, 1.0, "key 'b'")
COUNTER = "key:b:budget:ever"
HOLDER = "tests.unit.routing.access.limits.holder"

LEASE_SECONDS = 60.0
SHARE_OF_WHO_IS_BEHIND = 12
"""What both may let in that have not heard of the last six requests that the other took."""

HELD_SECONDS = LEASE_SECONDS / 2
"""How long the lease of one that is killed lasts: however late a busy machine lets it renew that,
it has it while it lives."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as found:
        yield found


@asynccontextmanager
async def gateway(
    url: str,
    on_outage: OnOutage = "local_share",
    gateways: int = 2,
    answer_seconds: float = 0.2,
) -> AsyncIterator[Limiter]:
    counters = RedisCounters(url, LEASE_SECONDS, 0.05, answer_seconds)
    await counters.start()
    try:
        yield Limiter(counters, on_outage, gateways=lambda: gateways)
    finally:
        await counters.stop()


async def admitted(limiter: Limiter, rule: Rule, most: int = 30, **demand: Any) -> list[Admission]:
    """As many as are let in."""
    found = []
    for _ in range(most):
        try:
            found.append(await limiter.admit(Rules([rule]), Demand(**demand)))
        except APIError as error:
            if error.status != 429:
                raise
            break
    return found


async def lose(server: RedisServer, *limiters: Limiter) -> None:
    """Have Redis end, and each find it out."""
    server.kill()
    for each in limiters:
        rule = Rule("key:x", Resource.requests, 1000, "key 'x'")
        await each.admit(Rules([rule]), Demand())
        assert each.counters.is_away


async def move_clock_on(limiter: Limiter) -> None:
    """By `HELD_SECONDS`: that of Redis, by which leases run out."""
    client: Any = limiter.counters
    await client._client.hincrbyfloat(f"{PREFIX}clock", "raw", -HELD_SECONDS)


async def test_a_share_is_the_limit_divided_by_the_gateways(server: RedisServer) -> None:
    async with gateway(server.url) as one, gateway(server.url) as other:
        await lose(server, one, other)
        both = (one, other)
        assert [len(await admitted(each, REQUESTS)) for each in both] == [5, 5]
        assert [len(await admitted(each, CONCURRENT)) for each in both] == [2, 2]
        assert [len(await admitted(each, TOKENS, tokens=100, is_guess=False)) for each in both] == [
            5,
            5,
        ]
        with pytest.raises(APIError, match="one of 2 while the store is away") as refused:
            await one.admit(Rules([REQUESTS]), Demand())
        assert refused.value.headers["retry-after"]


async def test_each_gateway_lets_in_one_request_at_least(server: RedisServer) -> None:
    async with gateway(server.url, gateways=100) as one:
        await lose(server, one)
        assert len(await admitted(one, REQUESTS)) == 1
        assert len(await admitted(one, CONCURRENT)) == 1


async def test_what_runs_already_counts_of_the_share(server: RedisServer) -> None:
    async with gateway(server.url) as one:
        running = await admitted(one, CONCURRENT, 1)
        await lose(server, one)
        own = await admitted(one, CONCURRENT)
        assert len(own) == 1
        running[0].settle(0, 0)
        assert len(await admitted(one, CONCURRENT)) == 1
        own[0].settle(0, 0)
        assert len(await admitted(one, CONCURRENT)) == 1


async def test_all_shares_of_a_budget_are_what_was_left_of_it(server: RedisServer) -> None:
    async with gateway(server.url) as one, gateway(server.url) as other:
        first = await admitted(one, BUDGET, 1, cost=0.2)
        settling = first[0].settle(0, 0.2)
        assert settling is not None
        await settling
        # The other one has heard of it with a request of its own, which runs still.
        assert await admitted(other, BUDGET, 1, cost=0.2)
        assert await admitted(one, BUDGET, 1, cost=0.0)
        await lose(server, one, other)
        spent = [len(await admitted(each, BUDGET, cost=0.1)) for each in (one, other)]
        # 0.6 dollars are left: used 0.2, and 0.2 are in flight.
        assert spent == [3, 3]


async def lose_for_a_moment(limiter: Limiter) -> None:
    """Have it find that Redis is away, which comes back at once."""
    counters: Any = limiter.counters
    counters._lose(ConnectionError("cut"))
    await until_back(counters)


async def test_what_an_earlier_outage_let_in_counts_until_it_has_drained(
    server: RedisServer,
) -> None:
    async with gateway(server.url) as one:
        share: Any = one.share
        seconds = 0.0
        share._own._clock = lambda: seconds
        await lose(server, one)
        assert len(await admitted(one, REQUESTS)) == 5
        for minute in (0.0, 0.4, 1.0):
            server.start()
            await until_back(one.counters)
            share._own._seen, seconds = 0.0, 60 * minute
            await lose(server, one)
            assert len(await admitted(one, REQUESTS)) == int(5 * minute)


async def test_of_a_limit_a_minute_what_was_heard_counts(server: RedisServer) -> None:
    """Each of two gateways has half of what was left."""
    async with gateway(server.url) as one, gateway(server.url) as other:
        for each in (one, other):
            assert len(await admitted(each, REQUESTS, 3)) == 3
        await lose(server, one, other)
        # The first has heard of three, and of what drained meanwhile; the second of all six.
        assert len(await admitted(one, REQUESTS)) == 3
        assert len(await admitted(other, REQUESTS)) == 2


async def test_each_outage_has_a_share_of_what_is_left_of_a_budget(server: RedisServer) -> None:
    async with gateway(server.url) as one:
        counters: Any = one.counters
        left, expected = 1.0, []
        for _ in range(4):
            counters._lose(ConnectionError("cut"))
            meanwhile = await admitted(one, BUDGET, cost=0.0625)
            # Half of them run on, and are known as well as those that have ended.
            for each in meanwhile[::2]:
                each.settle(0, 0.0625)
            expected.append(int(left / 2 / 0.0625))
            assert len(meanwhile) == expected[-1]
            left -= 0.0625 * len(meanwhile)
            await until_back(counters)
            assert counters.known(COUNTER) == pytest.approx(1.0 - left)
        assert expected == [8, 4, 2, 1]


async def test_who_was_let_in_meanwhile_has_a_place_when_it_is_back(server: RedisServer) -> None:
    rules = Rules([CONCURRENT, REQUESTS])
    async with gateway(server.url) as one, gateway(server.url) as other:
        counters: Any = one.counters
        counters._lose(ConnectionError("cut"))
        meanwhile = [await one.admit(rules, Demand()) for _ in range(2)]
        await until_back(counters)
        assert one.apart == 2
        # They run still: two of four places are theirs, and two of ten requests have been used.
        assert len(await admitted(other, CONCURRENT)) == 2
        used_by_all = float(await counters._client.hget(f"{PREFIX}{REQUESTS.counter}", "used"))
        assert 1.0 < used_by_all <= 2.0
        for each in meanwhile:
            settling = each.settle(0, 0)
            assert settling is not None
            await settling
        assert len(await admitted(other, CONCURRENT)) == 2
        assert counters.held(CONCURRENT.counter) == 0


async def test_one_that_comes_while_they_agree_is_told_of_as_well(server: RedisServer) -> None:
    async with gateway(server.url) as one, gateway(server.url) as other:
        counters: Any = one.counters
        sync = counters._sync

        async def let_in() -> None:
            await sync()
            if one.apart < 2:
                await admitted(one, CONCURRENT, 1)

        counters._sync = let_in
        counters._lose(ConnectionError("cut"))
        for _ in range(500):
            if one.apart == 2 and not counters.is_away:
                break
            await asyncio.sleep(0.01)
        await until_back(counters)
        assert len(await admitted(other, CONCURRENT)) == 2


@pytest.mark.parametrize("rule", [REQUESTS, replace(BUDGET, limit=100.0)])
async def test_a_redis_that_is_away_again_and_again_lets_in_no_more(
    server: RedisServer, rule: Rule
) -> None:
    dice, let_in = random.Random(3), 0
    clock = asyncio.get_running_loop().time
    rule, began = replace(rule, limit=100.0), clock()

    async def ask(limiter: Limiter) -> None:
        nonlocal let_in
        with suppress(APIError):
            admission = await limiter.admit(Rules([rule]), Demand(cost=1.0))
            let_in += 1
            await asyncio.sleep(dice.random() / 20)
            admission.settle(0, 1.0)

    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(gateway(server.url)) for _ in range(2)]
        asking: set[asyncio.Task[None]] = set()
        for turn in range(40):
            # Both are away together: one alone may spend its share beside what the other takes.
            await asyncio.gather(*map(lose_for_a_moment, both)) if turn % 4 else None
            for each in both:
                asking |= {asyncio.create_task(ask(each)) for _ in range(2)}
                counters: Any = each.counters
                counters._lose(ConnectionError("cut"))
                asking |= {asyncio.create_task(ask(each)) for _ in range(4)}
            await asyncio.sleep(0.005)
        await asyncio.gather(*asking)
    drained = (clock() - began) * rule.drains
    assert 60 < let_in <= 100 + drained + SHARE_OF_WHO_IS_BEHIND


async def test_what_was_let_in_meanwhile_is_booked_once(server: RedisServer) -> None:
    async with gateway(server.url) as one:
        client: Any = one.counters
        await lose(server, one)
        meanwhile = await admitted(one, REQUESTS, 3)
        ended, running = meanwhile[:2], meanwhile[2]
        for each in ended:
            each.settle(0, 0)
        server.start()
        await until_back(one.counters)
        settling = running.settle(0, 0)
        assert settling is not None
        await settling
        for each in meanwhile:
            assert each.settle(0, 0) is None
        # Three of ten are used, less what has drained meanwhile.
        left = await client._client.hget("{llama_compat}:key:r:requests", "used")
        assert 2.0 < float(left) <= 3.0


async def test_refused_while_nobody_counts(server: RedisServer) -> None:
    async with gateway(server.url, "refuse") as one:
        server.kill()
        for _ in range(3):
            with pytest.raises(APIError) as refused:
                await one.admit(Rules([REQUESTS]), Demand())
            assert (refused.value.status, refused.value.code) == (503, "limits_unavailable")
        server.start()
        await until_back(one.counters)
        assert await admitted(one, REQUESTS, 1)


async def test_a_slow_redis_is_away_and_waited_for_no_longer_than_said(
    server: RedisServer, tmp_path: Path
) -> None:
    async with RedisWay(tmp_path, server).opened() as way, gateway(way.url) as one:
        assert len(await admitted(one, REQUESTS, 2)) == 2
        way.delay = 30.0
        # Those that wait for a place among those who ask are let go too.
        asked = [one.admit(Rules([TOKENS]), Demand(1, is_guess=False)) for _ in range(200)]
        async with asyncio.timeout(15):
            admissions = await asyncio.gather(*asked)
        assert all(each.own for each in admissions)
        assert one.counters.is_away
        way.delay = 0.0
        way.lead_to(server)
        await until_back(one.counters)
        assert not (await admitted(one, CONCURRENT, 1))[0].own


async def test_a_replica_takes_over(tmp_path: Path, free_port: int) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with (
        redis_server(folders[0], free_port) as first,
        redis_server(folders[1], replica_of=free_port) as second,
    ):
        async with (
            RedisWay(tmp_path, first).opened() as way,
            gateway(way.url) as one,
            gateway(way.url) as other,
        ):
            counters: Any = one.counters
            await counters.set_used({COUNTER: (0.5, 0.0)})
            running = await admitted(one, CONCURRENT, 2)
            assert await admitted(other, CONCURRENT, 1)
            # In short steps, as no answer is waited for as long as a first copy may take.
            while not await counters._client.wait(1, 50):
                pass
            first.kill()
            # At first it can only be read, and is as good as away.
            way.lead_to(second)
            apart = await one.admit(Rules([BUDGET]), Demand(cost=0.1))
            assert apart.own
            assert one.counters.is_away
            apart.settle(0, 0.0)
            from redis.asyncio import Redis

            promoted = Redis.from_url(second.url)
            await promoted.replicaof("NO", "ONE")
            await promoted.aclose()
            for each in (one, other):
                each.counters._agree.set()  # type: ignore[attr-defined]
                await until_back(each.counters)
            assert await used(one.counters) == 0.5
            # Three run, and there is room for one.
            assert len(await admitted(other, CONCURRENT)) == 1
            running[0].settle(0, 0)
            for _ in range(500):
                if await admitted(other, CONCURRENT, 1):
                    return
                await asyncio.sleep(0.01)
            raise AssertionError("its place is not free")


async def test_what_a_killed_gateway_had_reserved_is_free_after_its_lease(
    server: RedisServer,
) -> None:
    command = [sys.executable, "-m", HOLDER, server.url, "3", str(HELD_SECONDS)]
    holder = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    try:
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"taken\n"
        async with gateway(server.url, answer_seconds=10.0) as one:
            assert len(await admitted(one, CONCURRENT)) == 1
            assert len(await admitted(one, BUDGET, cost=0.25)) == 1
            holder.kill()
            await holder.wait()
            assert await admitted(one, CONCURRENT) == []
            # Its own are as long again, and stay.
            await move_clock_on(one)
            assert len(await admitted(one, CONCURRENT)) == 3
            assert len(await admitted(one, BUDGET, cost=0.25)) == 3
    finally:
        with suppress(ProcessLookupError):
            holder.kill()
        await holder.wait()


async def test_what_a_gateway_has_reserved_is_its_own_while_it_lives(server: RedisServer) -> None:
    leases = f"{PREFIX}{CONCURRENT.counter}:leases"
    async with (
        gateway(server.url, answer_seconds=10.0) as one,
        gateway(server.url, answer_seconds=10.0) as other,
    ):
        client: Any = other.counters
        assert await admitted(one, CONCURRENT, 1)
        for _ in range(3):
            [(_, ends)] = await client._client.zrange(leases, 0, -1, withscores=True)
            await move_clock_on(one)
            for _ in range(3000):
                renewed = await client._client.zrange(leases, 0, -1, withscores=True)
                if renewed and renewed[0][1] >= ends + HELD_SECONDS:
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("its lease is not renewed")
        assert len(await admitted(other, CONCURRENT)) == 3


async def test_a_budget_holds_whatever_becomes_of_redis(
    server: RedisServer, tmp_path: Path
) -> None:
    dice, rule, demand = random.Random(7), replace(BUDGET, limit=100.0), Demand(cost=1.0)
    spent = running = most_running = 0

    async def ask(limiter: Limiter) -> None:
        nonlocal spent, running, most_running
        try:
            admission = await limiter.admit(Rules([rule]), demand)
        except APIError:
            return
        running += 1
        most_running = max(running, most_running)
        await asyncio.sleep(dice.random() / 10)
        spent += 1
        running -= 1
        admission.settle(0, 1.0)

    async with AsyncExitStack() as stack:
        limiters = []
        for _ in range(2):
            counters = RedisCounters(server.url, 60.0, 0.05, 0.2)
            keeper = Keeper(f"sqlite:{tmp_path / 'keys.sqlite'}", counters, look_seconds=0.02)
            await counters.start()
            await keeper.start()
            stack.push_async_callback(keeper.stop)
            stack.push_async_callback(counters.stop)
            limiters.append(
                Limiter(counters, "local_share", on_spent=keeper.spent, gateways=lambda: 2)
            )
        asking: set[asyncio.Task[None]] = set()
        for trouble in (None, "pause", None, "kill", None, "flush", None):
            if trouble == "pause":
                server.pause()
            elif trouble == "kill":
                server.kill()
            elif trouble == "flush":
                await counters._client.flushall()  # type: ignore[union-attr]
            for _ in range(40):
                asking.add(asyncio.create_task(ask(dice.choice(limiters))))
                await asyncio.sleep(0.005)
            if trouble == "pause":
                server.resume()
            elif trouble == "kill":
                server.start()
            for each in limiters:
                await until_back(each.counters)
        await asyncio.gather(*asking)
        assert 60 < spent <= 100 + most_running
        for each in limiters:
            await until_back(each.counters)
        for _ in range(1000):
            if await used(counters) == spent:
                break
            await asyncio.sleep(0.01)
        assert await used(counters) == spent
        assert (await keeper.store.spent())[COUNTER][0] == spent
