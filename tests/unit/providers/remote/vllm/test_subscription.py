"""The events of a server over ZeroMQ: none twice, none missed, and nothing believed that is not
known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("zmq", reason="needs the extra 'kv-events'")

from providers.remote.vllm.messages import BlocksRemoved, EventBatch
from providers.remote.vllm.settings import KVEventsSettings
from providers.remote.vllm.subscription import KVEventSubscription
from tests.unit.providers.remote.vllm.publisher import Publisher, publishing, removed

PATIENCE = 20.0


class Heard:
    """What came, with None where nothing was known any more."""

    def __init__(self) -> None:
        self.all: list[int | None] = []
        self._came = asyncio.Event()

    def take(self, batch: EventBatch) -> None:
        (event,) = batch.events
        assert isinstance(event, BlocksRemoved)
        (number,) = event.blocks
        assert isinstance(number, int)
        self.all.append(number)
        self._came.set()

    def lost(self) -> None:
        self.all.append(None)
        self._came.set()

    async def until(self, last: int) -> list[int | None]:
        """All there is once `last` has come."""
        async with asyncio.timeout(PATIENCE):
            while not self.all or self.all[-1] != last:
                self._came.clear()
                await self._came.wait()
        return self.all


@asynccontextmanager
async def following(publisher: Publisher, *, replays: bool = True) -> AsyncIterator[Heard]:
    settings = KVEventsSettings(
        endpoint=publisher.endpoint, replay_endpoint=publisher.replay if replays else None
    )
    heard = Heard()
    subscription = KVEventSubscription("vllm", settings, heard.take, heard.lost)
    task = asyncio.create_task(subscription.run())
    try:
        assert await asyncio.to_thread(publisher.subscribed.wait, PATIENCE)
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("as_arrays", [True, False])
async def test_batches_come_in_order(as_arrays: bool) -> None:
    with publishing(as_arrays=as_arrays) as publisher:
        async with following(publisher) as heard:
            for number in range(5):
                publisher.publish(removed(number))
            assert await heard.until(4) == [0, 1, 2, 3, 4]
            assert publisher.replays == []


async def test_what_came_before_is_asked_for() -> None:
    with publishing() as publisher:
        for number in range(3):
            publisher.publish(removed(number), is_heard=False)
        async with following(publisher) as heard:
            publisher.publish(removed(3))
            assert await heard.until(3) == [0, 1, 2, 3]
            assert publisher.replays == [0]


async def test_what_was_missed_is_asked_for_and_nothing_comes_twice() -> None:
    with publishing() as publisher:
        async with following(publisher) as heard:
            publisher.publish(removed(0))
            await heard.until(0)
            publisher.publish(removed(1), is_heard=False)
            publisher.publish(removed(2), is_heard=False)
            for number in (3, 4, 5):
                publisher.publish(removed(number))
            assert await heard.until(5) == [0, 1, 2, 3, 4, 5]
            assert publisher.replays == [1]


async def test_what_the_server_does_not_remember_leaves_nothing_known() -> None:
    with publishing(remembers=2) as publisher:
        async with following(publisher) as heard:
            publisher.publish(removed(0))
            await heard.until(0)
            for number in range(1, 9):
                publisher.publish(removed(number), is_heard=False)
            publisher.publish(removed(9))
            assert await heard.until(9) == [0, None, 8, 9]


async def test_without_a_replay_a_gap_leaves_nothing_known() -> None:
    with publishing() as publisher:
        async with following(publisher, replays=False) as heard:
            publisher.publish(removed(0))
            await heard.until(0)
            publisher.publish(removed(1), is_heard=False)
            publisher.publish(removed(2))
            assert await heard.until(2) == [0, None, 2]


async def test_a_server_that_is_started_anew_counts_from_the_beginning() -> None:
    with publishing() as publisher:
        async with following(publisher) as heard:
            for number in range(3):
                publisher.publish(removed(number))
            await heard.until(2)
            endpoint, replay = publisher.endpoint, publisher.replay
            publisher.stop()
            with publishing(endpoint, replay) as another:
                another.publish(removed(100), is_heard=False)
                assert await asyncio.to_thread(another.subscribed.wait, PATIENCE)
                another.publish(removed(101))
                got = await heard.until(101)
        assert got[:3] == [0, 1, 2]
        assert None in got
        assert got[-2:] == [100, 101]


async def test_what_makes_no_sense_is_passed_over_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with publishing() as publisher:
        async with following(publisher) as heard:
            publisher.publish({"type": "BlockRemoved"})
            publisher.publish({"type": "BlockRemoved"})
            publisher.publish(removed(2))
            await heard.until(2)
    assert [each.getMessage() for each in caplog.records if "KV cache" in each.getMessage()][
        1:
    ] == []
    assert "can't be read" in caplog.text
