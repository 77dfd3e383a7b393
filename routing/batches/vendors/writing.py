"""The lines of an order are written into its input, as far as the limits and the vendor let it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from llama_compat.errors import APIError
from llama_compat.exchange import Principal
from llama_compat.wire.retry_after import is_never
from providers.remote.batches.base import VendorBatches
from routing.batches.journal.rows import PENDING, TO_HAND, LineRow
from routing.batches.run import lines_of
from routing.batches.vendors.input import OrderInput
from routing.batches.vendors.limits import OrderLimits
from routing.batches.vendors.lines import HandedLine, written
from routing.batches.vendors.orders import OrderRow
from routing.batches.wires import Line

if TYPE_CHECKING:
    from routing.access.limits.limiter import Admission
    from routing.batches.vendors.run import VendorRun
    from routing.policy.targets import LiveTarget

TOGETHER = 64
"""So many lines are looked at before any is written."""


class LineWriter:
    """Writes the lines of one order.

    Args:
        run: of all orders of the batch.
        order: it.
        source: where they are written.
        target, api: where they go.
        limits: that hold for them.
        principal: whose batch it is.

    Attributes:
        endpoint, headers: what all lines that were written have in common.
        reserve: what they may cost, in billionths of a dollar.
    """

    def __init__(
        self,
        run: VendorRun,
        order: OrderRow,
        source: OrderInput,
        target: LiveTarget,
        api: VendorBatches,
        limits: OrderLimits,
        principal: Principal,
    ) -> None:
        self.endpoint = ""
        self.headers: Mapping[str, str] = {}
        self.reserve = 0
        self._run = run
        self._order = order
        self._source = source
        self._target = target
        self._api = api
        self._limits = limits
        self._principal = principal
        self._held: list[Admission] = []
        self._is_full = False

    async def write_all(self) -> None:
        """Write those that can be; the others are no part of the order any more.

        Raises:
            StorageError, APIError, LeaseLost: it can't be done now.
        """
        run, number = self._run, 0
        file = await run.worker.files.opened(run.job.input_file)
        try:
            while not self._is_full:
                if run.is_broken_off or run.worker.stopping:
                    return
                rows = await run.orders.lines(self._order, number, TOGETHER)
                if not rows:
                    return
                number = rows[-1].number
                lines = await asyncio.to_thread(lines_of, file, rows, run.job.endpoint)
                await self._write(rows, lines)
            rest = await self._rest(number)
            if rest:
                await run.orders.put_back(self._order, TO_HAND, rest)
        finally:
            await asyncio.to_thread(file.close)

    async def held(self) -> Admission | None:
        """What the order reserves of budgets; to be called once, whatever came of it."""
        for each in self._held:
            each.settle(0, 0)
        self._held.clear()
        return await self._limits.hold(self.reserve) if self.reserve else None

    async def _rest(self, after: int) -> list[int]:
        """The numbers of those that follow one."""
        found: list[int] = []
        while rows := await self._run.orders.lines(self._order, after, 500):
            after = rows[-1].number
            found += [row.number for row in rows]
        return found

    async def _write(self, rows: Sequence[LineRow], lines: Sequence[Line]) -> None:
        """Write some lines."""
        asked: list[int] = []
        later: list[int] = []
        made: list[tuple[int, bytes, HandedLine]] = []
        for row, line in zip(rows, lines, strict=True):
            if self._is_full:
                later.append(row.number)
                continue
            handed = await self._made(line)
            await asyncio.sleep(0)  # others have their turn in between
            if handed is None:
                asked.append(row.number)
                continue
            if not self.endpoint:
                self.endpoint, self.headers = handed.endpoint, handed.headers
            if (handed.endpoint, handed.headers) != (self.endpoint, self.headers):
                later.append(row.number)
                continue
            data = self._api.line(self._order.custom_id(row.number), handed.endpoint, handed.body)
            size = self._source.size + sum(len(each) + 2 for _, each, _ in made) + len(data) + 2
            if size > self._api.max_bytes:
                self._is_full = bool(self._source.lines or made)
                (later if self._is_full else asked).append(row.number)
            else:
                made.append((row.number, data, handed))
        kept = await self._let_in(made, asked, later)
        await asyncio.to_thread(self._source.add, [data for _, data, _ in kept])
        if asked:
            await self._run.orders.put_back(self._order, PENDING, asked)
            self._run.came_back()
        if later:
            await self._run.orders.put_back(self._order, TO_HAND, later)

    async def _made(self, line: Line) -> HandedLine | None:
        asker = self._run.worker.asker
        assert asker is not None
        endpoint = self._run.job.endpoint
        return await written(asker, self._api, self._target, endpoint, line.body, self._principal)

    async def _let_in(
        self,
        made: Sequence[tuple[int, bytes, HandedLine]],
        asked: list[int],
        later: list[int],
    ) -> list[tuple[int, bytes, HandedLine]]:
        """Those that the limits have room for. `later` are those for which they have none now;
        those that they never let in are `asked` by requests, which are told so."""
        kept: list[tuple[int, bytes, HandedLine]] = []
        for place, each in enumerate(made):
            try:
                await self._limits.let_in(each[2])
            except APIError as refusal:
                if is_never(refusal.headers):
                    asked.append(each[0])
                    continue
                later += [number for number, _, _ in made[place:]]
                self._is_full = True
                self._run.pause(refusal.retry_after)
                break
            kept.append(each)
        with suppress(APIError):
            await self._reserve([each[2] for each in kept])
            return kept
        within = []
        for each in kept:
            try:
                await self._reserve([each[2]])
                within.append(each)
            except APIError:
                asked.append(each[0])
        return within

    async def _reserve(self, lines: Sequence[HandedLine]) -> None:
        cost = sum(line.cost for line in lines)
        admission = await self._limits.reserve(cost)
        if admission is not None:
            self._held.append(admission)
            self.reserve += cost
