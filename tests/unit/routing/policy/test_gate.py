"""`max_concurrent`: who gets in, who waits, and who is sent away."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

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


async def test_who_is_cancelled_before_a_place_is_passed_on_ends_as_cancelled() -> None:
    """As it was found: a place is passed on between a waiter's cancellation and its end."""
    gate = Gate("p", 1, 3)
    await gate.enter()
    first, second = (asyncio.create_task(gate.enter()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    gate.leave()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    gate.leave()
    assert (gate.running, gate.waiting) == (0, 0)


EVENTS = ("comes", "leaves", "cancel 0", "cancel 1", "the loop turns")


class Visitor:
    """Enters the gate, and is in until it leaves."""

    def __init__(self, gate: Gate) -> None:
        self.is_in = False
        self._gate = gate
        self.task = asyncio.create_task(self._visit())

    async def _visit(self) -> None:
        await self._gate.enter()
        self.is_in = True

    def leave(self) -> None:
        self.is_in = False
        self._gate.leave()


async def interleaved(events: Sequence[str]) -> None:
    """Two that are in and two that wait, and then what `events` say, one right after the other."""
    gate = Gate("p", 2, 9)
    visitors = [Visitor(gate) for _ in range(4)]
    waiting = visitors[2:]
    await asyncio.sleep(0)
    for event in events:
        inside = [each for each in visitors if each.is_in]
        if event == "comes":
            visitors.append(Visitor(gate))
        elif event == "leaves" and inside:
            inside[0].leave()
        elif event.startswith("cancel"):
            waiting[int(event[-1])].task.cancel()
        else:
            await asyncio.sleep(0)
    for _ in range(8):
        await asyncio.sleep(0)
    # No place is lost and none is given twice: who waits waits because two are in.
    inside = [each for each in visitors if each.is_in]
    assert gate.running == len(inside) <= 2
    assert not gate.waiting or gate.running == 2
    for each in visitors:
        if each.task.done() and not each.task.cancelled():
            assert each.task.exception() is None
    while inside:
        for each in inside:
            each.leave()
        for _ in range(8):
            await asyncio.sleep(0)
        inside = [each for each in visitors if each.is_in]
    assert (gate.running, gate.waiting, gate.has_room) == (0, 0, True)
    assert all(each.task.done() for each in visitors)


def test_no_order_of_events_loses_a_place() -> None:
    async def all_of_them() -> None:
        for events in itertools.product(EVENTS, repeat=5):
            try:
                await interleaved(events)
            except BaseException as error:
                raise AssertionError(f"after {events}") from error

    asyncio.run(all_of_them())


async def test_what_can_wait_comes_after_all_others_and_is_never_too_much() -> None:
    gate = Gate("p", 1, 1)
    await gate.enter()
    order: list[str] = []

    async def come(name: str, can_wait: bool) -> None:
        await gate.enter(can_wait=can_wait)
        order.append(name)
        gate.leave()

    tasks = [asyncio.create_task(come(f"patient {n}", True)) for n in range(3)]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(come("somebody", False)))
    await asyncio.sleep(0)
    assert (gate.waiting, gate.is_full) == (1, True)
    tasks[1].cancel()
    gate.leave()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["somebody", "patient 0", "patient 2"]
    assert gate.running == 0
