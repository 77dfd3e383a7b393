"""A simulated engine in real time: who waits for it, and who has left."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from providers.local.simulation.config import SimulationConfig
from providers.local.simulation.engine import SimulatedSequence
from providers.local.simulation.runner import SimulationRunner
from tests.virtual_time import in_virtual_time

FAST = SimulationConfig(step_seconds=0.001)


def sequence(reply: int = 3) -> SimulatedSequence:
    return SimulatedSequence([], 10, reply)


async def test_tokens_are_said_one_by_one_and_nothing_is_left_running() -> None:
    runner = SimulationRunner(FAST)
    said = [tokens async for tokens in runner.said(sequence())]
    assert said == [1, 2, 3]
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
    assert [tokens async for tokens in runner.said(sequence(1))] == [1]  # it begins again


@in_virtual_time
async def test_it_takes_its_time() -> None:
    speeds = {"step_seconds": 0.02, "step_seconds_per_sequence": 0.005}
    runner = SimulationRunner(SimulationConfig(**speeds, prefill_tokens_per_second=1000))
    assert [tokens async for tokens in runner.said(sequence())] == [1, 2, 3]
    assert asyncio.get_running_loop().time() == pytest.approx(10 / 1000 + 3 * 0.02 + 2 * 0.005)


async def test_who_leaves_gives_its_place_to_others() -> None:
    runner = SimulationRunner(SimulationConfig(step_seconds=0.001, max_sequences=1))
    async with aclosing(runner.said(sequence(50_000))) as progress:
        assert await anext(progress) == 1
        waits = asyncio.create_task(anext(waiting := runner.said(sequence(1))))
        await asyncio.sleep(0.01)
        assert (runner.engine.running, runner.engine.waiting) == (1, 1)
    assert await asyncio.wait_for(waits, 5) == 1
    await waiting.aclose()
    await runner.stop()


async def test_stopped_it_leaves_nobody_waiting() -> None:
    runner = SimulationRunner(SimulationConfig(step_seconds=60))
    waits = asyncio.create_task(anext(runner.said(sequence())))
    await asyncio.sleep(0.01)
    await runner.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        await waits
    await runner.stop()
