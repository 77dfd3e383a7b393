"""Counters in PostgreSQL, one that is well, frozen, emptied or ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from llama_compat.distribution import OnOutage
from llama_compat.errors import APIError
from routing.access.limits.limiter import Limiter
from routing.access.limits.postgres import PostgresCounters
from routing.access.limits.rules import Charge, Demand, Resource, Rule, Rules
from tests import postgres
from tests.unit.routing.access.limits.test_share import (
    BUDGET,
    CONCURRENT,
    COUNTER,
    REQUESTS,
    TOKENS,
    admitted,
)
from tests.unit.routing.access.limits.test_shared_away import until_back


@pytest.fixture
def server(postgres_server: postgres.PostgresServer) -> postgres.PostgresServer:
    asyncio.run(postgres.emptied(postgres_server.address))
    return postgres_server


@asynccontextmanager
async def gateway(
    address: str,
    on_outage: OnOutage = "local_share",
    answer_seconds: float = 10.0,
    lease_seconds: float = 60.0,
    renew_seconds: float = 0.05,
) -> AsyncIterator[Limiter]:
    counters = PostgresCounters(address, lease_seconds, renew_seconds, answer_seconds)
    await counters.start()
    try:
        yield Limiter(counters, on_outage, gateways=lambda: 2)
    finally:
        await counters.stop()


async def ask(server: postgres.PostgresServer, question: str) -> Any:
    import asyncpg

    connection = await asyncpg.connect(server.address)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def test_two_gateways_count_together(server: postgres.PostgresServer) -> None:
    async with gateway(server.address) as one, gateway(server.address) as other:
        assert not one.counters.is_away
        assert len(await admitted(one, CONCURRENT, 3)) == 3
        assert len(await admitted(other, CONCURRENT)) == 1
        assert len(await admitted(one, REQUESTS, 6)) == 6
        assert len(await admitted(other, REQUESTS)) == 4
        [tokens] = await admitted(one, TOKENS, tokens=600, is_guess=False)
        settling = tokens.settle(100, 0)
        assert settling is not None
        await settling
        assert len(await admitted(other, TOKENS, 1, tokens=850, is_guess=False)) == 1
        with pytest.raises(APIError) as refused:
            await other.admit(Rules([CONCURRENT]), Demand())
        assert refused.value.status == 429


async def test_a_budget_is_seeded_and_settled_once(server: postgres.PostgresServer) -> None:
    # What one knows is what it was told last: it does not look by itself meanwhile.
    async with (
        gateway(server.address, renew_seconds=30) as one,
        gateway(server.address, renew_seconds=30) as other,
    ):
        await one.counters.set_used({COUNTER: (0.5, 0.0)})
        [first] = await admitted(other, BUDGET, 1, cost=0.4)
        for _ in range(2):
            settling = first.settle(0, 0.25)
            if settling is not None:
                await settling
        assert one.counters.known(COUNTER) == 0.5
        await one.counters.set_used({COUNTER: (0.5, 0.0)})
        assert one.counters.known(COUNTER) == 0.75
        assert len(await admitted(one, BUDGET, cost=0.1)) == 2


async def test_a_budget_is_forgotten_when_its_period_has_long_ended(
    server: postgres.PostgresServer,
) -> None:
    periods = {"2020-01": 1.58e9, "2100-01": 4.1e9, "ever": 0.0}
    async with gateway(server.address) as one:
        for period, ends in periods.items():
            charge = Charge(BUDGET, f"key:b:budget:{period}", reserve=0.1, ends=ends)
            taken = await one.counters.take([charge])
            await one.counters.settle(taken.lease, [charge], [0.1])  # type: ignore[misc]
        await one.counters.set_used({"key:c:budget:2020-01": (0.5, 1.58e9)})
        await asyncio.sleep(0.2)  # and all of them are told of
    async with gateway(server.address):
        names = await ask(
            server, "SELECT array_agg(counter ORDER BY counter) FROM llama_compat.limit_counters"
        )
    assert [each.rpartition(":")[2] for each in names] == ["2100-01", "ever"]


async def test_one_that_is_frozen_is_away_and_agrees_again(
    server: postgres.PostgresServer,
) -> None:
    async with gateway(server.address, answer_seconds=0.3) as one:
        running = await admitted(one, CONCURRENT, 2)
        server.pause()
        try:
            apart = await one.admit(Rules([REQUESTS]), Demand())
            assert one.apart == 1
            assert one.counters.is_away
            running[0].settle(0, 0)
            apart.settle(0, 0)
        finally:
            server.resume()
        await until_back(one.counters)
        assert await ask(server, "SELECT COUNT(*) FROM llama_compat.limit_leases") == 1
        used = await ask(
            server, "SELECT used FROM llama_compat.limit_counters WHERE counter LIKE '%key:r%'"
        )
        # What found out may have been heard as well; that is never less than was let in.
        assert 0.5 < used <= 2.0


async def test_one_that_has_lost_all_is_told_again(server: postgres.PostgresServer) -> None:
    async with gateway(server.address) as one:
        await one.counters.set_used({COUNTER: (0.5, 0.0)})
        assert len(await admitted(one, CONCURRENT, 3)) == 3
        tables = "limit_counters, limit_leases, limit_marks, limit_epochs"
        truncated = f"TRUNCATE {', '.join('llama_compat.' + each for each in tables.split(', '))}"
        await postgres.execute(server.address, truncated)
        for _ in range(1000):
            leases = await ask(server, "SELECT COUNT(*) FROM llama_compat.limit_leases")
            used = await ask(
                server, "SELECT used FROM llama_compat.limit_counters WHERE counter LIKE '%budget%'"
            )
            if (leases, used) == (3, 0.5):
                break
            await asyncio.sleep(0.01)
        assert (leases, used) == (3, 0.5)
        assert len(await admitted(one, CONCURRENT)) == 1


async def test_what_a_gateway_that_is_gone_had_reserved_is_free_after_its_lease(
    server: postgres.PostgresServer,
) -> None:
    async with gateway(server.address) as one:
        gone = PostgresCounters(server.address, 0.5, 1000, 10.0)
        await gone.start()
        assert len(await admitted(Limiter(gone), CONCURRENT, 4)) == 4
        for _ in range(1000):
            if await admitted(one, CONCURRENT, 1):
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("its places are not free")
        gone._live.clear()
        await gone.stop()


@pytest.mark.parametrize("was_heard", [True, False])
async def test_a_request_that_finds_out_that_it_is_away_is_counted_once(
    server: postgres.PostgresServer, was_heard: bool
) -> None:
    """Its question has come there or has not: there is no answer either way."""
    rule = Rule("key:once", Resource.requests, 2.0, "key 'once'")  # which drains in a minute
    async with gateway(server.address, "allow") as limiter:
        counters: Any = limiter.counters
        execute = counters._execute

        async def without_an_answer(script: str, keys: Any, arguments: Any) -> Any:
            if script == "take" and was_heard:
                await execute(script, keys, arguments)
            raise ConnectionError("cut")

        counters._execute = without_an_answer
        admission = await limiter.admit(Rules([rule, CONCURRENT]), Demand())
        assert counters.is_away
        counters._execute = execute
        await until_back(counters)
        settling = admission.settle(0, 0)
        assert settling is not None
        await settling
    used = await ask(
        server, "SELECT used FROM llama_compat.limit_counters WHERE counter LIKE '%once%'"
    )
    assert used == pytest.approx(1.0, abs=0.3)
    assert await ask(server, "SELECT count(*) FROM llama_compat.limit_leases") == 0


async def test_a_take_that_is_asked_twice_is_taken_once(server: postgres.PostgresServer) -> None:
    rule = Rule("key:twice", Resource.requests, 3.0, "key 'twice'")
    async with gateway(server.address) as limiter:
        counters: Any = limiter.counters
        run = counters._run

        async def twice(script: str, keys: Any, arguments: Any) -> Any:
            await run(script, keys, arguments)
            return await run(script, keys, arguments)

        counters._run = twice
        taken = await counters.take(Rules([rule, CONCURRENT]).charges(Demand(), 0.0))
        assert taken.lease
        counters._run = run
        assert taken.levels[0][0] == pytest.approx(1.0, abs=0.3)
        assert taken.levels[1][1] == 1.0


async def test_a_take_that_comes_after_its_end_takes_nothing(
    server: postgres.PostgresServer,
) -> None:
    rule = Rule("key:late", Resource.requests, 3.0, "key 'late'")
    charges = Rules([rule, CONCURRENT]).charges(Demand(), 0.0)
    async with gateway(server.address) as limiter:
        counters: Any = limiter.counters
        run = counters._run

        async def late(script: str, keys: Any, arguments: Any) -> Any:
            if script == "take":
                await counters.settle(arguments[0], charges, [0.0] * len(charges))
            return await run(script, keys, arguments)

        counters._run = late
        assert not (await counters.take(charges)).lease
        counters._run = run
    assert await ask(server, "SELECT count(*) FROM llama_compat.limit_leases") == 0


async def test_to_look_takes_nothing(server: postgres.PostgresServer) -> None:
    rules = Rules((CONCURRENT, REQUESTS))
    async with gateway(server.address) as here, gateway(server.address) as there:
        admission = await there.admit(rules, Demand())
        for _ in range(3):
            concurrent, requests = await here.look(rules)
            assert concurrent[1:] == (0, 1)
            assert 0 < requests[1] <= 1
        settling = admission.settle(0, 0)
        assert settling is not None
        await settling
        assert (await here.look(rules))[0][1:] == (0, 0)


async def test_a_connection_may_take_longer_than_an_answer(
    server: postgres.PostgresServer,
) -> None:
    async with gateway(server.address, answer_seconds=1.0) as one:
        counters: Any = one.counters
        opened = counters._opened

        async def slowly() -> Any:
            await asyncio.sleep(1.2)
            return await opened()

        await counters._disconnect()
        counters._opened = slowly
        assert len(await admitted(one, CONCURRENT, 1)) == 1
        assert counters.outages == 0
        # With one that is open there is nothing to wait for.
        execute = counters._execute

        async def hangs(script: str, keys: Any, arguments: Any) -> Any:
            await asyncio.sleep(1.2)
            return await execute(script, keys, arguments)

        counters._execute = hangs
        await admitted(one, CONCURRENT, 1)
        assert counters.outages == 1
        counters._execute = execute
