"""Who works on batches in one process, beside others that die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_compat.distribution import BatchesSettings, FilesSettings
from routing.batches.files import FileStore
from routing.batches.journal.journal import Journal
from routing.batches.worker import BatchWorker


class Waiting:
    """A batch in work that waits for something.

    Attributes:
        woken: how often it was told to look.
    """

    is_asking = False
    woken = 0

    def wake(self) -> None:
        self.woken += 1


async def test_what_the_dead_had_is_looked_for_at_once(tmp_path: Path) -> None:
    """A batch waits for seconds before it looks whether orders are free."""
    files = FileStore(
        FilesSettings(path=str(tmp_path / "files")), f"sqlite:{tmp_path / 'storage.sqlite'}"
    )
    await files.start()
    now = [1000.0]
    worker: Any = BatchWorker(files, BatchesSettings(), 1.0, clock=lambda: now[0])
    try:
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
    finally:
        await files.stop()
