"""The journal of orders: a line is a part of one, and one worker sees to that, whoever dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from routing.batches.journal.journal import Journal
from routing.batches.journal.lease import LeaseLost
from routing.batches.journal.rows import PENDING, TO_HAND, LineRow
from routing.batches.vendors.orders import RUNNING, OrderRow, Orders
from routing.storage.storage import Storage
from tests.unit.routing.batches.journal.test_journal import (
    Clock,
    done,
    job,
    numbers,
    opened,
    working,
)


async def begun(journal: Journal, lines: int) -> None:
    """A batch all of whose lines are to be handed over."""
    await journal.add(job())
    assert await journal.claim_job("batch_1", "validating")
    rows = [LineRow(number, number * 10, 9, "m") for number in range(1, lines + 1)]
    await journal.add_lines("batch_1", rows, first=True, is_handed=lambda model: model == "m")
    await journal.checked("batch_1", lines, "m", [])


async def ordered(orders: Orders, limit: int = 100) -> OrderRow:
    order = await orders.begin("batch_1", "m", "vendor", "gpt", limit, 5.0)
    assert order is not None
    return order


async def left(orders: Orders, order: OrderRow) -> list[int]:
    return [row.number for row in await orders.lines(order, 0, 100)]


async def counted(storage: Storage) -> tuple[int, ...]:
    columns = "completed, failed, cost, elsewhere"
    (row,) = await storage.fetch(f"SELECT {columns} FROM batches")
    return tuple(row)


async def test_lines_are_handed_over_once(tmp_path: Path) -> None:
    async with opened(f"sqlite:{tmp_path / 'a'}") as storage:
        journal = await working(storage, Clock())
        await begun(journal, 5)
        assert await numbers(journal, 10) == []  # none is asked by a request
        orders = Orders(journal, storage)
        assert await orders.to_hand("batch_1") == ["m"]
        first, second = await ordered(orders, 3), await ordered(orders, 3)
        assert await left(orders, first) == [1, 2, 3]
        assert await left(orders, second) == [4, 5]
        assert await orders.begin("batch_1", "m", "vendor", "gpt", 3, 5.0) is None
        assert await orders.to_hand("batch_1") == []
        assert not await journal.begin_end("batch_1")


async def test_what_is_put_back(tmp_path: Path) -> None:
    async with opened(f"sqlite:{tmp_path / 'a'}") as storage:
        journal = await working(storage, Clock())
        await begun(journal, 5)
        orders = Orders(journal, storage)
        order = await ordered(orders)
        await orders.put_back(order, PENDING, [2])
        await orders.put_back(order, TO_HAND, [4, 5])
        assert await left(orders, order) == [1, 3]
        assert await numbers(journal, 10) == [2]
        assert await left(orders, await ordered(orders)) == [4, 5]


async def test_results_are_noted_once(tmp_path: Path) -> None:
    async with opened(f"sqlite:{tmp_path / 'a'}") as storage:
        journal = await working(storage, Clock())
        await begun(journal, 4)
        orders = Orders(journal, storage)
        order = await orders.update(await ordered(orders), done=4, state=RUNNING)
        assert await counted(storage) == (0, 0, 0, 4)
        order = await orders.note(order, done(1, 2))
        assert await counted(storage) == (2, 0, 10, 2)
        order = await orders.note(order, done(2, good=False))  # read again
        order = await orders.note(order, done(3, good=False), [4], PENDING)
        assert await counted(storage) == (2, 1, 15, 0)
        assert order.cost == 20
        await orders.forget(order)
        assert not await orders.are_left("batch_1")
        assert await numbers(journal, 10) == [4]


async def test_another_goes_on_with_it(tmp_path: Path) -> None:
    async with opened(f"sqlite:{tmp_path / 'a'}") as storage:
        clock = Clock()
        dead, alive = await working(storage, clock), await working(storage, clock)
        await begun(dead, 3)
        theirs, ours = Orders(dead, storage), Orders(alive, storage)
        order = await theirs.update(await ordered(theirs), vendor_batch="batch_v", state=RUNNING)
        assert await ours.claim("batch_1") == []
        with pytest.raises(LeaseLost):
            await ours.update(order, done=1)
        clock.now += 9
        await alive.lease.renew()
        clock.now += 9
        assert await alive.lease.dead() == [dead.lease.worker]
        assert await alive.take_over(dead.lease.worker, {}, {})
        (claimed,) = await ours.claim("batch_1")
        assert (claimed.id, claimed.vendor_batch, claimed.state) == (order.id, "batch_v", RUNNING)
        assert await left(ours, claimed) == [1, 2, 3]
        with pytest.raises(LeaseLost):
            await theirs.note(order, done(1))


def test_its_lines_are_known_by_their_names() -> None:
    order = OrderRow("order_1", "b", "m", "v", "gpt", RUNNING, None, 0.0)
    assert order.number(order.custom_id(12)) == 12
    for other in ("order_2-12", "12", "order_1-", "order_1-x", "order_1-1-2"):
        assert order.number(other) is None
