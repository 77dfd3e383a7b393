"""What a vendor has said of an order's lines is fetched, read as replies are, and noted."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

from llama_compat.errors import APIError
from llama_compat.exchange import Principal
from providers.remote.batches.base import LineAnswer, VendorBatch, VendorBatches, VendorStatus
from providers.remote.upstream.vendor_errors import vendor_error
from routing.batches.journal.rows import PENDING, TO_HAND, DoneLine, LineRow
from routing.batches.run import done_line, lines_of
from routing.batches.vendors.lines import read
from routing.batches.vendors.orders import OrderRow
from routing.batches.wires import Line, LineOutcome

if TYPE_CHECKING:
    from routing.batches.vendors.run import VendorRun
    from routing.policy.targets import LiveTarget

log = logging.getLogger(__name__)

TOGETHER = 64
"""So many lines are read before any is noted."""

PIECE_BYTES = 1 << 20
"""What comes is written to the disk in pieces of about so much."""

LOST = LineOutcome(
    code="unknown_outcome",
    message="The vendor's batch has ended, and says nothing of this line. Whether it was answered,"
    " and paid for, is not known, so it was not asked again.",
    cost=None,
)

CANCELLED_THERE = LineOutcome(
    code="vendor_cancelled",
    message="The vendor's batch was cancelled, and not from here, before this line was answered.",
)

Fetch = Callable[[Callable[[], Awaitable[BinaryIO]]], Awaitable[BinaryIO]]
"""Does what it is given until that works."""


class Results:
    """The results of one order.

    Args:
        run: of all orders of the batch.
        order: it.
        target, api, batch: where it was handed to, and what became of it there; None where nothing
            of it is read.
    """

    def __init__(
        self,
        run: VendorRun,
        order: OrderRow,
        target: LiveTarget | None = None,
        api: VendorBatches | None = None,
        batch: VendorBatch | None = None,
    ) -> None:
        self._run = run
        self._order = order
        self._target = target
        self._api = api
        self._batch = batch
        self._undone: dict[int, bool] = {}

    # What was said --------------------------------------------------------------------------------

    async def read_all(self, fetch: Fetch) -> OrderRow:
        """Read what there is, and decide on what there is nothing of.

        Args:
            fetch: does what may fail now and work later.

        Returns:
            The order, as it is then.
        """
        assert self._api is not None
        assert self._batch is not None
        source = await self._run.worker.files.opened(self._run.job.input_file)
        try:
            for output in self._batch.outputs:
                try:
                    file = await fetch(partial(_fetched, self._api, output, self._run.folder))
                except APIError as error:
                    log.error(
                        "order %s: a file of its results can't be had: %s",
                        self._order.id,
                        error.message,
                    )
                    continue
                try:
                    while data := await asyncio.to_thread(_next_lines, file):
                        await self._read(source, data)
                finally:
                    await asyncio.to_thread(file.close)
        finally:
            await asyncio.to_thread(source.close)
        await self._decide_on_rest()
        return self._order

    async def _read(self, source: BinaryIO, data: Sequence[bytes]) -> None:
        """Read some results."""
        orders, job = self._run.orders, self._run.job
        said = self._said(data)
        rows = await orders.numbered(self._order, list(said)) if said else {}
        passing = []
        for number in list(said):
            answer = said[number]
            if number not in rows:  # it was read before
                del said[number]
            elif not answer.status:
                self._undone[number] = answer.was_cancelled
                del said[number]
            elif self._met_a_fault(answer):
                del said[number]
                if self._run.is_broken_off:
                    self._undone[number] = True
                else:
                    passing.append(number)
        wanted = [rows[number] for number in said]
        lines = await asyncio.to_thread(lines_of, source, wanted, job.endpoint)
        written = []
        for row, line in zip(wanted, lines, strict=True):
            outcome = await self._outcome(line, said[row.number])
            written.append(self._done(row, line, outcome))
            await asyncio.sleep(0)  # others have their turn in between
        if written or passing:
            self._order = await orders.note(self._order, written, passing, PENDING)
        if passing:
            log.warning(
                "order %s: %s lines met an error of the vendor's, and are asked by requests",
                self._order.id,
                len(passing),
            )
            self._run.came_back()

    def _said(self, data: Sequence[bytes]) -> dict[int, LineAnswer]:
        """What some results say, by the numbers of their lines."""
        assert self._api is not None
        said: dict[int, LineAnswer] = {}
        for each in data:
            try:
                answer = self._api.answer(each)
            except ValueError as error:
                log.error("order %s: a result makes no sense: %s", self._order.id, error)
                continue
            number = self._order.number(answer.custom_id)
            if number is not None:
                said.setdefault(number, answer)  # as of those in later pieces, the first counts
        return said

    def _met_a_fault(self, answer: LineAnswer) -> bool:
        """Whether a line has met what says nothing of it, and is not paid for: it is asked by a
        request, which another target may answer."""
        if answer.status < 400:
            return False
        assert self._api is not None
        error = vendor_error(self._api.provider, answer.status, {}, answer.body)
        return error.error_class.handling.passes

    async def _outcome(self, line: Line, said: LineAnswer) -> LineOutcome:
        asker, job = self._run.worker.asker, self._run.job
        assert asker is not None
        assert self._api is not None
        assert self._target is not None
        # What has been paid for is kept, also of a key that opens nothing any more.
        principal = asker.principal(job.owner) or Principal(job.owner)
        return await read(asker, self._api, self._target, job.endpoint, line.body, principal, said)

    async def _decide_on_rest(self) -> None:
        """Decide on lines that were not answered."""
        assert self._batch is not None
        orders = self._run.orders
        if self._run.is_broken_off:
            # They have no result, as no line of such a batch has that was not answered.
            await orders.put_back(self._order, PENDING)
            return
        status = self._batch.status
        again, outcomes, number = [], {}, 0
        while rows := await orders.lines(self._order, number, 500):
            number = rows[-1].number
            for row in rows:
                was_cancelled = self._undone.get(row.number, status is VendorStatus.cancelled)
                if was_cancelled:
                    outcomes[row.number] = CANCELLED_THERE
                elif row.number in self._undone or status is VendorStatus.expired:
                    again.append(row.number)
                else:
                    outcomes[row.number] = LOST
        if again:
            log.warning(
                "order %s: %s lines were not answered in the vendor's time, and are handed over"
                " again",
                self._order.id,
                len(again),
            )
            await orders.put_back(self._order, TO_HAND, again)
        await self.note_as(outcomes)

    # What was not said ----------------------------------------------------------------------------

    async def note_as(self, outcomes: Mapping[int, LineOutcome]) -> OrderRow:
        """Note what became of lines by their numbers; the order, as it is then."""
        numbers = sorted(outcomes)
        if not numbers:
            return self._order
        source = await self._run.worker.files.opened(self._run.job.input_file)
        try:
            for begin in range(0, len(numbers), TOGETHER):
                some = numbers[begin : begin + TOGETHER]
                found = await self._run.orders.numbered(self._order, some)
                rows = [found[number] for number in some if number in found]
                lines = await asyncio.to_thread(lines_of, source, rows, self._run.job.endpoint)
                written = [
                    self._done(row, line, outcomes[row.number])
                    for row, line in zip(rows, lines, strict=True)
                ]
                self._order = await self._run.orders.note(self._order, written)
        finally:
            await asyncio.to_thread(source.close)
        return self._order

    async def note_rest(self, outcome: LineOutcome) -> OrderRow:
        """The same became of all lines of which nothing is known."""
        number = 0
        while rows := await self._run.orders.lines(self._order, number, TOGETHER):
            number = rows[-1].number
            await self.note_as({row.number: outcome for row in rows})
        return self._order

    def _done(self, row: LineRow, line: Line, outcome: LineOutcome) -> DoneLine:
        return done_line(self._run.job, row, line, outcome)


async def _fetched(api: VendorBatches, output: str, folder: str | None) -> BinaryIO:
    """What is in an output, on this machine's disk.

    Raises:
        APIError: it can't be had.
    """
    file: BinaryIO = await asyncio.to_thread(_scratch, folder)
    try:
        held = bytearray()
        async with aclosing(api.results(output)) as pieces:
            async for piece in pieces:
                held += piece
                if len(held) >= PIECE_BYTES:
                    await asyncio.to_thread(file.write, bytes(held))
                    held.clear()
        await asyncio.to_thread(file.write, bytes(held))
        await asyncio.to_thread(file.seek, 0)
    except BaseException:
        await asyncio.to_thread(file.close)
        raise
    return file


def _scratch(folder: str | None) -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile(dir=folder))


def _next_lines(file: BinaryIO) -> list[bytes]:
    lines: list[bytes] = []
    while len(lines) < TOGETHER and (line := file.readline()):
        if stripped := line.strip():
            lines.append(stripped)
    return lines
