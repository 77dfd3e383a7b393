"""What is known of a request when it has ended."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.openai.operations import CHAT, EMBEDDINGS
from llama_compat.distribution import (
    Distribution,
    ModelSettings,
    PriceSettings,
    ProviderSettings,
)
from llama_compat.errors import APIError, model_not_found, upstream_error
from llama_compat.exchange import Call, Principal, Reply, Target
from llama_compat.types import Usage
from providers.base import Provider, ProviderConfig
from routing.models import Route
from routing.operations import observer as module
from routing.operations.observer import (
    BATCH,
    CLIENT_LEFT,
    LARGE_BYTES,
    MAX_MODEL,
    Batch,
    Observed,
    Observers,
    record_of,
)
from routing.operations.records.prices import Prices
from routing.operations.records.record import Record
from routing.operations.records.sample import HEAD_BYTES
from routing.policy.attempts import Attempt, Attempts
from routing.policy.targets import LiveTarget, ProviderState

DISTRIBUTION = Distribution(
    providers=[ProviderSettings(id="up", type="local::echo")],
    models=[
        ModelSettings(
            id="m", provider="up", provider_model="gpt", price=PriceSettings(input=1, output=10)
        )
    ],
)
PRICES = Prices(DISTRIBUTION)
PROVIDER = Provider("up", ProviderConfig(), [])
FIELDS = {"messages": Raw(json.dumps("x" * 38).encode())}
BODY = b'{"choices":[{"message":{"content":"abcd"},"finish_reason":"stop"}]}'


async def stream() -> AsyncGenerator[bytes, None]:
    yield b""


def observed(
    reply: Reply | None = None,
    *,
    operation: Any = CHAT,
    streams: bool = False,
    complete: bool = True,
    failures: int = 0,
) -> Observed:
    """A request that was answered with `reply`, after `failures` of another target."""
    attempts = Attempts()
    seen = Observed(operation, "req", Principal("key-1"), attempts)
    seen.begun = 100.0
    target = ProviderState("up").target("gpt")
    for _ in range(failures):
        attempt = Attempt(target, clock=lambda: 100.25)
        attempt.fail(upstream_error("up", "broke"))
        attempts.add(attempt)
    seen.call = Call(operation, FIELDS, "m", streams, "req")
    seen.route = Route([LiveTarget(PROVIDER, Target("gpt"), target)], None, "m")
    if reply is not None:
        times = iter([100.5, 101.0, 102.0])
        attempt = Attempt(target, stream=streams, clock=lambda: next(times))
        attempts.add(attempt)
        attempt.has_content()
        seen.reply, seen.status, seen.complete = reply, 200, complete
        if streams:
            seen.sampled().add(BODY)
        seen.first_sent = 101.125
    seen.model = "m"
    return seen


def record(seen: Observed) -> Record:
    return record_of(seen, PRICES)


def counted(prompt: int, completion: int, **more: int) -> Any:
    return lambda: Usage(prompt, completion, **more)


def test_a_request_that_was_answered() -> None:
    usage = counted(7, 5, cached_tokens=2, reasoning_tokens=1, cache_write_tokens=3)
    found = record(observed(Reply(BODY, read_usage=usage)))
    assert (found.key, found.api, found.operation) == ("key-1", "openai", "chat")
    assert (found.route, found.model, found.served) == ("m", "m", "gpt")
    assert (found.provider, found.target, found.attempts) == ("up", "up/gpt", 1)
    assert (found.status, found.error, found.message, found.cancelled) == (200, "", "", 0)
    assert (found.stream, found.finish_reason, found.first_content) == (0, "stop", None)
    assert (found.input_tokens, found.output_tokens, found.estimated) == (7, 5, 0)
    assert (found.cached_tokens, found.cache_write_tokens, found.reasoning_tokens) == (2, 3, 1)
    assert found.cost == 7_000 + 50_000
    # Half a second until the target was asked, and an eighth from its answer to the client's.
    assert found.overhead == 0.5 + 0.125
    assert found.duration > 0


def test_a_stream_has_a_first_content() -> None:
    found = record(observed(Reply(stream(), read_usage=counted(7, 5)), streams=True))
    assert (found.stream, found.first_content) == (1, 1.0)


def test_what_other_targets_took_is_no_overhead_of_its_own() -> None:
    found = record(observed(Reply(BODY, read_usage=counted(7, 5)), failures=1))
    assert found.attempts == 2
    assert found.overhead == 0.25 + 0.125


def test_a_stream_that_was_cut_is_estimated() -> None:
    seen = observed(Reply(stream(), read_usage=lambda: None), streams=True, complete=False)
    seen.cancelled = True
    found = record(seen)
    assert (found.input_tokens, found.output_tokens, found.estimated) == (10, 1, 1)
    assert (found.cancelled, found.cost) == (1, 20_000)


def test_a_whole_reply_is_paid_for_whether_the_client_got_it_or_not() -> None:
    found = record(observed(Reply(BODY, read_usage=counted(7, 5)), complete=False))
    assert (found.input_tokens, found.output_tokens, found.estimated) == (7, 5, 0)


def test_embeddings_say_nothing() -> None:
    found = record(observed(Reply(BODY, read_usage=counted(7, 0)), operation=EMBEDDINGS))
    assert (found.input_tokens, found.output_tokens, found.estimated) == (7, 0, 0)
    found = record(observed(Reply(BODY), operation=EMBEDDINGS))
    assert (found.output_tokens, found.estimated) == (0, 1)


def test_a_request_that_nobody_answered() -> None:
    seen = observed(failures=2)
    seen.error, seen.status = upstream_error("up", "broke\x00"), 502
    found = record(seen)
    assert (found.status, found.error) == (502, "server_error")
    assert found.message == "Provider 'up': broke\\x00"
    assert (found.target, found.attempts) == ("up/gpt", 2)
    assert (found.input_tokens, found.cost, found.overhead) == (None, None, None)
    assert found.finish_reason == ""


def test_a_request_that_went_nowhere() -> None:
    seen = Observed(CHAT, "req")
    seen.error, seen.status = model_not_found("x"), 404
    seen.model = "x\n" * 1000
    found = record(seen)
    assert (found.key, found.route, found.provider, found.attempts) == ("", "", "", 0)
    assert found.model == "x\\n" * (MAX_MODEL // 2)
    assert found.error == "not_found"


def test_a_client_that_left_before_there_was_a_status() -> None:
    seen = observed()
    seen.cancelled = True
    assert record(seen).status == CLIENT_LEFT


# Those who want to know ---------------------------------------------------------------------------


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
        self.begun = self._begun if looks else None
        self.closing = self._closing if looks else None

    async def start(self) -> None:
        self.told.append("start")

    async def stop(self) -> None:
        self.told.append("stop")

    def _begun(self, observed: Observed) -> None:
        self.told.append(f"begun {observed.request_id}")

    def _closing(self, observed: Observed, record: Record) -> None:
        self.told.append(f"closing {observed.request_id} {record.model}")

    def ended(self, batch: Batch) -> None:
        if self.error is not None:
            raise self.error
        self.batches.append(batch)
        self.happened.set()
        self.told.append(f"ended {', '.join(each.model for each in batch.records)}")


def ask(observers: Observers, *models: str) -> None:
    """Requests for these models, each of which ends at once."""
    for number, model in enumerate(models):
        observers.begin(CHAT, f"req-{number}", None, Attempts()).end(model)


async def test_each_is_told_of_all() -> None:
    first, second = Listener(), Listener(sample_bytes=HEAD_BYTES + 10)
    observers = Observers([first, second], PRICES)
    await observers.start()
    seen = observers.begin(CHAT, "req", None, Attempts())
    seen.sampled().add(b"x" * 2 * HEAD_BYTES)
    assert len(seen.sample.head) == HEAD_BYTES + 10
    seen.end("m")
    await observers.stop()
    assert first.told == second.told == ["start", "ended m", "stop"]


async def test_who_looks_at_requests_sees_each_begin_and_close() -> None:
    listener = Listener(looks=True)
    observers = Observers([listener], PRICES)
    await observers.start()
    ask(observers, "m")
    assert listener.told == ["start", "begun req-0"]
    await observers.stop()
    assert listener.told[2:] == ["closing req-0 m", "ended m", "stop"]


async def test_what_is_large_waits_for_no_others() -> None:
    listener = Listener()
    observers = Observers([listener], PRICES)
    await observers.start()
    seen = observers.begin(CHAT, "req", None, Attempts())
    seen.body = b"x" * LARGE_BYTES
    seen.end("m")
    assert listener.batches == []
    seen = observers.begin(CHAT, "req", None, Attempts())
    seen.body = b"x" * (LARGE_BYTES + 1)
    seen.end("m")
    assert [len(batch.records) for batch in listener.batches] == [2]
    await observers.stop()


async def test_how_long_a_request_took_does_not_depend_on_when_it_is_told() -> None:
    listener = Listener()
    observers = Observers([listener], PRICES)
    await observers.start()
    seen = observers.begin(CHAT, "req", None, Attempts())
    seen.end("m")
    seen.begun, seen.ended = 100.0, 101.5
    await observers.stop()
    assert listener.batches[0].records[0].duration == 1.5


async def test_those_that_are_alike_are_told_together() -> None:
    listener = Listener()
    observers = Observers([listener], PRICES)
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
    observers = Observers([listener], PRICES)
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
    observers = Observers([listener], PRICES)
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
    observers = Observers([Listener(error=LookupError("no")), other], PRICES)
    with caplog.at_level(logging.ERROR):
        ask(observers, "m")
    assert "requests req-0 could not be observed" in caplog.text
    assert other.told == ["ended m"]


class Admission:
    """Notes what is settled."""

    def __init__(self) -> None:
        self.settled: list[Any] = []

    def settle_usage(self, usage: Usage, cost: int | None) -> None:
        self.settled.append((usage, cost))

    def settle(self, tokens: float | None, cost: float | None) -> None:
        self.settled.append((tokens, cost))


@pytest.mark.parametrize("listeners", [[], [Listener()]])
def test_what_was_admitted_is_settled_at_the_end(listeners: list[Listener]) -> None:
    observers = Observers(listeners, PRICES, settles=True)
    seen = observed(Reply(BODY, read_usage=counted(7, 5)))
    seen.at_end, seen.admission = observers._end, Admission()
    seen.end("m")
    assert seen.admission.settled == [(Usage(7, 5), 57_000)]
    assert [each.told for each in listeners] == [["ended m"]] * len(listeners)


def test_what_can_t_be_recorded_is_settled_with_all_that_it_reserved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> Usage:
        raise LookupError("no")

    observers = Observers([Listener()], PRICES)
    seen = observed(Reply(BODY, read_usage=broken))
    seen.at_end, seen.admission = observers._end, Admission()
    seen.end("m")
    assert seen.admission.settled == [(None, None)]
    assert "what request req used is not known" in caplog.text
    assert "request req could not be recorded" in caplog.text


@pytest.mark.parametrize("error", [None, LookupError("no")])
def test_what_runs_is_known_until_it_ends(error: Exception | None) -> None:
    observers = Observers([Listener(error=error)], PRICES)
    first = observers.begin(CHAT, "req", None, Attempts())
    second = observers.begin(CHAT, "req", None, Attempts())
    assert observers.running == {first, second}
    first.end("m")
    assert observers.running == {second}
    second.postpone()
    second.end("m")
    assert observers.running == {second}
    second.end_later(second.attempts, None, None)
    assert observers.running == set()


def test_what_runs_is_known_where_nobody_wants_to_know_more() -> None:
    observers = Observers([], PRICES)
    assert not observers.count_usage
    assert Observers([Listener()], PRICES).count_usage
    assert Observers([], PRICES, settles=True).count_usage
    seen = observers.begin(CHAT, "req", None, Attempts())
    assert observers.running == {seen}
    seen.end("m")
    assert observers.running == set()


def test_what_has_no_model_has_none() -> None:
    listener = Listener()
    Observers([listener], PRICES).begin(CHAT, "req", None, Attempts()).end("-")
    assert listener.told[-1] == "ended "


@pytest.mark.parametrize(
    ("reply", "error", "cancelled", "tokens"),
    [
        (Reply(BODY, read_usage=counted(7, 5)), None, 0, 7),
        (None, APIError(500, "broke"), 0, None),
        (None, None, 1, None),
    ],
)
def test_what_is_postponed_ends_later(
    reply: Reply | None, error: APIError | None, cancelled: int, tokens: int | None
) -> None:
    records: list[Record] = []
    seen = observed(Reply(b'{"status":"queued"}'))
    seen.at_end = lambda each: records.append(record(each))
    seen.postpone()
    seen.end("m")
    assert records == []
    seen.end_later(seen.attempts, reply, error)
    (found,) = records
    assert (found.model, found.cancelled, found.input_tokens) == ("m", cancelled, tokens)
    assert found.finish_reason == ("stop" if reply is not None else "")
