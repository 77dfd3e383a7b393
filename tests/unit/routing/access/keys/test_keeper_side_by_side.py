"""Several gateways that change the keys of one storage at the same time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from llama_compat.distribution import KeyGrant
from routing.access.keys import keeper as module
from routing.access.keys.keeper import Keeper
from routing.access.keys.store import KEYS, KeyStore
from routing.access.limits.memory import MemoryCounters
from routing.storage.storage import open_storage
from tests.forked import Forked

pytestmark = pytest.mark.server

CHANGING = "tests.unit.routing.access.keys.changing"

CHANGES = 24
ROUNDS = 6

GRANT = KeyGrant(name="n")


class Gateway:
    """A process that changes keys; see `changing`."""

    def __init__(self, address: str) -> None:
        (reads, asks), (hears, says) = os.pipe(), os.pipe()
        self._asked, self._said = open(asks, "wb"), open(hears, "rb")  # noqa: SIM115
        self._process: Forked | subprocess.Popen[bytes]
        if sys.platform == "linux":
            command = ["changing", address]
            files: dict[str, Any] = {"output": says, "errors": 2, "input": reads}
            self._process = Forked(command, env=os.environ, parent=CHANGING, **files)
        else:
            command = [sys.executable, "-m", CHANGING, address]
            self._process = subprocess.Popen(command, stdin=reads, stdout=says)
        os.close(reads)
        os.close(says)

    async def make(self, changes: list[Any]) -> list[str]:
        """Make changes side by side; the ids of their keys."""
        self._asked.write(json.dumps(changes).encode() + b"\n")
        self._asked.flush()
        ids: list[str] = json.loads(await self.line())
        return ids

    async def line(self) -> bytes:
        return await asyncio.to_thread(self._said.readline)

    def end(self) -> None:
        """It ends when nobody asks it any more."""
        self._asked.close()
        self._process.wait()
        self._said.close()


@asynccontextmanager
async def gateway(address: str) -> AsyncIterator[Gateway]:
    process = Gateway(address)
    try:
        assert await process.line() == b"ready\n"
        yield process
    finally:
        await asyncio.to_thread(process.end)


@pytest.fixture
async def store(address: str) -> AsyncIterator[KeyStore]:
    storage = open_storage(address, [KEYS])
    await storage.start()
    yield KeyStore(storage)
    await storage.stop()


async def test_no_change_of_two_processes_is_missed(
    address: str, store: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What changes is to be seen as such, and not because all is read now and then.
    monkeypatch.setattr(module, "WHOLE_SECONDS", 1e9, raising=False)
    keeper = Keeper(address, MemoryCounters(), look_seconds=0.001)
    await keeper.start()
    try:
        async with gateway(address) as one, gateway(address) as other:
            for _ in range(ROUNDS):
                new = [[None, {"name": "n"}]] * CHANGES
                made = await asyncio.gather(one.make(new), other.make(new))
                # Each revokes what the other has made.
                await asyncio.gather(
                    one.make([[each, None] for each in made[1]]),
                    other.make([[each, None] for each in made[0]]),
                )
        await keeper.refresh(at_once=True)
        there = await store.list()
        assert len(there) == 2 * CHANGES * ROUNDS
        assert [each.id for each in there if each.digest not in keeper.keys] == []
        assert [each.id for each in there if keeper.keys[each.digest].is_good(0.0)] == []
        assert len({each.revision for each in there}) == len(there)
    finally:
        await keeper.stop()


async def test_changes_of_one_key_by_two_processes_are_both_kept(
    address: str, store: KeyStore
) -> None:
    ids = [(await store.create(GRANT))[0].id for _ in range(CHANGES)]
    async with gateway(address) as one, gateway(address) as other:
        await asyncio.gather(
            one.make([[each, {"budget": {"amount": 5, "period": "day"}}] for each in ids]),
            other.make([[each, {"models": ["m"]}] for each in ids]),
        )
    kept = [each.grant for each in await store.list()]
    assert [each.models for each in kept] == [["m"]] * CHANGES
    assert [each.budget is not None for each in kept] == [True] * CHANGES


async def test_a_storage_in_whose_place_another_came_is_read_whole(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WHOLE_SECONDS", 0.05, raising=False)
    storage = open_storage(address, [KEYS])
    await storage.start()
    store = KeyStore(storage)
    gone, _ = await store.create(GRANT)
    keeper = Keeper(address, MemoryCounters(), look_seconds=0.01)
    await keeper.start()
    try:
        # As after a copy was put back: fewer keys, and smaller revisions.
        async with storage.transaction() as transaction:
            await transaction.fetch("DELETE FROM keys")
            await transaction.fetch(
                "INSERT INTO keys VALUES ('key-a', 'digest', ?, 0, NULL, 0) RETURNING id",
                GRANT.model_dump_json(),
            )
        for _ in range(2000):
            if set(keeper.keys) == {"digest"}:
                break
            await asyncio.sleep(0.01)
    finally:
        await keeper.stop()
        await storage.stop()
    assert set(keeper.keys) == {"digest"} != {gone.digest}
