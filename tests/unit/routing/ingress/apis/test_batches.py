"""Batches that others cancel or delete while a client asks for the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from llama_compat.errors import APIError
from routing.batches.journal.journal import Journal
from routing.batches.tables import MIGRATIONS
from routing.ingress.apis import batches, message_batches
from routing.storage.storage import open_storage
from tests.unit.routing.batches.journal.test_journal import job

REQUEST: Any = SimpleNamespace(scope={"principal": SimpleNamespace(id="key-a")})


@pytest.fixture
async def journal(address: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Journal]:
    storage = open_storage(address, [MIGRATIONS])
    await storage.start()
    journal = Journal(storage, 10.0)
    worker = SimpleNamespace(journal=journal, wake=lambda job_id: None)
    for module in (batches, message_batches):
        monkeypatch.setattr(module, "worker_of", lambda request: worker)
    try:
        yield journal
    finally:
        await storage.stop()


async def test_who_cancels_what_somebody_just_cancelled_has_cancelled_it(journal: Journal) -> None:
    """It was a 409 that called the batch in progress."""
    found = job("batch_1")
    await journal.add(found)
    for _ in range(2):
        await batches.cancel_job(REQUEST, found)


async def test_who_cancels_what_has_just_ended_is_told_so(journal: Journal) -> None:
    found = job("batch_1")
    await journal.add(structs.replace(found, status="completed"))
    with pytest.raises(APIError) as caught:
        await batches.cancel_job(REQUEST, found)
    assert (caught.value.status, caught.value.code) == (409, "batch_has_ended")
    assert "'batch_1' is completed" in caught.value.message


async def test_what_somebody_just_deleted_is_not_there(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to be at work, and to be cancelled first."""
    ended = structs.replace(job("batch_1"), owner="key-a", api="messages", status="completed")
    await journal.add(ended)
    delete = journal.delete

    async def deleted_before(job_id: str) -> bool:
        assert await delete(job_id)
        return await delete(job_id)

    monkeypatch.setattr(journal, "delete", deleted_before)
    with pytest.raises(APIError) as caught:
        await message_batches.delete_message_batch(REQUEST, "batch_1")
    assert (caught.value.status, caught.value.code) == (404, "batch_not_found")
