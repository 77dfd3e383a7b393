"""Who works on batches in one process, beside others that die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import BatchesSettings, FilesSettings
from llama_compat.errors import APIError
from routing.batches.files import FileStore
from routing.batches.journal.journal import Journal
from routing.batches.worker import BatchWorker
from tests.unit.routing.batches.journal.test_journal import job


class Waiting:
    """A batch in work that waits for something.

    Attributes:
        woken: how often it was told to look.
    """

    is_asking = False
    woken = 0

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[FileStore]:
    settings = FilesSettings(path=str(tmp_path / "files"))
    store = FileStore(settings, f"sqlite:{tmp_path / 'storage.sqlite'}")
    await store.start()
    yield store
    await store.stop()


async def test_what_the_dead_had_is_looked_for_at_once(files: FileStore) -> None:
    """A batch waits for seconds before it looks whether orders are free."""
    now = [1000.0]
    worker: Any = BatchWorker(files, BatchesSettings(), 1.0, clock=lambda: now[0])
    dead = Journal(files.storage, worker.settings.lease_seconds, lambda: now[0])
    await dead.lease.take()
    waiting = worker._runs["batch_1"] = Waiting()
    await worker._look()
    assert waiting.woken == 0
    now[0] += worker.settings.lease_seconds + 1
    await worker.journal.lease.renew()
    await worker._look()
    assert waiting.woken == 1
    await worker._look()
    assert waiting.woken == 1


async def test_one_whose_input_is_gone_ends_when_its_time_is_over(files: FileStore) -> None:
    """It was deleted, say, in the moment in which the batch was ordered."""
    now = [1000.0]
    worker: Any = BatchWorker(files, BatchesSettings(), 1.0, clock=lambda: now[0])
    worker.asker = object()
    try:
        await worker.journal.add(job())
        await worker._look()
        (run,) = worker._tasks.values()
        await asyncio.wait([run])
        assert isinstance(run.exception(), APIError)
        now[0] = job().expires + 1
        await worker.journal.lease.renew()
        for _ in range(2):
            worker._again_at.clear()
            await worker._look()
            if worker._tasks:
                await asyncio.wait(list(worker._tasks.values()))
        ended = await worker.journal.get(job().id)
        assert (ended.status, ended.total) == ("expired", 0)
    finally:
        await worker.stop()
