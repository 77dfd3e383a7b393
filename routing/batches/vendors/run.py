"""All orders of one batch, in one process: lines come to orders, and each of those is seen to."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from routing.batches.journal.rows import AS_KEY_GONE, Job
from routing.batches.vendors.order import OrderRun
from routing.batches.vendors.orders import OrderRow, Orders
from routing.waiting import first_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from routing.batches.worker import BatchWorker

LOOK_SECONDS = 5.0
"""How often it is seen whether another process has left orders to be seen to."""

FIRST_PAUSE_SECONDS = 5.0


class VendorRun:
    """Sees to the lines of a batch that vendors' own batches answer.

    Args:
        worker: whose it is.
        job: the batch.
        came_back: called when lines are to be asked by requests.

    Attributes:
        worker: whose it is.
        job: the batch, as it was last seen.
        orders: their journal.
        came_back: called when lines are to be asked by requests.
        is_broken_off: whether the batch was cancelled, or its time is over.
        folder: where what is sent and fetched may be meanwhile.
    """

    def __init__(self, worker: BatchWorker, job: Job, came_back: Callable[[], None]) -> None:
        self.worker = worker
        self.job = job
        self.orders = Orders(worker.journal, worker.files.storage)
        self.came_back = came_back
        self.is_broken_off = job.status == "cancelling"
        self.folder = worker.files.scratch
        self._runs: dict[str, OrderRun] = {}
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._woken = asyncio.Event()
        self._paused_until = 0.0
        self._pause = FIRST_PAUSE_SECONDS

    def now(self) -> float:
        """In seconds since 1970."""
        return self.worker.files.now()

    def wake(self) -> None:
        """See at once what is to be done."""
        self._woken.set()
        for run in self._runs.values():
            run.wake()

    def break_off(self) -> None:
        """Hand over no more, and have the vendors end what they have."""
        self.is_broken_off = True
        self.wake()

    def pause(self, seconds: float | None = None) -> None:
        """Hand over nothing for so long; None for longer each time."""
        if seconds is None:
            seconds, self._pause = self._pause, min(self._pause * 2, 600.0)
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    async def go_on(self) -> None:
        """See to all of them, until there are none, or the worker stops.

        Raises:
            StorageError, APIError, LeaseLost: it can't be done now.
        """
        try:
            while await self._look():
                await self._rest()
            while self._tasks:  # they stop as the worker does
                await self._rest()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(self) -> bool:
        """Begin what is to be begun; whether there is anything to be waited for."""
        if self.worker.stopping:
            return False
        job = await self.worker.journal.get(self.job.id)
        if job is None or job.status not in ("in_progress", "cancelling"):
            return False
        self.job = job
        asker = self.worker.asker
        assert asker is not None
        if await asker.look_for(job.owner) is None and asker.knows_keys:
            await self.worker.journal.break_off(job.id, AS_KEY_GONE)
            self.break_off()
        if job.status == "cancelling" and not self.is_broken_off:
            self.break_off()
        for order in await self.orders.claim(job.id):
            self._begin(order)
        is_handing = not self.is_broken_off and await self._hand_over()
        return is_handing or bool(self._runs) or await self.orders.are_left(job.id)

    async def _hand_over(self) -> bool:
        """Make orders of what is to be handed over; whether there is more of it."""
        asker = self.worker.asker
        assert asker is not None
        models = await self.orders.to_hand(self.job.id)
        if time.monotonic() < self._paused_until:
            return bool(models)
        for model in models:
            target = asker.handed_to(model)
            api = None if target is None else target.provider.batches()
            if target is None or api is None:
                await self.worker.journal.hand_back(self.job.id, model)
                self.came_back()
                continue
            order = await self.orders.begin(
                self.job.id,
                model,
                target.provider.id,
                target.target.model,
                api.max_lines,
                self.now(),
            )
            if order is not None:
                self._begin(order)
        return bool(models)

    def _begin(self, order: OrderRow) -> None:
        if order.id in self._runs:
            return
        run = self._runs[order.id] = OrderRun(self, order)
        self._tasks[asyncio.create_task(run.go_on(), name=f"order {order.id}")] = order.id

    async def _rest(self) -> None:
        """Wait until an order is done with, or something else is to be done.

        Raises:
            StorageError, APIError, LeaseLost: an order can't be seen to now.
        """
        paused = self._paused_until - time.monotonic()
        seconds = min(LOOK_SECONDS, paused) if paused > 0 else LOOK_SECONDS
        await first_of(self._woken, seconds, self._tasks)
        self._woken.clear()
        for task in [each for each in self._tasks if each.done()]:
            del self._runs[self._tasks.pop(task)]
            task.result()
