"""The journal of orders: which lines a vendor is asked for, and how far that has come.

An order is noted before the vendor hears of it, before it is asked to begin, which is paid for, and
when it has begun, with the vendor's id. So whoever goes on after a process died knows which of the
three is true, and in the second asks the vendor whether it has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from providers.remote.batches.base import Order
from routing.batches.journal.journal import Journal
from routing.batches.journal.lease import LeaseLost
from routing.batches.journal.rows import HANDED, TO_HAND, DoneLine, LineRow
from routing.batches.journal.transactions import lock_job, note_results
from routing.storage.storage import Storage, Transaction

PREPARING, ORDERED, RUNNING, READ = "preparing", "ordered", "running", "read"
"""How far an order has come: nothing of it is at the vendor but perhaps a file; the vendor was
asked to begin, or is being asked; it has begun; all that became of its lines is noted here."""


class OrderRow(Struct, frozen=True):
    """An order: the columns of the table, in their order.

    Attributes:
        id: ours.
        batch: whose lines they are.
        route: the public model that they ask for.
        provider, model: where they go, and what that calls the model.
        state: how far it has come.
        worker: who sees to it.
        made: when, in seconds since 1970.
        endpoint: what its lines ask, as the vendor calls it.
        headers: JSON, those that all of its lines have.
        lines: how many it has.
        reserve: what they cost at most, in billionths of a dollar.
        input_file: what the vendor calls its input.
        asked: when the vendor was asked to begin, in seconds since 1970.
        vendor_batch: what the vendor calls it; empty where it has not begun, or nobody knows.
        is_cancelled: 1 where the vendor was told to end it.
        done: lines that the vendor has answered, as far as it tells, and nobody has read here.
        cost: of what was read, in billionths of a dollar.
    """

    id: str
    batch: str
    route: str
    provider: str
    model: str
    state: str
    worker: str | None
    made: float
    endpoint: str = ""
    headers: bytes = b"{}"
    lines: int = 0
    reserve: int = 0
    input_file: str = ""
    asked: float = 0.0
    vendor_batch: str = ""
    is_cancelled: int = 0
    done: int = 0
    cost: int = 0

    @property
    def order(self) -> Order:
        """As its vendor is told of it."""
        headers: Mapping[str, str] = msgspec.json.decode(self.headers)
        return Order(
            self.id,
            self.endpoint,
            self.model,
            headers,
            self.lines,
            self.asked,
            self.input_file,
        )

    def custom_id(self, number: int) -> str:
        """What the line with this number of its batch is called there."""
        return f"{self.id}-{number}"

    def number(self, custom_id: str) -> int | None:
        """The number of the line that is called so; None where that is none of its lines."""
        name, _, number = custom_id.rpartition("-")
        return int(number) if name == self.id and number.isdecimal() else None


_ORDER_COLUMNS = OrderRow.__struct_fields__
_COLUMNS = ", ".join(_ORDER_COLUMNS)
_LINE = "number, begins, size, model"


class Orders:
    """The orders of one storage.

    Args:
        journal: of the batches.
        storage: where both are.
    """

    def __init__(self, journal: Journal, storage: Storage) -> None:
        self._journal = journal
        self._storage = storage

    async def claim(self, job_id: str) -> list[OrderRow]:
        """The orders of a batch that are this worker's, those among them that nobody had."""
        async with self._journal.lease.owning() as transaction:
            await lock_job(transaction, job_id)
            rows = await transaction.fetch(
                "UPDATE batch_orders SET worker = ? WHERE batch = ?"
                f" AND (worker IS NULL OR worker = ?) RETURNING {_COLUMNS}",
                self._journal.lease.worker,
                job_id,
                self._journal.lease.worker,
            )
        return [OrderRow(*row) for row in rows]

    async def are_left(self, job_id: str) -> bool:
        """Whether anybody has orders of a batch."""
        rows = await self._storage.fetch(
            "SELECT 1 FROM batch_orders WHERE batch = ? LIMIT 1", job_id
        )
        return bool(rows)

    async def to_hand(self, job_id: str) -> list[str]:
        """The models of which lines are to be handed over."""
        rows = await self._storage.fetch(
            "SELECT DISTINCT model FROM batch_lines WHERE batch = ? AND state = ?", job_id, TO_HAND
        )
        return sorted(model for (model,) in rows)

    async def begin(
        self, job_id: str, route: str, provider: str, model: str, limit: int, now: float
    ) -> OrderRow | None:
        """Make an order of lines that are to be handed over; None where there are none any more.

        Args:
            job_id: of their batch.
            route: the model that they ask for.
            provider, model: where they go.
            limit: so many at most.
            now: in seconds since 1970.
        """
        order = OrderRow(
            f"order_{os.urandom(10).hex()}",
            job_id,
            route,
            provider,
            model,
            PREPARING,
            self._journal.lease.worker,
            now,
        )
        async with self._journal.lease.owning() as transaction:
            if await lock_job(transaction, job_id) != "in_progress":
                return None
            found = await transaction.fetch(
                "UPDATE batch_lines SET state = ?, handed = ? WHERE batch = ? AND number IN"
                " (SELECT number FROM batch_lines WHERE batch = ? AND state = ? AND model = ?"
                " ORDER BY number LIMIT ?) RETURNING number",
                HANDED,
                order.id,
                job_id,
                job_id,
                TO_HAND,
                route,
                limit,
            )
            if not found:
                return None
            await transaction.insert("batch_orders", _ORDER_COLUMNS, [structs.astuple(order)])
        return order

    async def lines(self, order: OrderRow, after: int, limit: int) -> list[LineRow]:
        """Up to `limit` lines of an order of which nobody knows what became, from the one that
        follows a number on."""
        rows = await self._storage.fetch(
            f"SELECT {_LINE} FROM batch_lines WHERE handed = ? AND state = ? AND number > ?"
            " ORDER BY number LIMIT ?",
            order.id,
            HANDED,
            after,
            limit,
        )
        return [LineRow(*row) for row in rows]

    async def numbered(self, order: OrderRow, numbers: Sequence[int]) -> dict[int, LineRow]:
        """Those of such lines that have one of these numbers."""
        rows = await self._storage.fetch(
            f"SELECT {_LINE} FROM batch_lines WHERE handed = ? AND state = ?"
            f" AND number IN ({', '.join('?' * len(numbers))})",
            order.id,
            HANDED,
            *numbers,
        )
        return {row[0]: LineRow(*row) for row in rows}

    async def update(self, order: OrderRow, **changes: Any) -> OrderRow:
        """Note how far an order has come.

        Raises:
            LeaseLost: another sees to it.
        """
        async with self._journal.lease.owning() as transaction:
            await self._update(transaction, order, changes)
            if "done" in changes:
                await _count(transaction, order.batch)
        return structs.replace(order, **changes)

    async def _update(
        self, transaction: Transaction, order: OrderRow, changes: Mapping[str, Any]
    ) -> None:
        changes = changes or {"state": order.state}
        columns = ", ".join(f"{name} = ?" for name in changes)
        found = await transaction.fetch(
            f"UPDATE batch_orders SET {columns} WHERE id = ? AND worker = ? RETURNING id",
            *changes.values(),
            order.id,
            self._journal.lease.worker,
        )
        if not found:
            raise LeaseLost

    async def put_back(
        self, order: OrderRow, state: int, numbers: Iterable[int] | None = None
    ) -> None:
        """Lines of an order are no part of it any more.

        Args:
            order: it.
            state: what they are then.
            numbers: theirs; None for all of which nobody knows what became.
        """
        async with self._journal.lease.owning() as transaction:
            await lock_job(transaction, order.batch)
            await self._update(transaction, order, {})
            change = (
                "UPDATE batch_lines SET state = ?, handed = NULL WHERE batch = ? AND handed = ?"
                " AND state = ?"
            )
            values = (state, order.batch, order.id, HANDED)
            if numbers is None:
                await transaction.fetch(change, *values)
            else:
                await transaction.execute_many(
                    f"{change} AND number = ?", [(*values, number) for number in numbers]
                )

    async def note(
        self,
        order: OrderRow,
        written: Sequence[DoneLine],
        back: Sequence[int] = (),
        back_to: int = TO_HAND,
    ) -> OrderRow:
        """Note what became of lines of an order; what was noted before stays.

        Args:
            order: it.
            written: lines that have their result.
            back: lines that are no part of it any more.
            back_to: what those are then.
        """
        cost = order.cost + sum(line.cost or 0 for line in written)
        done = max(0, order.done - len(written) - len(back))
        async with self._journal.lease.owning() as transaction:
            await lock_job(transaction, order.batch)
            await self._update(transaction, order, {"cost": cost, "done": done})
            rows = await transaction.fetch(
                "SELECT number FROM batch_lines WHERE handed = ? AND state = ?", order.id, HANDED
            )
            own = {number for (number,) in rows}
            kept = [line for line in written if line.number in own]
            if kept:
                await note_results(transaction, order.batch, kept)
            if back:
                await transaction.execute_many(
                    "UPDATE batch_lines SET state = ?, handed = NULL WHERE batch = ?"
                    " AND handed = ? AND state = ? AND number = ?",
                    [(back_to, order.batch, order.id, HANDED, number) for number in back],
                )
            await _count(transaction, order.batch)
        return structs.replace(order, cost=cost, done=done)

    async def forget(self, order: OrderRow) -> None:
        """Nothing of an order is left."""
        async with self._journal.lease.owning() as transaction:
            await transaction.fetch(
                "DELETE FROM batch_orders WHERE id = ? AND worker = ?",
                order.id,
                self._journal.lease.worker,
            )
            await _count(transaction, order.batch)


async def _count(transaction: Transaction, job_id: str) -> None:
    await transaction.fetch(
        "UPDATE batches SET elsewhere = (SELECT coalesce(sum(done), 0) FROM batch_orders"
        " WHERE batch = ?) WHERE id = ?",
        job_id,
        job_id,
    )
