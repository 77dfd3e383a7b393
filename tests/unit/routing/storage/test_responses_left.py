"""Responses in the background that their processes have left: one alone goes on with each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from llama_compat.distribution import ResponsesStoreSettings
from llama_compat.errors import APIError
from routing.layers.keeping import background as background_module
from routing.layers.keeping.adopting import Adopter
from routing.layers.keeping.background import BackgroundResponses
from routing.storage.kept import AtVendor
from routing.storage.kept_rows import ALIVE_SECONDS
from routing.storage.responses import ResponseStore
from tests.postgres import PostgresServer, emptied
from tests.unit.routing.storage.test_responses import OWNER, Clock, asked, response, rows, save


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(address: str, clock: Clock) -> AsyncIterator[ResponseStore]:
    one = ResponseStore(ResponsesStoreSettings(), address, clock)
    await one.start()
    yield one
    await one.stop()


async def statuses(store: ResponseStore) -> list[str]:
    return [status for (status,) in await rows(store, "SELECT status FROM stored_responses")]


async def test_a_server_whose_clock_is_ahead_takes_nobody_for_dead(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await emptied(postgres_server.address)
    first, second = (
        ResponseStore(ResponsesStoreSettings(), postgres_server.address) for _ in range(2)
    )
    await first.start()
    await save(first, "r1", background=True, status="queued")
    assert await first.running.keep_alive(["r1"], "first") == set()
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + 10 * ALIVE_SECONDS)
    await second.start()
    try:
        assert await second.running.left() == {}
        assert await second.running.claim(["r1"], "second") == []
    finally:
        await second.stop()
        await first.stop()


async def test_what_is_left_is_claimed_by_one(store: ResponseStore, clock: Clock) -> None:
    running, at = store.running, AtVendor("openai", "o9", "there", "asked", "req_1")
    queued = response("r1", background=True, status="queued")
    await store.save(OWNER, queued, asked("r1"), None, at)
    await save(store, "r2", background=True, status="queued")
    begun = clock.now
    assert await running.keep_alive(["r1"], "first") == set()
    assert await running.left() == {}
    assert await running.claim(["r1"], "second") == []
    clock.now += ALIVE_SECONDS + 1
    assert await running.left() == {"r1": at, "r2": None}
    claims = await asyncio.gather(*(running.claim(["r1", "r2"], name) for name in "abc"))
    (claimed,) = filter(None, claims)
    by = "abc"[claims.index(claimed)]
    first = next(each for each in claimed if each.at_vendor is not None)
    assert (len(claimed), first.owner, first.age, first.at_vendor) == (
        2,
        OWNER,
        clock.now - begun,
        at,
    )
    assert await running.left() == {}
    # Who was taken for dead is told so, and completes nothing.
    done = response("r1", background=True)
    assert await running.keep_alive(["r1"], "first") == {"r1"}
    assert not await store.complete(done, "first")
    await running.let_go("r1", "first")
    assert await running.left() == {}
    assert await running.keep_alive(["r1", "r2"], by) == set()
    assert await store.complete(done, by)
    assert (await store.get(OWNER, "r1")).response["status"] == "completed"
    await running.let_go("r2", by)
    assert await running.left() == {"r2": None}


async def test_whose_a_response_is_that_was_cancelled_or_deleted(store: ResponseStore) -> None:
    for each in ("r1", "r2"):
        await save(store, each, background=True, status="queued")
    assert await store.running.keep_alive(["r1", "r2"], "first") == set()
    await store.cancel(OWNER, "r1")
    await store.delete(OWNER, "r2")
    assert await store.running.keep_alive(["r1", "r2"], "first") == {"r1", "r2"}
    for each in ("r1", "r2"):
        assert await store.complete(response(each, background=True), "first")
    assert not await store.complete(response("r1", background=True), "second")
    assert (await store.get(OWNER, "r1")).response["status"] == "cancelled"


class Adopts:
    """Says that more may be begun, and is asked for nothing that a vendor makes."""

    is_open = True


async def test_what_was_made_by_a_process_that_is_gone_has_failed_though_nobody_asks(
    store: ResponseStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_module, "LOOK_SECONDS", 0.01)
    await save(store, "r1", background=True, status="queued")
    clock.now += ALIVE_SECONDS + 1
    with pytest.raises(APIError, match="still running"):
        await store.history(OWNER, "r1")
    background = BackgroundResponses(store, adopter=cast(Adopter, Adopts()))
    kept, complete = asyncio.Event(), store.complete

    async def noted(made: Any) -> bool:
        is_ours = await complete(made)
        kept.set()
        return is_ours

    monkeypatch.setattr(store, "complete", noted)
    background.start()
    async with asyncio.timeout(30):
        await kept.wait()
    await background.stop()
    assert await statuses(store) == ["failed"]


async def test_nothing_is_taken_from_others_just_after_the_store_was_away(
    store: ResponseStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was away for all, and who could not say that it lives does so as soon as it is back."""
    monkeypatch.setattr(background_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(background_module, "AFTER_OUTAGE_SECONDS", 1e9)
    looked, left = asyncio.Event(), store.running.left

    async def away_at_first() -> Any:
        if looked.is_set():
            return await left()
        looked.set()
        raise APIError(503, "It is away.", code="store_unavailable")

    monkeypatch.setattr(store.running, "left", away_at_first)
    await save(store, "r1", background=True, status="queued")
    clock.now += ALIVE_SECONDS + 1
    background = BackgroundResponses(store, adopter=cast(Adopter, Adopts()))
    background.start()
    await looked.wait()
    await asyncio.sleep(0.1)
    await background.stop()
    assert await statuses(store) == ["queued"]
