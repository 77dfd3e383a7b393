"""Waiting for the first of several things, by the clock of the loop alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from routing.waiting import AGAIN_SECONDS, cancelled, first_of
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_the_time_ends_it() -> None:
    await first_of(asyncio.Event(), 3.0)
    assert asyncio.get_running_loop().time() == 3.0


@in_virtual_time
async def test_the_event_ends_it_and_stays_set() -> None:
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.call_later(1.0, event.set)
    await first_of(event, 3.0)
    await first_of(event, None)
    assert (loop.time(), event.is_set()) == (1.0, True)


@in_virtual_time
async def test_a_task_ends_it_and_the_others_run_on() -> None:
    tasks = [asyncio.create_task(asyncio.sleep(seconds)) for seconds in (5.0, 2.0)]
    await first_of(asyncio.Event(), None, tasks)
    assert asyncio.get_running_loop().time() == 2.0
    assert [task.done() for task in tasks] == [False, True]
    await tasks[0]


@in_virtual_time
async def test_beside_tasks_the_time_and_the_event_end_it_too() -> None:
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    task = asyncio.create_task(asyncio.sleep(9.0))
    await first_of(event, 1.0, [task])
    assert loop.time() == 1.0
    loop.call_later(2.0, event.set)
    await first_of(event, 30.0, [task])
    assert (loop.time(), task.done()) == (3.0, False)
    await task


@in_virtual_time
async def test_nothing_stays_behind_of_one_that_is_cancelled() -> None:
    task = asyncio.create_task(asyncio.sleep(9.0))
    waiting = asyncio.create_task(first_of(asyncio.Event(), None, [task]))
    await asyncio.sleep(1.0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task(), task}
    await task


@in_virtual_time
async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    async def deaf_once() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(100.0)
        await asyncio.sleep(100.0)

    async def failing() -> None:
        raise RuntimeError("whatever comes of it")

    tasks = [asyncio.create_task(deaf_once()), asyncio.create_task(failing())]
    await asyncio.sleep(0)
    await cancelled(tasks)
    assert tasks[0].cancelled()
    assert tasks[1].done()
    assert asyncio.get_running_loop().time() == AGAIN_SECONDS
    await cancelled([])
