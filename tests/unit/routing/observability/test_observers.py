"""Who wants to know of requests is told when they have ended."""

from __future__ import annotations

import asyncio
import logging

import pytest

from llama_compat.dialects.openai.operations import CHAT
from routing.observability import observers as module
from routing.observability.observers import BATCH, LARGE_BYTES, Batch, Observers
from routing.observability.records.record import Record
from routing.observability.sample import HEAD_BYTES
from routing.request import Request
from tests.unit.routing.observability.records.test_ledger import LEDGER


class Listener:
    """Notes what it is told."""

    def __init__(
        self, sample_bytes: int = 0, error: Exception | None = None, *, looks: bool = False
    ) -> None:
        self.sample_bytes = sample_bytes
        self.error = error
        self.told: list[str] = []
        self.batches: list[Batch] = []
        self.happened = asyncio.Event()
        self.closing = self._closing if looks else None

    async def start(self) -> None:
        self.told.append("start")

    async def stop(self) -> None:
        self.told.append("stop")

    def _closing(self, request: Request, record: Record) -> None:
        self.told.append(f"closing {request.request_id} {record.model}")

    def ended(self, batch: Batch) -> None:
        if self.error is not None:
            raise self.error
        self.batches.append(batch)
        self.happened.set()
        self.told.append(f"ended {', '.join(each.model for each in batch.records)}")


def asked(model: str, request_id: str = "req") -> Request:
    return Request(CHAT, request_id, model=model)


def ask(observers: Observers, *models: str) -> None:
    """Requests for these models, each of which ends at once."""
    for number, model in enumerate(models):
        observers.ended(asked(model, f"req-{number}"))


async def test_each_is_told_of_all() -> None:
    first, second = Listener(), Listener(sample_bytes=HEAD_BYTES + 10)
    observers = Observers([first, second], LEDGER)
    assert observers.sample_bytes == HEAD_BYTES + 10
    await observers.start()
    ask(observers, "m")
    await observers.stop()
    assert first.told == second.told == ["start", "ended m", "stop"]


async def test_who_looks_at_requests_sees_each_close() -> None:
    listener = Listener(looks=True)
    observers = Observers([listener], LEDGER)
    await observers.start()
    ask(observers, "m")
    assert listener.told == ["start"]
    await observers.stop()
    assert listener.told[1:] == ["closing req-0 m", "ended m", "stop"]


async def test_what_is_large_waits_for_no_others() -> None:
    listener = Listener()
    observers = Observers([listener], LEDGER)
    await observers.start()
    observers.ended(Request(CHAT, "req", body=b"x" * LARGE_BYTES))
    assert listener.batches == []
    observers.ended(Request(CHAT, "req", body=b"x" * (LARGE_BYTES + 1)))
    assert [len(batch.records) for batch in listener.batches] == [2]
    await observers.stop()


async def test_how_long_a_request_took_does_not_depend_on_when_it_is_told() -> None:
    listener = Listener()
    observers = Observers([listener], LEDGER)
    await observers.start()
    observers.ended(Request(CHAT, "req", begun=100.0, ended=101.5))
    await observers.stop()
    assert listener.batches[0].records[0].duration == 1.5


async def test_those_that_are_alike_are_told_together() -> None:
    listener = Listener()
    observers = Observers([listener], LEDGER)
    await observers.start()
    ask(observers, "a", "b", "a")
    assert listener.batches == []
    observers.flush()
    assert [[each.request_id for each in batch.records] for batch in listener.batches] == [
        ["req-0", "req-2"],
        ["req-1"],
    ]
    assert [len(batch.attempts) for batch in listener.batches] == [2, 1]
    observers.flush()
    assert len(listener.batches) == 2
    await observers.stop()


async def test_nobody_waits_for_more_than_a_batch() -> None:
    listener = Listener()
    observers = Observers([listener], LEDGER)
    await observers.start()
    ask(observers, *["a", "b"] * (BATCH // 2 - 1), "a")
    assert listener.batches == []
    ask(observers, "b", "a")
    assert [len(batch.records) for batch in listener.batches] == [BATCH // 2, BATCH // 2]
    await observers.stop()
    assert len(listener.batches[-1].records) == 1


async def test_what_has_ended_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.01)
    listener = Listener()
    observers = Observers([listener], LEDGER)
    await observers.start()
    for model in ("a", "b"):
        ask(observers, model)
        await asyncio.wait_for(listener.happened.wait(), 60)
        listener.happened.clear()
        assert [each.model for each in listener.batches.pop().records] == [model]
    await observers.stop()


def test_what_goes_wrong_with_one_is_logged_and_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Listener()
    observers = Observers([Listener(error=LookupError("no")), other], LEDGER)
    with caplog.at_level(logging.ERROR):
        ask(observers, "m")
    assert "requests req-0 could not be observed" in caplog.text
    assert other.told == ["ended m"]
