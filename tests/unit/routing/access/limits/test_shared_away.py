"""Counters in a Redis that is killed, hangs, forgets, or comes back with what it had."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import OnOutage
from llama_compat.errors import APIError
from routing.access.keys.keeper import Keeper
from routing.access.limits import shared
from routing.access.limits.limiter import Limiter
from routing.access.limits.memory import CountersAway
from routing.access.limits.redis import RedisCounters
from routing.access.limits.rules import NO_DEMAND, Charge, Demand, Resource, Rule, Rules
from routing.access.limits.shared import MAX_QUESTIONS
from tests.redis_server import RedisServer, needs_redis, redis_server

pytestmark = [needs_redis, pytest.mark.server]

CONCURRENT = Rule("key:c", Resource.concurrent, 4, "key 'c'")
PLACE = Charge(CONCURRENT, CONCURRENT.counter, 1.0)
BUDGET = Rule("key:b", Resource.budget, 1.0, "key 'b'")
COUNTER = "key:b:budget:ever"

BUSY_SECONDS = 10.0
"""A machine that is busy with tests is no Redis that is away."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as found:
        yield found


@asynccontextmanager
async def counting(server: RedisServer, answer_seconds: float = 0.2) -> AsyncIterator[Any]:
    counters: Any = RedisCounters(server.url, renew_seconds=1000, answer_seconds=answer_seconds)
    await counters.start()
    try:
        yield counters
    finally:
        await counters.stop()


async def until(happened: Callable[[], Any]) -> None:
    for _ in range(3000):
        if happened():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen in time")


async def until_back(counters: Any) -> None:
    await until(lambda: not counters.is_away and not counters._agree.is_set())


async def take(counters: Any, charge: Charge = PLACE) -> str:
    return str((await counters.take([charge])).lease)


async def used(counters: Any, counter: str = COUNTER) -> float:
    return float(await counters._client.hget("{llama_compat}:" + counter, "used") or 0)


async def reserved(counters: Any) -> float:
    return float(await counters._client.hget("{llama_compat}:key:c:concurrent", "reserved") or 0)


async def test_nobody_waits_for_a_redis_that_hangs_but_those_who_found_out(
    server: RedisServer,
) -> None:
    async with counting(server) as counters:
        held = await take(counters)
        server.pause()
        try:
            asking = [asyncio.create_task(take(counters)) for _ in range(3 * MAX_QUESTIONS)]
            done = await asyncio.gather(*asking, return_exceptions=True)
            assert {type(each) for each in done} == {CountersAway}
            for _ in range(100):
                # It is refused in its first step: there is nothing that it waits for.
                with pytest.raises(CountersAway):
                    counters.take([PLACE]).send(None)
            await counters.settle(held, [PLACE], [0.0])
        finally:
            server.resume()
        # What had been asked of it is done now, and nothing of that stays.
        await until_back(counters)
        assert await reserved(counters) == 0
        assert all([await take(counters) for _ in range(4)])
        assert not await take(counters)


async def test_an_empty_redis_learns_what_runs_at_once(server: RedisServer) -> None:
    async with counting(server) as counters:
        ended, running = await take(counters), await take(counters)
        server.kill()
        with pytest.raises(CountersAway):
            await take(counters)
        await counters.settle(ended, [PLACE], [0.0])
        server.start()
        await until_back(counters)
        assert await reserved(counters) == 1
        assert all([await take(counters) for _ in range(3)])
        assert not await take(counters)
        await counters.settle(running, [PLACE], [0.0])
        assert await take(counters)


async def test_a_redis_that_comes_back_with_old_data_holds_nobody_up(server: RedisServer) -> None:
    async with counting(server) as counters:
        leases = [await take(counters) for _ in range(4)]
        await counters._client.save()
        # Of the first two Redis forgets that they ended, the third ends while it is away.
        for lease in leases[:2]:
            await counters.settle(lease, [PLACE], [0.0])
        server.kill()
        with pytest.raises(CountersAway):
            await take(counters)
        await counters.settle(leases[2], [PLACE], [0.0])
        server.start()
        await until_back(counters)
        assert await reserved(counters) == 1
        assert all([await take(counters) for _ in range(3)])
        assert not await take(counters)


async def test_a_redis_that_forgets_all_without_being_away(server: RedisServer) -> None:
    async with counting(server, BUSY_SECONDS) as counters:
        leases = [await take(counters) for _ in range(3)]
        await counters.set_used({COUNTER: (0.75, 0.0)})
        await counters._client.flushall()
        # The next one tells.
        leases.append(await take(counters))
        await until(lambda: not counters._agree.is_set())
        for _ in range(500):
            if await reserved(counters) == 4 and await used(counters) == 0.75:
                break
            await asyncio.sleep(0.01)
        assert (await reserved(counters), await used(counters)) == (4, 0.75)
        assert not await take(counters)
        for lease in leases:
            await counters.settle(lease, [PLACE], [0.0])
        assert await reserved(counters) == 0


async def test_a_take_that_comes_after_its_end_takes_nothing(server: RedisServer) -> None:
    async with counting(server, BUSY_SECONDS) as counters:
        run = counters._run

        async def late(script: str, keys: Any, arguments: Any) -> Any:
            if script == "take":
                await counters.settle(arguments[0], [PLACE], [0.0])
            return await run(script, keys, arguments)

        counters._run = late
        assert not await take(counters)
        counters._run = run
        assert await reserved(counters) == 0


async def test_a_take_that_is_asked_twice_is_taken_once(server: RedisServer) -> None:
    async with counting(server, BUSY_SECONDS) as counters:
        run = counters._run

        async def twice(script: str, keys: Any, arguments: Any) -> Any:
            await run(script, keys, arguments)
            return await run(script, keys, arguments)

        counters._run = twice
        assert all([await take(counters) for _ in range(4)])
        assert await reserved(counters) == 4
        assert not await take(counters)


async def test_more_at_a_time_than_there_are_connections(server: RedisServer) -> None:
    async with counting(server, BUSY_SECONDS) as counters:
        rule = Rule("key:r", Resource.requests, 1e6, "key 'r'")
        asked = [take(counters, Charge(rule, rule.counter, use=1.0)) for _ in range(400)]
        assert all(await asyncio.gather(*asked))


@asynccontextmanager
async def gateway(
    server: RedisServer,
    storage: Path,
    answer_seconds: float = 0.2,
    on_outage: OnOutage = "allow",
) -> AsyncIterator[tuple[Limiter, Any, Keeper]]:
    counters: Any = RedisCounters(server.url, renew_seconds=0.05, answer_seconds=answer_seconds)
    keeper = Keeper(f"sqlite:{storage}", counters, look_seconds=0.02)
    await counters.start()
    await keeper.start()
    try:
        yield Limiter(counters, on_outage, on_spent=keeper.spent), counters, keeper
    finally:
        await counters.stop()
        await keeper.stop()


@pytest.mark.parametrize("was_heard", [True, False])
async def test_a_request_that_finds_out_that_redis_is_away_is_counted_once(
    server: RedisServer, was_heard: bool
) -> None:
    """Its question has come to Redis or has not: there is no answer either way."""
    rule = Rule("key:r", Resource.requests, 2.0, "key 'r'")  # which drains in a minute
    rules = Rules([rule, CONCURRENT])
    async with counting(server, BUSY_SECONDS) as counters:
        limiter = Limiter(counters, "allow")
        execute = counters._execute

        async def without_an_answer(script: str, keys: Any, arguments: Any) -> Any:
            if script == "take" and was_heard:
                await execute(script, keys, arguments)
            raise ConnectionError("cut")

        counters._execute = without_an_answer
        admission = await limiter.admit(rules, NO_DEMAND)
        assert counters.is_away
        counters._execute = execute
        await until_back(counters)
        settling = admission.settle(0, 0)
        assert settling is not None
        await settling
        assert await reserved(counters) == 0
        assert await used(counters, rule.counter) == pytest.approx(1.0, abs=0.3)


async def test_a_take_of_what_is_used_at_once_that_is_asked_twice_is_taken_once(
    server: RedisServer,
) -> None:
    rule = Rule("key:r", Resource.requests, 2.0, "key 'r'")
    async with counting(server, BUSY_SECONDS) as counters:
        run = counters._run

        async def twice(script: str, keys: Any, arguments: Any) -> Any:
            await run(script, keys, arguments)
            return await run(script, keys, arguments)

        counters._run = twice
        charge = Charge(rule, rule.counter, use=1.0)
        assert await take(counters, charge)
        assert await used(counters, rule.counter) == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("forgets", [True, False])
async def test_what_is_spent_while_redis_is_away_counts_once(
    server: RedisServer, tmp_path: Path, forgets: bool
) -> None:
    demand = Demand(cost=0.001)
    async with gateway(server, tmp_path / "keys.sqlite") as (limiter, counters, _):
        unheard, before = [await limiter.admit(Rules([BUDGET]), demand) for _ in range(2)]
        first = await limiter.admit(Rules([BUDGET]), demand)
        first.settle(0, 0.25)
        await asyncio.sleep(0.1)
        if not forgets:
            await counters._client.save()
        server.kill()
        # This one finds out, and does not know whether it was heard; the others are not even sent.
        unheard.settle(0, 0.125)
        await until(lambda: counters.is_away)
        for _ in range(2):
            (await limiter.admit(Rules([BUDGET]), demand)).settle(0, 0.125)
        before.settle(0, 0.125)
        # The storage knows of what Redis does not, and tells it first.
        await asyncio.sleep(0.2)
        server.start()
        for _ in range(1000):
            if not counters.is_away and await used(counters) >= 0.75:
                break
            await asyncio.sleep(0.01)
        assert await used(counters) == pytest.approx(0.75)
        (await limiter.admit(Rules([BUDGET]), demand)).settle(0, 0.25)
        for _ in range(1000):
            if await used(counters) >= 1.0:
                break
            await asyncio.sleep(0.01)
        assert await used(counters) == pytest.approx(1.0)
        with pytest.raises(APIError, match="budget"):
            await limiter.admit(Rules([BUDGET]), demand)


async def test_a_redis_that_was_away_for_a_moment_is_told_what_was_spent(
    server: RedisServer,
) -> None:
    """By this process itself, once, and nobody has to write it to a storage before."""
    spent: list[float] = []
    async with counting(server, BUSY_SECONDS) as counters:
        limiter = Limiter(counters, on_spent=lambda _, amount: spent.append(amount))
        before = await limiter.admit(Rules([BUDGET]), Demand(cost=0.25))
        counters._lose(ConnectionError("cut"))
        apart = await limiter.admit(Rules([BUDGET]), Demand(cost=0.25))
        for each in (before, apart):
            each.settle(0, 0.25)
        assert spent == []
        await until_back(counters)
        assert await used(counters) == 0.5
        assert spent == [0.25, 0.25]


async def test_what_was_spent_while_it_is_away_for_long_is_written(server: RedisServer) -> None:
    """And Redis is not told of it a second time by who wrote it."""
    spent: list[float] = []
    async with counting(server) as counters:
        limiter = Limiter(counters, on_spent=lambda _, amount: spent.append(amount))
        unheard = await limiter.admit(Rules([BUDGET]), Demand(cost=0.25))
        server.kill()
        unheard.settle(0, 0.125)  # Redis may have counted it: it has to say so first
        await until(lambda: counters.is_away)
        (await limiter.admit(Rules([BUDGET]), Demand(cost=0.25))).settle(0, 0.25)
        await until(lambda: spent)
        assert spent == [0.25]
        server.start()
        await until_back(counters)
        assert await used(counters) == 0.125
        assert spent == [0.25, 0.125]


async def test_a_request_waits_for_a_place_among_those_who_ask_while_answers_come(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "PLACE_SECONDS", BUSY_SECONDS)
    async with counting(server, answer_seconds=1.0) as counters:
        counters._places = asyncio.Semaphore(4)
        rule = Rule("key:r", Resource.requests, 1e6, "key 'r'")
        execute, asked = counters._execute, 0

        async def slowly(script: str, keys: Any, arguments: Any) -> Any:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0.1)
            return await execute(script, keys, arguments)

        counters._execute = slowly
        charge = Charge(rule, rule.counter, use=1.0)
        # All of them take longer than one may take, each of them does not.
        assert all(await asyncio.gather(*(take(counters, charge) for _ in range(60))))
        assert (counters.outages, asked) == (0, 60)


async def test_one_that_answers_others_is_asked_again(server: RedisServer) -> None:
    async with counting(server) as counters:
        execute, slow = counters._execute, [0.15, 1000.0]

        async def mostly(script: str, keys: Any, arguments: Any) -> Any:
            await asyncio.sleep(slow.pop() if slow else 0.0)
            return await execute(script, keys, arguments)

        counters._execute = mostly
        assert all(await asyncio.gather(take(counters), take(counters)))
        assert counters.outages == 0
        # One that says nothing at all is not.
        slow[:] = [1000.0]
        with pytest.raises(CountersAway):
            await take(counters)
        assert counters.outages == 1


async def test_who_gets_no_place_in_time_finds_it_away(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "PLACE_SECONDS", 0.05)
    async with counting(server, BUSY_SECONDS) as counters:
        for _ in range(MAX_QUESTIONS):
            await counters._places.acquire()
        try:
            with pytest.raises(CountersAway) as away:
                await take(counters)
        finally:
            for _ in range(MAX_QUESTIONS):
                counters._places.release()
        assert not away.value.was_asked
        assert counters.outages == 1
        await until_back(counters)
        assert await take(counters)


async def test_what_a_redis_never_heard_of_is_kept_at_the_end(
    server: RedisServer, tmp_path: Path
) -> None:
    storage = tmp_path / "keys.sqlite"
    async with gateway(server, storage) as (limiter, _, _):
        admissions = [await limiter.admit(Rules([BUDGET]), Demand(cost=0.001)) for _ in range(2)]
        server.kill()
        for admission in admissions:
            admission.settle(0, 0.25)
    server.start()
    async with gateway(server, storage) as (_, counters, keeper):
        assert (await keeper.store.spent())[COUNTER] == (0.5, 0.0)
        assert await used(counters) == 0.5


@pytest.mark.parametrize("on_outage", ["allow", "refuse", "local_share"])
async def test_two_gateways_and_a_redis_in_trouble_count_every_cent_once(
    server: RedisServer, tmp_path: Path, on_outage: OnOutage
) -> None:
    dice = random.Random(1)
    rule = Rule("key:b", Resource.budget, 1e9, "key 'b'")
    rules = Rules([rule, Rule("key:c", Resource.concurrent, 1e6, "key 'c'")])
    spent = 0

    async def ask(limiter: Limiter, milliseconds: int, cents: int) -> None:
        nonlocal spent
        try:
            admission = await limiter.admit(rules, Demand(cost=0.5))
        except APIError:
            return  # nobody knows, and it is closed then
        await asyncio.sleep(milliseconds / 1000)
        spent += cents
        admission.settle(0, cents)

    async with AsyncExitStack() as stack:
        gateways = [
            await stack.enter_async_context(
                gateway(server, tmp_path / "keys.sqlite", 0.1, on_outage)
            )
            for _ in range(2)
        ]
        asking: set[asyncio.Task[None]] = set()
        for trouble in (server.pause, server.kill, server.pause, server.kill, server.pause):
            for is_well in (True, False):
                for _ in range(60):
                    limiter = dice.choice(gateways)[0]
                    work = ask(limiter, dice.randrange(150), dice.randrange(9))
                    asking.add(asyncio.create_task(work))
                    await asyncio.sleep(0.002)
                if is_well:
                    if trouble == server.kill and dice.random() < 0.5:
                        with suppress(Exception):
                            await gateways[0][1]._client.save()
                    trouble()
            (server.resume if trouble == server.pause else server.start)()
            await asyncio.sleep(0.1)
        await asyncio.gather(*asking)
        counters = gateways[0][1]
        for _ in range(1000):
            away = any(each.is_away or each._settling for _, each, _ in gateways)
            if not away and await used(counters) == spent and await reserved(counters) == 0:
                break
            await asyncio.sleep(0.01)
        # And it stays so.
        await asyncio.sleep(0.3)
        assert await used(counters) == spent
        assert await reserved(counters) == 0
        assert (await gateways[0][2].store.spent())[COUNTER][0] == spent


@pytest.mark.parametrize("is_away", [False, True])
async def test_an_end_that_no_store_takes_is_told_and_holds_up_no_other(
    server: RedisServer, is_away: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What it spent is kept all the same, and what it reserved is free."""
    spent: list[float] = []
    rules = Rules([CONCURRENT, BUDGET])
    async with counting(server, BUSY_SECONDS) as counters:
        limiter = Limiter(counters, on_spent=lambda _, amount: spent.append(amount))
        bad, good = [await limiter.admit(rules, Demand(cost=0.25)) for _ in range(2)]
        execute = counters._execute

        async def nonsense(script: str, keys: Any, arguments: Any) -> Any:
            if script == "settle" and arguments[0] == bad.lease:
                raise ValueError("no sense")
            return await execute(script, keys, arguments)

        counters._execute = nonsense
        if is_away:
            counters._lose(ConnectionError("cut"))
        settling = [each.settle(0, 0.125) for each in (bad, good)]
        await asyncio.gather(*[each for each in settling if each is not None])
        counters._agree.set()
        await until_back(counters)
        assert spent == [0.125, 0.125]
        for _ in range(1000):
            if await reserved(counters) == 0:
                break
            await asyncio.sleep(0.01)
        assert await reserved(counters) == 0
    assert "an end of a request is not counted in Redis" in caplog.text


async def test_to_look_takes_nothing_of_what_all_share(server: RedisServer) -> None:
    rules = Rules((CONCURRENT, BUDGET))
    async with counting(server, BUSY_SECONDS) as here, counting(server, BUSY_SECONDS) as there:
        admission = await Limiter(there).admit(rules, Demand(cost=0.25))
        for _ in range(3):
            looked = await Limiter(here).look(rules)
            assert [level for _, *level in looked] == [[0, 1], [0, 0.25]]
        settling = admission.settle(0, 0.125)
        assert settling is not None
        await settling
        looked = await Limiter(here).look(rules)
        assert [level for _, *level in looked] == [[0, 0], [0.125, 0]]
        server.kill()
        with pytest.raises(CountersAway):
            await Limiter(here).look(rules)
