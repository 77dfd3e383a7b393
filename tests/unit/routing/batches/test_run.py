"""Whatever goes wrong while lines are on their way: each has its one result, and the batch ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llama_compat.distribution import BatchesSettings, FilesSettings
from llama_compat.errors import APIError
from llama_compat.exchange import ANYBODY
from routing.batches.file_rows import StoredFile
from routing.batches.files import HIDDEN, FileStore
from routing.batches.journal.rows import AS_CANCELLED, ENDED, Job, LineRow
from routing.batches.run import read_lines
from routing.batches.wires import MESSAGES_ENDPOINT, LineOutcome
from routing.batches.worker import BatchWorker
from routing.storage.storage import StorageAway
from tests.unit.routing.batches.journal.test_journal import job

LINES = [
    json.dumps(
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/embeddings",
            # More than is read ahead.
            "body": {"i": name, "input": "x" * 20_000},
        }
    )
    for name in "abc"
]


class Vendor:
    """Answers lines, the first when it is let.

    Attributes:
        asked: what, in this order.
        let: the first line may be answered.
        other: called as the second line is answered.
    """

    knows_keys = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.let = asyncio.Event()
        self.other = lambda: None

    async def ask(self, endpoint: str, body: bytes, principal: Any) -> LineOutcome:
        name = json.loads(body)["i"]
        self.asked.append(name)
        if name == "a":
            await self.let.wait()
        if name == "b":
            self.other()
        return LineOutcome(200, name, b"{}", cost=1)

    async def look_for(self, owner: str) -> Any:
        return ANYBODY

    def is_local(self, model: str) -> bool:
        return False

    def is_free(self, model: str) -> bool:
        return False

    def handed_to(self, model: str) -> None:
        return None


class Setting:
    """A worker, its vendor, and a batch of three lines, of which two are asked at a time."""

    def __init__(self, files: FileStore, input_file: StoredFile, folder: Path) -> None:
        self.worker: Any = BatchWorker(files, BatchesSettings(concurrency=2), 1.0)
        self.vendor = self.worker.asker = Vendor()
        self.job = msgspec.structs.replace(job(), input_file=input_file.id)
        self.input = folder / input_file.id

    async def look(self) -> None:
        self.worker._again_at.clear()
        await self.worker._look()

    async def run(self) -> None:
        """Until the batch's run has come to an end, well or not."""
        await asyncio.wait(list(self.worker._tasks.values()), timeout=30)
        assert not self.worker._tasks

    async def until_asked(self, *names: str) -> None:
        for _ in range(3000):
            if self.vendor.asked == list(names):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(self.vendor.asked)

    async def now(self) -> Job:
        found: Job = await self.worker.journal.get(self.job.id)
        return found


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    settings = FilesSettings(path=str(tmp_path / "files"))
    files = FileStore(settings, f"sqlite:{tmp_path / 'storage.sqlite'}")
    await files.start()
    file = await files.begin(job().owner)
    await file.write("".join(f"{line}\n" for line in LINES).encode())
    one = Setting(files, await file.keep("in.jsonl", "batch", None), tmp_path / "files")
    await one.worker.journal.add(one.job)
    yield one
    await one.worker.stop()
    await files.stop()


async def test_what_was_asked_is_answered_though_the_input_can_be_read_no_more(
    setting: Setting,
) -> None:
    vendor, content = setting.vendor, setting.input.read_bytes()

    def torn() -> None:
        setting.input.write_bytes(content[: len(LINES[0] + LINES[1]) + 2])
        asyncio.get_running_loop().call_later(0.2, vendor.let.set)

    vendor.other = torn
    await setting.look()
    await setting.run()
    found = await setting.now()
    assert (found.status, found.completed) == ("in_progress", 2)
    setting.input.write_bytes(content)
    await setting.look()
    await setting.run()
    found = await setting.now()
    assert (found.status, found.completed, found.failed) == ("completed", 3, 0)
    assert vendor.asked == ["a", "b", "c"]


async def test_one_that_is_cancelled_while_its_storage_is_away_ends(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, journal = setting.worker, setting.worker.journal
    await setting.look()
    await setting.until_asked("a", "b", "c")
    write, away = journal.write, [True]

    async def failing(job_id: str, written: Any, again: Any, *more: Any) -> Any:
        if again and away:
            raise StorageAway(f"{away.pop()}")
        return await write(job_id, written, again, *more)

    monkeypatch.setattr(journal, "write", failing)
    assert await journal.break_off(setting.job.id, AS_CANCELLED)
    worker.wake(setting.job.id)
    await setting.run()
    assert not away
    if (await setting.now()).status not in ENDED:
        await setting.look()
        await setting.run()
    found = await setting.now()
    assert (found.status, found.completed, found.undone) == ("cancelled", 2, 1)


async def test_an_input_that_is_torn_is_one_that_cant_be_read(setting: Setting) -> None:
    """Whoever takes over from the dead would see to nothing else either."""
    setting.input.write_bytes(b"{")
    with pytest.raises(APIError) as caught:
        await read_lines(setting.worker.files, setting.job, [LineRow(1, 0, 9, "m")])
    assert (caught.value.status, caught.value.code) == (503, "store_unavailable")


@pytest.mark.parametrize("is_gone", [False, True])
async def test_each_request_of_messages_is_told_of_though_none_was_begun(
    setting: Setting, is_gone: bool
) -> None:
    """Anthropic's clients count what became of each, and found no result of any."""
    files, worker = setting.worker.files, setting.worker
    file = await files.begin("key-a")
    for name in "abc":
        params = {"custom_id": name, "params": {"model": "m"}}
        await file.write(json.dumps(params).encode() + b"\n")
    kept = await file.keep("requests.jsonl", HIDDEN, None)
    asked = msgspec.structs.replace(
        setting.job, id="msgbatch_1", api="messages", endpoint=MESSAGES_ENDPOINT, total=3
    )
    asked = msgspec.structs.replace(asked, input_file=kept.id)
    await worker.journal.add(asked, is_uploaded=True)
    assert await worker.journal.break_off(asked.id, AS_CANCELLED)
    setting.vendor.let.set()
    if is_gone:
        setting.input.with_name(kept.id).unlink()
    await setting.look()
    await setting.run()
    found = await worker.journal.get(asked.id)
    assert (found.status, found.undone, found.error_file) == ("cancelled", 3, None)
    if is_gone:
        assert found.output_file is None
        return
    lines = b"".join([piece async for piece in files.content(found.output_file)]).splitlines()
    assert list(map(json.loads, lines)) == [
        {"custom_id": name, "result": {"type": "canceled"}} for name in "abc"
    ]
