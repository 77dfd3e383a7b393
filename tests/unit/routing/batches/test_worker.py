"""Who works on batches in one process, beside others that die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from llama_compat.distribution import BatchesSettings, FilesSettings
from llama_compat.errors import APIError
from routing.batches.files import FileStore
from routing.batches.journal.journal import Journal
from routing.batches.journal.lease import LeaseLost
from routing.batches.journal.rows import LineRow
from routing.batches.worker import BatchWorker
from tests.unit.routing.batches.journal.test_journal import job

LINE = '{"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"model": "m"}}'


async def failed(journal: Journal, name: str) -> int:
    found = await journal.get(name)
    assert found is not None
    return found.failed


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


async def test_a_batch_whose_input_can_t_be_read_keeps_no_other_waiting(
    files: FileStore, tmp_path: Path
) -> None:
    now = [1000.0]
    worker: Any = BatchWorker(files, BatchesSettings(), 1.0, clock=lambda: now[0])
    dead = Journal(files.storage, worker.settings.lease_seconds, lambda: now[0])
    await dead.lease.take()
    line = LINE.encode()
    for name in ("batch_1", "batch_2"):
        await dead.add(structs.replace(job(name), input_file=name))
        assert await dead.claim_job(name, "validating")
        await dead.add_lines(name, [LineRow(1, 0, len(line), "m")], first=True)
        await dead.checked(name, 1, "m", [])
        _, asked = await dead.write(name, (), (), 1)
        assert len(asked) == 1
    (tmp_path / "files" / "batch_2").write_bytes(line)
    now[0] += worker.settings.lease_seconds + 1
    await worker.journal.lease.take()
    await worker._take_over(dead.lease.worker)
    assert [await failed(dead, name) for name in ("batch_1", "batch_2")] == [0, 1]
    with pytest.raises(LeaseLost):
        await dead.lease.renew()
    # It can be read again.
    (tmp_path / "files" / "batch_1").write_bytes(line)
    assert await worker.journal.lease.dead() == [dead.lease.worker]
    await worker._take_over(dead.lease.worker)
    assert [await failed(dead, name) for name in ("batch_1", "batch_2")] == [1, 1]
    assert await worker.journal.lease.dead() == []


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
