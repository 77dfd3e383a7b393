"""The thread of models that generate nothing: who goes away, and what is counted of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from llama_compat.errors import APIError
from providers.local.batch_thread import BatchThread, Gone
from providers.local.threads import giving_way

PATIENCE = 30
"""Seconds, for what comes at once."""


@pytest.fixture
def thread() -> Iterator[BatchThread]:
    thread = BatchThread("m", "tester", max_waiting=2)
    yield thread
    thread.stop()


class Work:
    """Runs until nobody waits for it, or it is told to end."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.end = threading.Event()
        self.was_left = threading.Event()

    def __call__(self, asked: str, gone: Gone) -> str:
        self.begun.set()
        for _ in range(PATIENCE * 100):
            if gone:
                self.was_left.set()
                break
            if self.end.wait(0.01):
                break
        return asked


async def test_who_goes_away_is_not_served_any_further(thread: BatchThread) -> None:
    work = Work()
    task = asyncio.create_task(thread.in_thread(work, "x"))
    assert await asyncio.to_thread(work.begun.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(work.was_left.wait, PATIENCE)


async def test_who_waits_is_served_to_the_end(thread: BatchThread) -> None:
    work = Work()
    task = asyncio.create_task(thread.in_thread(work, "x"))
    assert await asyncio.to_thread(work.begun.wait, PATIENCE)
    work.end.set()
    assert await task == "x"
    assert not work.was_left.is_set()
    assert (thread.stats.waiting, thread.stats.finished) == (0, 1)


async def test_a_thread_that_stops_leaves_what_it_does() -> None:
    thread, work = BatchThread("m", "tester", max_waiting=2), Work()
    task = asyncio.create_task(thread.in_thread(work, "x"))
    assert await asyncio.to_thread(work.begun.wait, PATIENCE)
    await asyncio.to_thread(thread.stop)
    assert work.was_left.is_set()
    assert await task == "x"


async def test_more_than_may_wait_are_sent_away(thread: BatchThread) -> None:
    work = Work()
    tasks = [asyncio.create_task(thread.in_thread(work, each)) for each in "xy"]
    await asyncio.sleep(0)
    with pytest.raises(APIError) as caught:
        await thread.in_thread(work, "z")
    assert (caught.value.status, caught.value.headers["retry-after"]) == (429, "1")
    work.end.set()
    assert await asyncio.gather(*tasks) == ["x", "y"]


async def test_what_it_does_counts_as_a_step(
    thread: BatchThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a model which is loaded meanwhile gives way to it."""
    monkeypatch.setattr(giving_way, "_LATELY", 0)
    assert not giving_way.computed_lately()
    assert await thread.in_thread(lambda asked, gone: giving_way.computed_lately(), "x")
    assert not giving_way.computed_lately()


async def test_who_comes_when_it_is_stopped_is_told_so(thread: BatchThread) -> None:
    thread.stop()
    with pytest.raises(APIError) as refused:
        await thread.in_thread(Work(), "x")
    assert (refused.value.status, thread.stats.waiting) == (503, 0)
