"""Counters in memory and in Redis against a model: never over, and never a refusal for nothing.

The model knows every request that was let in and computes from them, without any state of its own,
what may be let in next.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routing.access.limits.memory import Counters, MemoryCounters
from routing.access.limits.names import PREFIX
from routing.access.limits.redis import RedisCounters
from routing.access.limits.rules import (
    MOST,
    Charge,
    Demand,
    Resource,
    Rule,
    Rules,
    period_at,
    used_of,
)
from tests.examples import examples
from tests.redis_server import RedisServer, needs_redis

DAY = 86400.0


@dataclass
class Clock:
    """What the counters see, which may jump."""

    raw: float = 1_000_000.0
    seen: float = 1_000_000.0
    elapsed: float = 0.0

    def __call__(self) -> float:
        return self.raw

    def look(self) -> float:
        """The seconds that went by from one look to the next; a step back is none."""
        self.elapsed += max(0.0, self.raw - self.seen)
        self.seen = self.raw
        return self.elapsed


@dataclass
class Model:
    """One rule's: what was used, and when, and what runs."""

    rule: Rule
    used: list[tuple[float, float]] = field(default_factory=list)
    running: dict[int, float] = field(default_factory=dict)

    def level(self, now: float) -> float:
        """Of all that was used, what has not drained."""
        level, last = 0.0, 0.0
        for time, amount in self.used:
            level = max(0.0, level - (time - last) * self.rule.drains) + amount
            last = time
        return max(0.0, level - (now - last) * self.rule.drains)

    def room(self, now: float) -> float:
        return self.rule.limit - self.level(now) - sum(self.running.values())


RULES = Rules(
    [
        Rule("key:a", Resource.requests, 6, "key 'a'"),
        Rule("key:a", Resource.tokens, 600, "key 'a'"),
        Rule("team:t", Resource.concurrent, 3, "team 't'"),
        Rule("key:a", Resource.budget, 2.0, "key 'a'", "ever"),
    ]
)

ASK = st.tuples(
    st.just("ask"),
    st.integers(min_value=0, max_value=700),
    st.sampled_from([0.0, 0.01, 0.1, 0.25, 1.0]),
)
END = st.tuples(
    st.just("end"), st.integers(min_value=0, max_value=5), st.sampled_from([0.0, 0.3, 1.0, 1.5])
)
MOVE = st.tuples(
    st.just("move"), st.sampled_from([0.0, 0.5, 3.0, 20.0, 90.0, 5000.0, -7.0, -9000.0])
)
STEPS = st.lists(st.one_of(ASK, ASK, END, MOVE), min_size=1, max_size=60)


def charges(tokens: float, cost: float) -> list[Charge]:
    return RULES.charges(Demand(tokens, is_guess=False, cost=cost), now=0.0)


async def play(steps: list[tuple[object, ...]]) -> int:
    """Play `steps`; how many decisions were made."""
    clock = Clock()
    counters = MemoryCounters(clock, wall=lambda: 0.0)
    models = [Model(rule) for rule in RULES]
    running: dict[int, tuple[str, list[Charge]]] = {}
    decisions = 0
    for number, step in enumerate(steps):
        match step:
            case ("ask", int(tokens), float(cost)):
                asked = charges(tokens, cost)
                taken = await counters.take(asked)
                decisions += 1
                now = clock.look()
                slack = [
                    model.room(now) - charge.amount
                    for model, charge in zip(models, asked, strict=True)
                ]
                if min(slack) > 1e-6:
                    assert taken.lease, f"refused for nothing: {slack}"
                if min(slack) < -1e-6:
                    assert not taken.lease, f"over: {slack}"
                for level, model, charge in zip(taken.levels, models, asked, strict=True):
                    taken_now = charge.amount if taken.lease else 0.0
                    left = model.rule.limit - sum(level)
                    assert left == pytest.approx(model.room(now) - taken_now, abs=1e-6)
                if taken.lease:
                    running[number] = (taken.lease, asked)
                    for model, charge in zip(models, asked, strict=True):
                        if charge.use:
                            model.used.append((now, charge.use))
                        model.running[number] = charge.reserve
            case ("end", int(which), float(share)):
                if not running:
                    continue
                number = sorted(running)[which % len(running)]
                lease, taken_charges = running.pop(number)
                used = [
                    used_of([charge], charge.reserve * share, charge.reserve * share)[0]
                    for charge in taken_charges
                ]
                counters.settle(lease, taken_charges, used)
                counters.settle(lease, taken_charges, used)
                for model, amount in zip(models, used, strict=True):
                    del model.running[number]
                    model.used.append((clock.look(), amount))
            case ("move", float(seconds)):
                clock.raw += seconds
    for lease, taken_charges in running.values():
        counters.settle(lease, taken_charges, [0.0] * len(taken_charges))
    # After all ends nothing is reserved, and after a while nothing is used but of the budget.
    clock.look()
    clock.raw += DAY
    last = await counters.take(charges(600, 0.0))
    assert last.lease or models[3].room(clock.look()) < 0
    return decisions


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_memory_decides_as_the_model_does(steps: list[tuple[object, ...]]) -> None:
    asyncio.run(play(steps))


def test_ten_thousand_decisions() -> None:
    made = 0
    for seed in range(60):
        dice = Random(seed)
        made += asyncio.run(play([_any_step(dice) for _ in range(250)]))
    assert made >= 10_000


def _any_step(dice: Random) -> tuple[object, ...]:
    match dice.choices(["ask", "end", "move"], [7, 2, 1])[0]:
        case "ask":
            return "ask", dice.randrange(300), dice.choice([0.0, 0.01, 0.1])
        case "end":
            return "end", dice.randrange(6), dice.choice([0.0, 0.3, 1.0, 1.5])
        case _:
            return "move", dice.choice([0.5, 3.0, 20.0, 90.0, 5000.0, -7.0, -9000.0])


async def test_all_are_taken_or_none() -> None:
    counters = MemoryCounters(Clock())
    assert not (await counters.take(charges(601, 0.0))).lease
    assert not (await counters.take(charges(0, 2.5))).lease
    for _ in range(3):
        assert (await counters.take(charges(200, 0.0))).lease
    assert not (await counters.take(charges(0, 0.0))).lease


NONSENSE = [-1.0, -1e9, float("-inf"), float("nan")]


@pytest.mark.parametrize("amount", NONSENSE)
async def test_nobody_makes_room_for_others_in_memory(amount: float) -> None:
    await makes_no_room(MemoryCounters(Clock(), wall=lambda: 0.0), amount)


async def makes_no_room(counters: Counters, amount: float) -> None:
    """What is less than nothing is nothing, while it is reserved and when it was used."""
    asked = charges(amount, amount)
    taken = await counters.take(asked)
    assert taken.lease
    assert not (await counters.take(charges(610, 0.0))).lease
    assert not (await counters.take(charges(0, 2.1))).lease
    settling = counters.settle(taken.lease, asked, used_of(asked, amount, amount))
    if settling is not None:
        await settling
    assert not (await counters.take(charges(610, 0.0))).lease
    assert not (await counters.take(charges(0, 2.1))).lease
    assert (await counters.take(charges(590, 2.0))).lease
    assert not (await counters.take(charges(300, 0.0))).lease


async def test_the_largest_amounts_are_counted_too() -> None:
    demand = Demand(10**400, is_guess=False, cost=float("inf"))
    _, minutely, _, budget = asked = RULES.charges(demand, now=0.0)
    assert (minutely.reserve, budget.reserve) == (MOST, MOST)
    assert used_of(asked, 10**400, float("inf")) == [0.0, MOST, 0.0, MOST]
    assert used_of(asked, -1.0, float("nan")) == [0.0, 0.0, 0.0, 0.0]
    for charge in (minutely, budget):
        assert not (await MemoryCounters(Clock()).take([charge])).lease


async def test_counters_of_past_budgets_are_forgotten() -> None:
    now = 0.0
    counters = MemoryCounters(Clock(), wall=lambda: now)
    rule = Rule("key:a", Resource.budget, 2.0, "key 'a'", "day")
    for day in range(10):
        now = day * DAY + 10
        name, ends = period_at("day", now)
        charge = Charge(rule, f"key:a:budget:{name}", reserve=2.0, ends=ends)
        taken = await counters.take([charge])
        assert taken.lease
        counters.settle(taken.lease, [charge], [2.0])
        assert not (await counters.take([charge])).lease
    assert len(counters._counters) <= 2


ANSWER_SECONDS = 10.0
"""A machine that is busy with tests is no Redis that is away."""

# Redis ------------------------------------------------------------------------------------------


@pytest.fixture
async def shared(redis: RedisServer) -> RedisCounters:
    counters = RedisCounters(redis.url, answer_seconds=ANSWER_SECONDS)
    await counters.start()
    assert counters._client is not None
    await counters._client.flushall()
    return counters


SLOW = Rule("key:a", Resource.tokens, 600, "key 'a'")
"""What drains of it while a test runs is little; and it is taken into account."""


@needs_redis
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(st.one_of(ASK, ASK, END), min_size=1, max_size=60))
def test_redis_decides_as_the_model_does(
    redis: RedisServer, steps: list[tuple[object, ...]]
) -> None:
    asyncio.run(_play_on_redis(redis.url, steps))


async def _play_on_redis(url: str, steps: list[tuple[object, ...]]) -> None:
    """As `play`, but the clock is the server's: only the limits that do not drain are exact."""
    counters = RedisCounters(url, answer_seconds=ANSWER_SECONDS)
    await counters.start()
    assert counters._client is not None
    await counters._client.flushall()
    begun = asyncio.get_running_loop().time()
    models = [Model(rule) for rule in RULES]
    running: dict[int, tuple[str, list[Charge]]] = {}
    for number, step in enumerate(steps):
        now = asyncio.get_running_loop().time() - begun
        match step:
            case ("ask", int(tokens), float(cost)):
                asked = charges(tokens, cost)
                taken = await counters.take(asked)
                slack = [
                    model.room(now) - charge.amount
                    for model, charge in zip(models, asked, strict=True)
                ]
                # A tenth of a second's drain: 0.01 requests, 1 token.
                margin = [0.05, 5.0, 1e-6, 1e-6]
                if all(over > least for over, least in zip(slack, margin, strict=True)):
                    assert taken.lease, f"refused for nothing: {slack}"
                if any(over < -least for over, least in zip(slack, margin, strict=True)):
                    assert not taken.lease, f"over: {slack}"
                if taken.lease:
                    running[number] = (taken.lease, asked)
                    for model, charge in zip(models, asked, strict=True):
                        if charge.use:
                            model.used.append((now, charge.use))
                        model.running[number] = charge.reserve
            case ("end", int(which), float(share)):
                if not running:
                    continue
                number = sorted(running)[which % len(running)]
                lease, taken_charges = running.pop(number)
                used = [
                    used_of([charge], charge.reserve * share, charge.reserve * share)[0]
                    for charge in taken_charges
                ]
                await counters.settle(lease, taken_charges, used)
                await counters.settle(lease, taken_charges, used)
                for model, amount in zip(models, used, strict=True):
                    del model.running[number]
                    model.used.append((now, amount))
    await counters.stop()


@needs_redis
@pytest.mark.parametrize("amount", NONSENSE)
async def test_nobody_makes_room_for_others_in_redis(shared: RedisCounters, amount: float) -> None:
    await makes_no_room(shared, amount)
    await shared.stop()


@needs_redis
async def test_redis_takes_no_less_than_nothing(shared: RedisCounters) -> None:
    """Whoever asks it, and if that is a gateway of another version."""
    rule = Rule("key:a", Resource.budget, 2.0, "key 'a'")
    counter = [f"{PREFIX}budget", f"{PREFIX}budget:leases"]
    for lease in ("one", "two"):
        names = [f"{PREFIX}clock", f"{PREFIX}settled:{lease}", *counter]
        await shared._run("take", names, [lease, 60, rule.limit, 0, -1000, -1000, 0])
        await shared._run("settle", names, [lease, 60, 0, 0, -1000])
    assert not (await shared.take([Charge(rule, "budget", reserve=2.5)])).lease
    await shared.stop()


@needs_redis
async def test_a_crashed_process_holds_nothing_for_long(redis: RedisServer) -> None:
    crashed = RedisCounters(redis.url, 0.3, 1000, ANSWER_SECONDS)
    alive = RedisCounters(redis.url, 0.3, 0.05, ANSWER_SECONDS)
    await crashed.start()
    await alive.start()
    assert alive._client is not None
    await alive._client.flushall()
    charge = Charge(Rule("key:c", Resource.concurrent, 2, "key 'c'"), "key:c:concurrent", 1.0)
    assert (await crashed.take([charge])).lease
    assert (await alive.take([charge])).lease
    assert not (await alive.take([charge])).lease
    # What the crashed one held is free after a while; what the other holds it renews.
    async with asyncio.timeout(10):
        while not await _lets_in(alive, charge):
            pass
    assert not (await alive.take([charge])).lease
    for each in (crashed, alive):
        await each.stop()


async def _lets_in(counters: RedisCounters, charge: Charge) -> bool:
    await asyncio.sleep(0.02)
    return bool((await counters.take([charge])).lease)


async def test_what_others_used_is_raised_to_and_drains_from_then_on() -> None:
    clock = Clock()
    counters = MemoryCounters(clock)
    rule = Rule("key:r", Resource.requests, 60, "key 'r'")  # one drains in a second
    charge = Charge(rule, rule.counter, use=1.0)
    for _ in range(10):
        await counters.take([charge])
    clock.raw += 8.0
    counters.raise_to(charge, 6.0, 0.0)
    clock.raw += 1.0
    assert (await counters.take([charge])).levels == [(6.0, 0.0)]
    # Less than there is changes nothing.
    counters.raise_to(charge, 2.0, 0.0)
    assert (await counters.take([charge])).levels == [(7.0, 0.0)]


async def test_who_runs_here_is_among_those_who_run() -> None:
    counters = MemoryCounters(Clock())
    rule = Rule("key:c", Resource.concurrent, 4, "key 'c'")
    charge = Charge(rule, rule.counter, 1.0)
    own = await counters.take([charge])
    for running, places in ((1.0, 3), (3.0, 1), (4.0, 0), (0.0, 3)):
        counters.raise_to(charge, 0.0, running)
        leases = [(await counters.take([charge])).lease for _ in range(4)]
        assert sum(map(bool, leases)) == places
        for lease in filter(None, leases):
            counters.settle(lease, [charge], [0.0])
    counters.settle(own.lease, [charge], [0.0])
    counters.raise_to(charge, 0.0, 0.0)
    assert counters.held(charge.counter) == 0
