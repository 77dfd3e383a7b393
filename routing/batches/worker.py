"""Who works on batches in this process, with all others that have the same storage.

look: say that we are alive; free what the dead had; see which batches there are
  |
  v
run:  check the input -> ask the lines -> put the output together      (one task a batch)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from llama_compat.distribution import BatchesSettings
from llama_compat.errors import APIError
from llama_compat.going_on import going_on
from routing.batches.asking import Asker
from routing.batches.files import FileStore
from routing.batches.journal.journal import Journal
from routing.batches.journal.lease import LeaseLost
from routing.batches.journal.rows import AS_EXPIRED, DoneLine, Job, LineRow
from routing.batches.run import Run, done_line, read_lines
from routing.batches.wires import UNKNOWN_OUTCOME
from routing.storage.looking import Looking
from routing.storage.storage import StorageError

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
"""After so long a batch is tried again that could not go on, as its files can't be used, say."""


class BatchWorker:
    """Works on the batches of one storage, from `start` to `stop`.

    Args:
        files: where their input and output is.
        settings: how.
        grace_seconds: how long lines that are on their way may take once it is told to stop.
        only: the id of the one batch to work on, which a command has begun; empty for all others.
        clock: the time in seconds since 1970; that of the storage if none is given.

    Attributes:
        journal: of the batches.
    """

    def __init__(
        self,
        files: FileStore,
        settings: BatchesSettings,
        grace_seconds: float,
        only: str = "",
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.files = files
        self.settings = settings
        self._clock = clock or files.storage.now
        self.journal = Journal(files.storage, settings.lease_seconds, self._clock, only)
        self.asker: Asker | None = None
        self.stopping = False
        self._grace_seconds = grace_seconds
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again_at: dict[str, float] = {}
        self._looking = Looking("batches", self._look_or_begin_anew, settings.lease_seconds)
        self._beaten = 0.0

    @property
    def share(self) -> int:
        """How many lines one batch may have on their way here."""
        asking = sum(run.is_asking for run in self._runs.values())
        return max(1, self.settings.concurrency // max(1, asking))

    async def serve(self, asker: Asker) -> None:
        """Ask lines by `asker` from now on."""
        await asker.start()
        self.asker = asker
        self._looking.start()

    def ask_no_more(self) -> None:
        """Begin no line any more, but let those finish that are on their way."""
        self.stopping = True
        for run in self._runs.values():
            run.wake()

    async def stop(self) -> None:
        """Let the lines finish that are on their way, for a while; the others are asked later."""
        self.ask_no_more()
        if not self._looking.has_begun:
            return
        await self._looking.stop()
        tasks = list(self._tasks.values())
        if tasks:
            beating = asyncio.create_task(going_on("batches' lease", self._beat_on))
            await asyncio.wait(tasks, timeout=self._grace_seconds)
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(StorageError):
            await self.journal.lease.leave()
            await self._take_over(self.journal.lease.worker)

    def wake(self, job_id: str | None = None) -> None:
        """See at once what there is to do; `job_id` has been broken off."""
        self._looking.wake()
        if job_id is not None and (run := self._runs.get(job_id)) is not None:
            run.break_off()

    # Looking --------------------------------------------------------------------------------------

    async def _look_or_begin_anew(self) -> None:
        try:
            await self._look()
        except LeaseLost:
            log.warning("batches: this process was taken for dead, and begins anew")
            await self._begin_anew()

    async def _look(self) -> None:
        if not self.journal.lease.worker:
            await self.journal.lease.take()
            self._beaten = time.monotonic()
            for job_id in await self.journal.leftovers():
                await self.tidy(job_id)
        if time.monotonic() >= self._beaten + self._looking.beat_seconds:
            await self.journal.lease.renew()
            self._beaten = time.monotonic()
        for worker in await self.journal.lease.dead():
            await self._take_over(worker)
        for job in await self.journal.open():
            await self._see_to(job)

    async def _see_to(self, job: Job) -> None:
        if job.status in ("validating", "in_progress") and job.expires <= self._clock():
            await self.journal.break_off(job.id, AS_EXPIRED)
            self.wake(job.id)
            return
        run = self._runs.get(job.id)
        if run is not None:
            if job.status == "cancelling":
                run.break_off()
            return
        if (
            job.claimed_by not in (None, self.journal.lease.worker)
            or self.asker is None
            or self.stopping
        ):
            return
        if time.monotonic() < self._again_at.get(job.id, 0.0):
            return
        run = self._runs[job.id] = Run(self, job)
        task = asyncio.create_task(run.go_on(), name=f"batch {job.id}")
        self._tasks[job.id] = task
        task.add_done_callback(lambda task: self._ran(job.id, task))

    def _ran(self, job_id: str, task: asyncio.Task[None]) -> None:
        del self._runs[job_id], self._tasks[job_id]
        self._again_at.pop(job_id, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, LeaseLost):
            self._beaten = 0.0
            self._looking.wake()
        elif isinstance(error, StorageError):
            self._looking.outage.failed(str(error))
        else:
            self._again_at[job_id] = time.monotonic() + AGAIN_SECONDS
            log.error("batch %s could not go on, and is tried again", job_id, exc_info=error)

    async def _beat_on(self) -> None:
        while True:
            with suppress(StorageError, LeaseLost):
                await self.journal.lease.renew()
            await asyncio.sleep(self._looking.beat_seconds)

    async def _begin_anew(self) -> None:
        """Others have what was asked here: nobody waits for it any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.journal.lease.forget()

    async def tidy(self, job_id: str) -> None:
        """Remove what a batch that has ended needs no more."""
        while await self.journal.tidy(job_id):
            pass

    # What others have left ------------------------------------------------------------------------

    async def decide_on_lost(self, job_id: str) -> None:
        """Decide on the lines of a batch that are noted as asked here, before any is: its run broke
        off while they were on their way.

        Raises:
            APIError: its input can't be read now.
        """
        again, written, unread = await self._decided(self.journal.lease.worker, job_id)
        if unread is not None:
            raise unread
        if again or written:
            lines = written.get(job_id, ()), again.get(job_id, ())
            await self.journal.write(job_id, *lines, 0)

    async def _take_over(self, worker: str) -> None:
        """Decide on the lines of a worker that ended while they were on their way. Those of a batch
        whose input can't be read now, which has been logged, stay its own until the next look."""
        again, written, unread = await self._decided(worker)
        if not await self.journal.take_over(worker, again, written, is_all=unread is None):
            return
        for run in self._runs.values():
            run.wake()  # what it waits for may be free now
        if again or written:
            log.warning(
                "batches: of lines that were on their way when their process ended, %s are asked"
                " again, and of %s nobody knows what became",
                sum(map(len, again.values())),
                sum(map(len, written.values())),
            )

    async def _decided(
        self, worker: str, only: str = ""
    ) -> tuple[Mapping[str, Sequence[int]], Mapping[str, Sequence[DoneLine]], APIError | None]:
        """The lines that a worker had asked which are to be asked again, and the results of the
        others, by batch; and why those of a batch are missing, if its input can't be read now.

        Args:
            worker: that.
            only: the one batch that is looked at; empty for all.
        """
        again: dict[str, list[int]] = {}
        unknown: dict[str, list[LineRow]] = {}
        for job_id, is_free, line in await self.journal.asked_by(worker):
            if only and job_id != only:
                continue
            if is_free or self.settings.unknown_outcome == "retry":
                again.setdefault(job_id, []).append(line.number)
            else:
                unknown.setdefault(job_id, []).append(line)
        written: dict[str, list[DoneLine]] = {}
        unread: APIError | None = None
        for job_id, lines in unknown.items():
            job = await self.journal.get(job_id)
            if job is None:
                continue
            try:
                written[job_id] = await self._unknown(job, lines)
            except APIError as error:
                unread = error
        return again, written, unread

    async def _unknown(self, job: Job, lines: Sequence[LineRow]) -> list[DoneLine]:
        found = await read_lines(self.files, job, lines)
        return [
            done_line(job, row, line, UNKNOWN_OUTCOME)
            for row, line in zip(lines, found, strict=True)
        ]
