"""`max_concurrent`: who gets in, who waits, and who is sent away."""

from __future__ import annotations

import asyncio

import pytest

from routing.policy.gate import Gate, ProviderBusy


async def test_so_many_get_in_and_the_next_wait_in_order() -> None:
    gate = Gate("p", 2, 2)
    await gate.enter()
    assert gate.has_room
    await gate.enter()
    assert not gate.has_room
    assert not gate.is_full
    order: list[str] = []

    async def enter(name: str) -> None:
        await gate.enter()
        order.append(name)

    waiting = [asyncio.create_task(enter(name)) for name in "ab"]
    await asyncio.sleep(0)
    assert (gate.running, gate.waiting, gate.is_full) == (2, 2, True)
    gate.leave()
    await waiting[0]
    assert (order, gate.running, gate.waiting) == (["a"], 2, 1)
    gate.leave()
    await waiting[1]
    gate.leave()
    gate.leave()
    assert (order, gate.running, gate.has_room) == (["a", "b"], 0, True)


async def test_beyond_that_the_answer_is_429_with_retry_after() -> None:
    gate = Gate("azure", 1, 0)
    await gate.enter()
    with pytest.raises(ProviderBusy, match="'azure' has 1 requests running and 0 waiting") as told:
        await gate.enter()
    assert (told.value.status, told.value.retry_after) == (429, 1)


async def test_who_gives_up_waiting_leaves_no_gap() -> None:
    gate = Gate("p", 1, 3)
    await gate.enter()
    first, second = (asyncio.create_task(gate.enter()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert gate.waiting == 1
    gate.leave()
    await second
    gate.leave()
    assert gate.running == 0


async def test_who_is_cancelled_as_its_turn_comes_passes_it_on() -> None:
    gate = Gate("p", 1, 3)
    await gate.enter()
    first, second = (asyncio.create_task(gate.enter()) for _ in range(2))
    await asyncio.sleep(0)
    gate.leave()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await second
    assert gate.running == 1
    gate.leave()
    assert gate.running == 0
