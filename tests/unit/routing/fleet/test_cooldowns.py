"""One gateway finds out that a target fails, and one probes it; all know."""

from __future__ import annotations

import asyncio
import time

import pytest

from routing.fleet import cooldowns
from routing.policy.cooldown import CooldownRule
from routing.policy.targets import States
from tests.redis_server import RedisServer, needs_redis
from tests.unit.routing.fleet.conftest import Join
from tests.unit.routing.fleet.test_fleet import states, target, until

pytestmark = needs_redis

RULE = CooldownRule(failures=1, within=30.0, seconds=0.2)
LONG = CooldownRule(failures=1, within=30.0, seconds=30.0)


def fails(of: States, rule: CooldownRule = LONG) -> None:
    target(of, "a").cooldown.failed(time.monotonic(), rule)


def admits(of: States) -> bool:
    return target(of, "a").cooldown.admits(time.monotonic())


async def test_a_target_that_one_leaves_alone_all_leave_alone(join: Join) -> None:
    here, there = states("a"), states("a")
    async with join(here), join(there):
        fails(there)
        await until(lambda: not admits(here))
        assert 25 < target(here, "a").cooldown.until - time.monotonic() <= 30
        # It is not told back and forth.
        assert target(here, "a").failures_in_a_row == 0


async def test_who_comes_later_knows_it_too(join: Join) -> None:
    here, there = states("a"), states("a")
    async with join(there) as other:
        fails(there)
        for _ in range(2):  # the first may have begun before
            await other.exchanged()
        async with join(here):
            assert not admits(here)


async def test_one_probes_and_all_know(join: Join) -> None:
    all_states = [states("a") for _ in range(4)]
    async with join(all_states[0]), join(all_states[1]), join(all_states[2]), join(all_states[3]):
        fails(all_states[0], RULE)
        await until(lambda: all(target(each, "a").cooldown.until for each in all_states))
        probes = []

        def requests() -> bool:
            """One at each gateway."""
            for each in all_states:
                cooldown, now = target(each, "a").cooldown, time.monotonic()
                if cooldown.admits(now):
                    probe = cooldown.begin(now, LONG)
                    if probe is not None:
                        probes.append((cooldown, probe))
            return bool(probes)

        await until(requests)
        for _ in range(50):
            requests()
            await asyncio.sleep(0.005)
        assert len(probes) == 1
        cooldown, probe = probes[0]
        cooldown.answers(probe)
        await until(lambda: all(admits(each) for each in all_states))


async def test_a_probe_that_fails_is_known_to_all_and_another_may_probe_then(join: Join) -> None:
    here, there = states("a"), states("a")
    async with join(here), join(there):
        fails(here, RULE)
        await until(lambda: target(there, "a").cooldown.until)
        await until(lambda: admits(here))
        cooldown = target(here, "a").cooldown
        probe = cooldown.begin(time.monotonic(), RULE)
        assert probe is not None
        before = target(there, "a").cooldown.until
        cooldown.failed(time.monotonic(), RULE, probe=probe)
        await until(lambda: target(there, "a").cooldown.until > before)
        await until(lambda: admits(there))


async def test_of_a_gateway_that_dies_with_its_turn_another_takes_over(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooldowns, "CLAIM_SECONDS", 1.0)
    monkeypatch.setattr(cooldowns, "LOOK_AGAIN_SECONDS", 0.1)
    here, there = states("a"), states("a")
    async with join(here), join(there) as other:
        fails(there, RULE)
        await until(lambda: target(here, "a").cooldown.until)
        await until(lambda: admits(there))
        running = other._running
        assert running is not None
        # Redis' client may take a cancellation that comes as its time is over for that.
        await until(lambda: not running.cancel())
        other._running = None
        assert not admits(here)
        await until(lambda: admits(here))


async def test_while_the_store_is_away_each_probes_for_itself(
    join: Join, redis: RedisServer
) -> None:
    here, there = states("a"), states("a")
    async with join(here, 0.2) as one, join(there, 0.2) as other:
        fails(here, RULE)
        await until(lambda: target(there, "a").cooldown.until)
        redis.kill()
        await until(lambda: one.is_away and other.is_away)
        await until(lambda: admits(here) and admits(there))
        redis.start()


async def test_what_one_drains_all_leave_alone_and_who_comes_later_too(join: Join) -> None:
    here, there, late = states("a"), states("a"), states("a")
    async with join(here), join(there) as other:
        target(there, "a").cooldown.drain()
        await until(lambda: not admits(here))
        assert target(here, "a").cooldown.is_drained
        await other.exchanged()
        async with join(late):
            assert target(late, "a").cooldown.is_drained
            # Whoever opens it opens it for all.
            target(here, "a").cooldown.open()
            await until(lambda: admits(there) and admits(late))


async def test_what_was_opened_while_the_store_was_away_is_not_drained_again(
    join: Join, redis: RedisServer
) -> None:
    here, there = states("a"), states("a")
    async with join(here, 0.2) as one, join(there, 0.2) as other:
        target(here, "a").cooldown.drain()
        await until(lambda: target(there, "a").cooldown.is_drained)
        for each in (one, other):  # a minute passes
            (shared,) = each._cooldowns._watched.values()
            assert shared.turned_at is not None
            shared.turned_at -= 60.0
        redis.kill()
        await until(lambda: one.is_away and other.is_away)
        target(there, "a").cooldown.open()
        redis.start()
        await until(lambda: not (one.is_away or other.is_away))
        await until(lambda: not target(here, "a").cooldown.is_drained)
        assert not target(there, "a").cooldown.is_drained


def test_the_later_of_two_words_counts_and_of_two_at_about_the_same_time_drained() -> None:
    now = 1000.0
    here = cooldowns.SharedCooldowns("here", lambda: None, lambda: now)
    of = states("a")
    here.watch(target(of, "a"))
    name, cooldown = target(of, "a").id, target(of, "a").cooldown
    here.compares(name, age=100.0, is_drained=True)  # nobody has said anything here
    assert cooldown.is_drained
    here.compares(name, age=100.0, is_drained=False)
    assert cooldown.is_drained
    here.compares(name, age=90.0, is_drained=False)
    assert not cooldown.is_drained
    cooldown.drain()
    here.compares(name, age=50.0, is_drained=False)
    assert cooldown.is_drained
    cooldown.open()
    here.compares(name, age=1.0, is_drained=True)  # it has not heard of that yet
    assert not cooldown.is_drained
    now += 20.0
    here.compares(name, age=21.0, is_drained=True)
    assert cooldown.is_drained
