"""The journal: one line is one worker's, and has one result, whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from routing.batches.journal.journal import Journal
from routing.batches.journal.lease import LeaseLost
from routing.batches.journal.rows import DoneLine, Job, LineRow
from routing.batches.tables import MIGRATIONS
from routing.storage.pages import PageStart
from routing.storage.storage import Storage, open_storage
from tests.postgres import LossyWay, PostgresServer, emptied


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Storage]:
    storage = open_storage(address, [MIGRATIONS])
    await storage.start()
    try:
        yield storage
    finally:
        await storage.stop()


def job(job_id: str = "batch_1", owner: str = "key-a", created: float = 0.0) -> Job:
    return Job(
        job_id, "openai", owner, "/v1/embeddings", "file-1", "24h", b"null", None, created, 9e9
    )


async def working(storage: Storage, clock: Clock) -> Journal:
    journal = Journal(storage, 10.0, clock)
    await journal.lease.take()
    return journal


async def begun(journal: Journal, lines: int) -> None:
    await journal.add(job())
    assert await journal.claim_job("batch_1", "validating")
    rows = [LineRow(number, number * 10, 9, "m") for number in range(1, lines + 1)]
    assert await journal.add_lines("batch_1", rows, first=True)
    await journal.checked("batch_1", lines, "m", [])


def done(*numbers: int, good: bool = True) -> list[DoneLine]:
    return [DoneLine(number, good, b"result %d" % number, 5) for number in numbers]


async def numbers(
    journal: Journal, wanted: int, *written: DoneLine, again: tuple[int, ...] = ()
) -> list[int]:
    _, lines = await journal.write("batch_1", written, again, wanted)
    return [line.number for line in lines]


async def test_one_line_is_one_workers(address: str) -> None:
    async with opened(address) as storage:
        clock = Clock()
        one, two = await working(storage, clock), await working(storage, clock)
        await begun(one, 100)
        found = await asyncio.gather(*(numbers(each, 10) for _ in range(5) for each in (one, two)))
        assert sorted(number for each in found for number in each) == list(range(1, 101))
        assert await numbers(one, 10) == []


async def test_a_batch_that_nobody_heard_was_ordered_is_ordered(
    postgres_server: PostgresServer,
) -> None:
    """Its client was told 503, so that its SDK ordered, and paid for, it once more."""
    await emptied(postgres_server.address)
    async with opened(postgres_server.address):
        pass  # The tables are there.
    async with LossyWay(postgres_server, every=2, after=1).opened() as way:
        async with opened(way.address) as storage:
            for number in range(4):
                await Journal(storage, 10.0, Clock()).add(job(f"batch_{number}"))
        assert way.lost
    async with opened(postgres_server.address) as storage:
        kept = await storage.fetch("SELECT id FROM batches ORDER BY id")
        assert kept == [(f"batch_{number}",) for number in range(4)]


async def test_a_line_has_one_result_and_it_is_its_workers(address: str) -> None:
    async with opened(address) as storage:
        clock = Clock()
        one, two = await working(storage, clock), await working(storage, clock)
        await begun(one, 4)
        assert await numbers(one, 2) == [1, 2]
        assert await numbers(two, 2, *done(1)) == [3, 4]
        assert await numbers(one, 0, *done(1), *done(2, good=False)) == []
        assert await numbers(one, 0, *done(1)) == []
        assert await numbers(two, 9, *done(3), again=(4, 1)) == [4]
        found = await one.get("batch_1")
        assert found is not None
        assert (found.completed, found.failed, found.cost, found.unpriced) == (2, 1, 15, 0)
        assert not await one.begin_end("batch_1")
        await numbers(two, 0, *done(4))
        assert await one.begin_end("batch_1")
        assert not await two.begin_end("batch_1")
        results = await one.results("batch_1", 1, 2)
        assert [(row.number, good, result) for row, good, result in results] == [
            (2, False, b"result 2"),
            (3, True, b"result 3"),
        ]


async def test_who_was_silent_is_taken_over_and_counts_for_nothing(address: str) -> None:
    async with opened(address) as storage:
        clock = Clock()
        dead, other = await working(storage, clock), await working(storage, clock)
        await begun(dead, 3)
        assert await numbers(dead, 2) == [1, 2]
        assert await other.lease.dead() == []
        clock.now += 9
        await other.lease.renew()
        clock.now += 2
        assert await other.lease.dead() == [dead.lease.worker]
        asked = [line.number for _, _, line in await other.asked_by(dead.lease.worker)]
        assert sorted(asked) == [1, 2]
        assert await other.take_over(
            dead.lease.worker, {"batch_1": [1]}, {"batch_1": done(2, good=False)}
        )
        assert not await other.take_over(dead.lease.worker, {"batch_1": [1]}, {})
        with pytest.raises(LeaseLost):
            await numbers(dead, 1, *done(1, 2))
        with pytest.raises(LeaseLost):
            await dead.lease.renew()
        assert await numbers(other, 9) == [1, 3]


async def test_one_who_speaks_in_time_is_not_taken_over(address: str) -> None:
    async with opened(address) as storage:
        clock = Clock()
        late, other = await working(storage, clock), await working(storage, clock)
        await begun(late, 1)
        await numbers(late, 1)
        clock.now += 11
        await late.lease.renew()
        assert not await other.take_over(late.lease.worker, {"batch_1": [1]}, {})
        assert await numbers(late, 0, *done(1)) == []
        found = await other.get("batch_1")
        assert found is not None
        assert found.completed == 1


async def test_who_checks_a_batch_is_replaced_where_it_dies(address: str) -> None:
    async with opened(address) as storage:
        clock = Clock()
        dead, other = await working(storage, clock), await working(storage, clock)
        await dead.add(job())
        assert await dead.claim_job("batch_1", "validating")
        await dead.add_lines("batch_1", [LineRow(1, 0, 1, "m"), LineRow(2, 1, 1, "m")], first=True)
        assert not await other.claim_job("batch_1", "validating")
        clock.now += 11
        await other.lease.renew()
        await other.take_over(dead.lease.worker, {}, {})
        assert await other.claim_job("batch_1", "validating")
        assert await other.add_lines("batch_1", [LineRow(1, 0, 1, "m")], first=True)
        await other.checked("batch_1", 1, "m", [])
        assert await numbers(other, 9) == [1]


async def test_one_that_is_broken_off_is_asked_no_more(address: str) -> None:
    async with opened(address) as storage:
        journal = await working(storage, Clock())
        await begun(journal, 3)
        assert await numbers(journal, 1) == [1]
        assert await journal.break_off("batch_1", "")
        assert not await journal.break_off("batch_1", "")
        assert await journal.write("batch_1", done(1), [], 5) == ("cancelling", [])
        assert await journal.begin_end("batch_1")
        current = await journal.get("batch_1")
        assert current is not None
        assert await journal.end(current, "cancelled", (None, None), 2, None)
        assert await journal.open() == []
        assert await journal.leftovers() == ["batch_1"]
        while await journal.tidy("batch_1"):
            pass
        assert await journal.leftovers() == []
        assert await journal.delete("batch_1")
        assert await journal.get("batch_1") is None


async def test_a_bad_input_ends_it(address: str) -> None:
    async with opened(address) as storage:
        journal = await working(storage, Clock())
        await journal.add(job())
        await journal.claim_job("batch_1", "validating")
        await journal.checked("batch_1", 9, None, [{"code": "x", "line": 1}])
        found = await journal.get("batch_1")
        assert found is not None
        assert (found.status, found.total, found.claimed_by) == ("failed", 0, None)
        assert found.errors is not None
        assert b'"code":"x"' in found.errors


async def test_pages_are_in_order(address: str) -> None:
    async with opened(address) as storage:
        journal = Journal(storage, 1.0)
        jobs = [job(f"batch_{n}", "key-a" if n % 3 else "key-b", n // 2) for n in range(9)]
        for each in jobs:
            await journal.add(each)
        found: list[str] = []
        more, place = True, None
        while more:
            page, more = await journal.page("key-a", "openai", limit=2, place=place)
            found += [each.id for each in page]
            place = PageStart(page[-1].created, page[-1].id)
        assert found == [each.id for each in reversed(jobs) if each.owner == "key-a"]
