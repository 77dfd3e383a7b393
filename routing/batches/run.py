"""One batch in one process: its input is checked, its lines are asked, its output is made."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from llama_compat.errors import APIError
from routing.batches.asking import Asker, NotNow
from routing.batches.checking import Check
from routing.batches.file_rows import StoredFile
from routing.batches.files import BATCH_OUTPUT, HIDDEN, FileStore, NewFile, unreadable
from routing.batches.journal.rows import (
    AS_CANCELLED,
    AS_EXPIRED,
    AS_KEY_GONE,
    DoneLine,
    Job,
    LineRow,
)
from routing.batches.pace import Pace
from routing.batches.wires import (
    CANCELLED,
    EXPIRED,
    KEY_GONE,
    Line,
    LineOutcome,
    read_line,
    render_result,
)
from routing.storage.storage import StorageError
from routing.waiting import first_of

if TYPE_CHECKING:
    from llama_compat.exchange import Principal
    from routing.batches.vendors.run import VendorRun
    from routing.batches.worker import BatchWorker

log = logging.getLogger(__name__)

RESULTS_TOGETHER = 64
"""So many results are read from the journal at a time."""

KEY_SECONDS = 1.0
"""How often it is seen whether the batch's key is still good."""

AWAY_SECONDS = 0.5
"""How often a storage that is away is tried again."""

_BROKEN_OFF: Mapping[str | None, tuple[str, LineOutcome]] = {
    AS_CANCELLED: ("cancelled", CANCELLED),
    AS_EXPIRED: ("expired", EXPIRED),
    AS_KEY_GONE: ("failed", KEY_GONE),
}
"""How a batch ends that was broken off, and what is told of the lines that were not done."""


class Run:
    """Goes on with one batch as far as it can.

    Args:
        worker: whose it is.
        job: the batch.

    Attributes:
        is_asking: whether it asks lines, and does not only wait for vendors.
    """

    def __init__(self, worker: BatchWorker, job: Job) -> None:
        self.is_asking = True
        self._worker = worker
        self._journal = worker.journal
        self._files = worker.files
        self._job = job
        self._broken_off = False
        self._woken = asyncio.Event()
        self._asked: dict[asyncio.Task[DoneLine], LineRow] = {}
        self._free: dict[str, bool] = {}
        self._vendors: VendorRun | None = None
        self._came_back = asyncio.Event()

    def break_off(self) -> None:
        """End what is on its way: the batch was cancelled, or its time is over."""
        self._broken_off = True
        self._woken.set()
        if self._vendors is not None:
            self._vendors.break_off()

    def wake(self) -> None:
        """See at once what there is to be done: the worker stops, or has what another had."""
        self._woken.set()
        if self._vendors is not None:
            self._vendors.wake()

    async def go_on(self) -> None:
        """Do what is to be done, and nobody else does.

        Raises:
            StorageError, APIError, LeaseLost: it can't be done now.
        """
        job, worker = self._job, self._worker
        if job.status == "validating":
            if not await self._journal.claim_job(job.id, job.status) or not await self._check():
                return
            current = await self._journal.get(job.id)
            if current is None:
                return
            self._job = job = current
        if job.status == "cancelling" and job.begun is None:
            await self._never_begun()
            return
        if job.status in ("in_progress", "cancelling"):
            await self._have_answered()
        if not worker.stopping and await self._journal.begin_end(job.id):
            await self._end()

    # The input ------------------------------------------------------------------------------------

    def _check_of(self, file: BinaryIO) -> Check:
        settings = self._worker.settings
        return Check(
            file,
            self._job.endpoint,
            max_lines=settings.max_lines,
            max_line_bytes=settings.max_line_bytes,
        )

    async def _check(self) -> bool:
        """Look at the input; False where the batch ends with that."""
        job = self._job
        file = await self._files.opened(job.input_file)
        try:
            check = self._check_of(file)
            first = True
            while rows := await asyncio.to_thread(check.more):
                if not await self._journal.add_lines(
                    job.id, rows, first=first, is_handed=self._is_handed
                ):
                    break
                first = False
        finally:
            await asyncio.to_thread(file.close)
        await self._journal.checked(job.id, check.lines, check.model, check.problems)
        if check.problems:
            log.warning("batch %s is refused: %s", job.id, check.problems[0]["message"])
            await self._worker.tidy(job.id)
        return not check.problems

    def _is_handed(self, model: str) -> bool:
        asker = self._worker.asker
        return asker is not None and asker.handed_to(model) is not None

    async def _never_begun(self) -> None:
        """End a batch that was cancelled while its input was looked at; none of it is asked."""
        job = self._job
        if await self._journal.claim_job(job.id, "cancelling"):
            status, undone = _BROKEN_OFF[job.reason or AS_CANCELLED]
            # Anthropic's clients are told of each request, of which the batch knows the number.
            output = None
            if job.api != "openai":
                try:
                    output = await self._none_answered(undone)
                except APIError as error:
                    # Of an input that is gone nobody knows the names any more, and it would be
                    # looked for as long as there are batches.
                    if not isinstance(error.__cause__, FileNotFoundError):
                        raise
            await self._journal.end(job, status, (output, None), job.total, None)
            await self._worker.tidy(job.id)

    async def _none_answered(self, undone: LineOutcome) -> StoredFile | None:
        """The output of a batch of which no line is asked."""
        job = self._job
        async with AsyncExitStack() as opened:
            files = []
            for _ in range(2):
                files.append(await self._files.opened(job.input_file))
                opened.push_async_callback(asyncio.to_thread, files[-1].close)
            name = _file_id(job.id, "output")
            output = await self._files.begin(job.owner, name, bounded=False)
            opened.push_async_callback(output.discard)
            check = self._check_of(files[0])
            while rows := await asyncio.to_thread(check.more):
                lines = await asyncio.to_thread(lines_of, files[1], rows, job.endpoint)
                told = zip(rows, lines, strict=True)
                await output.write(_joined([self._written(*each, undone).result for each in told]))
            return await self._committed(output)

    # The lines ------------------------------------------------------------------------------------

    async def _have_answered(self) -> None:
        """Ask lines, and see to those that vendors have, until there are none left for this
        process."""
        from routing.batches.vendors.run import VendorRun

        vendors = self._vendors = VendorRun(self._worker, self._job, self._came_back.set)
        if self._broken_off:
            vendors.break_off()
        await self._worker.decide_on_lost(self._job.id)
        handed = asyncio.create_task(vendors.go_on(), name=f"orders of {self._job.id}")
        try:
            while True:
                self._came_back.clear()
                self.is_asking = True
                await self._ask_all()
                self.is_asking = False
                if handed.done() and not self._came_back.is_set():
                    break
                # Until a line is to be asked that vendors had, or they have none any more.
                await first_of(self._came_back, None, [handed])
            await handed
        finally:
            self._vendors = None
            handed.cancel()
            await asyncio.gather(handed, return_exceptions=True)

    async def _ask_all(self) -> None:
        """Ask lines until there are none left for this process to ask."""
        file = await self._files.opened(self._job.input_file)
        try:
            await self._ask_lines(file)
        finally:
            for task in self._asked:
                task.cancel()
            await asyncio.gather(*self._asked, return_exceptions=True)
            await asyncio.to_thread(file.close)

    async def _ask_lines(self, file: BinaryIO) -> None:
        worker, job = self._worker, self._job
        asker, principal, looked = worker.asker, None, 0.0
        assert asker is not None
        is_local = job.model is not None and asker.is_local(job.model)
        pace = Pace(worker.settings.concurrency, at_once=is_local)
        written: list[DoneLine] = []
        again: list[int] = []
        unread: Exception | None = None
        while True:
            now = time.monotonic()
            if worker.asker is not asker or now >= looked + KEY_SECONDS:
                asker, looked = worker.asker, now
                self._free.clear()
                assert asker is not None
                principal = await asker.look_for(job.owner)
            wanted = 0
            paused = pace.paused_until - now
            rests = worker.stopping or self._broken_off or unread is not None
            if not (rests or principal is None or paused > 0):
                wanted = max(0, pace.room(worker.share) - len(self._asked))
            status, claimed = await self._noted(written, again, wanted)
            written, again = [], []
            if claimed:
                assert principal is not None
                try:
                    lines = await self._lines(file, claimed)
                except Exception as error:
                    unread, lines = error, []  # what is on its way has been paid for
                for row, line in zip(claimed, lines, strict=not unread):
                    task = asyncio.create_task(self._ask(asker, principal, row, line))
                    self._asked[task] = row
            if status not in ("in_progress", "cancelling"):
                return
            if status == "cancelling" or self._broken_off:
                await self._break_off()
                return
            if not self._asked:
                if unread is not None:
                    raise unread
                if principal is None and asker.knows_keys:
                    await self._journal.break_off(job.id, AS_KEY_GONE)
                    return
                if wanted or worker.stopping:
                    return  # there is nothing to be asked, or nobody to ask it
            await self._some_answered(paused)
            for task in [each for each in self._asked if each.done()]:
                row = self._asked.pop(task)
                try:
                    written.append(task.result())
                    pace.answered()
                except NotNow as refusal:
                    again.append(row.number)
                    pace.refused(time.monotonic(), refusal.retry_after)

    async def _noted(
        self, written: Sequence[DoneLine], again: Sequence[int], wanted: int
    ) -> tuple[str, list[LineRow]]:
        """As `Journal.write`; where the storage is away, once it is there."""
        job_id, outage = self._job.id, False
        while True:
            try:
                status, claimed = await self._journal.write(
                    job_id, written, again, wanted, self._is_free
                )
            except StorageError as error:
                # What was answered has been paid for: it is not let go.
                if not outage:
                    log.error("batch %s: what was answered waits to be noted: %s", job_id, error)
                outage = True
                await asyncio.sleep(AWAY_SECONDS)
                continue
            if outage:
                # It may have been noted though nobody heard of that: what is ours then, and was
                # not asked, is to be asked.
                known = {row.number for row in (*self._asked.values(), *claimed)}
                claimed += [
                    row
                    for batch, _, row in await self._journal.asked_by(self._journal.lease.worker)
                    if batch == job_id and row.number not in known
                ]
            return status, claimed

    def _is_free(self, model: str) -> bool:
        free = self._free.get(model)
        if free is None:
            asker = self._worker.asker
            free = self._free[model] = asker is not None and asker.is_free(model)
        return free

    async def _lines(self, file: BinaryIO, rows: Sequence[LineRow]) -> list[Line]:
        """Lines that were claimed, and are freed if they can't be read."""
        try:
            return await asyncio.to_thread(lines_of, file, rows, self._job.endpoint)
        except Exception:
            await self._noted([], [row.number for row in rows], 0)
            raise

    async def _some_answered(self, paused: float) -> None:
        """Wait until a line was answered, a pause of so many seconds is over, or something else is
        to be done."""
        seconds = min(KEY_SECONDS, paused) if paused > 0 else KEY_SECONDS
        await first_of(self._woken, seconds, self._asked)
        self._woken.clear()

    async def _ask(self, asker: Asker, principal: Principal, row: LineRow, line: Line) -> DoneLine:
        outcome = await asker.ask(self._job.endpoint, line.body, principal)
        return self._written(row, line, outcome)

    def _written(self, row: LineRow, line: Line, outcome: LineOutcome) -> DoneLine:
        return done_line(self._job, row, line, outcome)

    async def _break_off(self) -> None:
        """Cancel what is on its way, and keep what was answered meanwhile."""
        asked, self._asked = self._asked, {}
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        written = [task.result() for task in asked if not (task.cancelled() or task.exception())]
        cut = [row.number for task, row in asked.items() if task.cancelled() or task.exception()]
        # As if they had not been asked: nobody asks lines of a batch that was broken off.
        await self._noted(written, cut, 0)

    # The output -----------------------------------------------------------------------------------

    async def _end(self) -> None:
        job = await self._journal.get(self._job.id)
        assert job is not None
        self._job = job
        status, undone = "completed", CANCELLED
        if job.status == "cancelling":
            status, undone = _BROKEN_OFF[job.reason or AS_CANCELLED]
        # Whoever puts it together after this process died makes the same files.
        names = [_file_id(job.id, kind) for kind in ("output", "errors")]
        files = [await self._files.begin(job.owner, name, bounded=False) for name in names]
        try:
            left = await self._put_together(files, undone)
            kept = [await self._committed(each) for each in files]
        finally:
            for each in files:
                await each.discard()
        errors = None
        if status == "failed":
            problem = {"code": undone.code, "message": undone.message, "param": None, "line": None}
            errors = msgspec.json.encode({"object": "list", "data": [problem]})
        if await self._journal.end(job, status, kept, left, errors):
            log.info(
                "batch %s is %s: %s lines answered, %s not",
                job.id,
                status,
                job.completed,
                job.failed + left,
            )
            await self._worker.tidy(job.id)

    async def _put_together(self, files: Sequence[NewFile], undone: LineOutcome) -> int:
        """Write the results into the output and the errors, in the order of the input; how many
        lines have none."""
        job = self._job
        outputs, errors = files if job.api == "openai" else (files[0], files[0])
        source = await self._files.opened(job.input_file)
        number = cut = 0
        try:
            while rows := await self._journal.results(job.id, number, RESULTS_TOGETHER):
                number = rows[-1][0].number
                left = [row for row, _, result in rows if result is None]
                lines = await asyncio.to_thread(lines_of, source, left, job.endpoint)
                told = {
                    row.number: self._written(row, line, undone).result
                    for row, line in zip(left, lines, strict=True)
                }
                good = [result for _, is_good, result in rows if is_good and result is not None]
                if outputs is errors:
                    await outputs.write(
                        _joined([result or told[row.number] for row, _, result in rows])
                    )
                else:
                    bad = [
                        result or told[row.number] for row, is_good, result in rows if not is_good
                    ]
                    await outputs.write(_joined(good))
                    await errors.write(_joined(bad))
                cut += len(left)
        finally:
            await asyncio.to_thread(source.close)
        return cut

    async def _committed(self, file: NewFile) -> StoredFile | None:
        """A file that a batch made; None where nothing is in it."""
        job = self._job
        if not file.size:
            return None
        kind = "output" if file.id == _file_id(job.id, "output") else "error"
        purpose = BATCH_OUTPUT if job.api == "openai" else HIDDEN
        return await file.committed(f"{job.id}_{kind}.jsonl", purpose, job.output_seconds)


def _file_id(job_id: str, kind: str) -> str:
    return f"file-{hashlib.sha256(f'{job_id}/{kind}'.encode()).hexdigest()[:24]}"


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def done_line(job: Job, row: LineRow, line: Line, outcome: LineOutcome) -> DoneLine:
    """A line of `job` with what became of it, as it is noted."""
    result = render_result(job.endpoint, job.id, row.number, line.custom_id, outcome)
    return DoneLine(row.number, outcome.is_good, result, outcome.cost)


def lines_of(file: BinaryIO, rows: Sequence[LineRow], endpoint: str) -> list[Line]:
    """Lines of an input, which is read here; it blocks."""
    lines = []
    for row in rows:
        file.seek(row.begins)
        lines.append(read_line(file.read(row.size), endpoint))
    return lines


async def read_lines(files: FileStore, job: Job, rows: Sequence[LineRow]) -> list[Line]:
    """Lines of a batch's input.

    Raises:
        APIError: 503, it can't be read.
    """
    file = await files.opened(job.input_file)
    try:
        with unreadable():
            return await asyncio.to_thread(lines_of, file, rows, job.endpoint)
    finally:
        await asyncio.to_thread(file.close)
