"""What is recorded of a request when it has ended."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import Raw

from llama_compat.dialects.openai.operations import CHAT, EMBEDDINGS
from llama_compat.distribution import (
    Distribution,
    ModelSettings,
    PriceSettings,
    ProviderSettings,
)
from llama_compat.errors import model_not_found, upstream_error
from llama_compat.exchange import Call, Principal, Reply, Target
from llama_compat.extent import Extent, Prompt
from llama_compat.hosted.parts import ReplyPart
from llama_compat.types import Units, Usage
from providers.base import Provider, ProviderConfig
from routing.models import Route
from routing.observability.records.ledger import CACHE, CLIENT_LEFT, MAX_MODEL, Ledger
from routing.observability.records.prices import Prices
from routing.observability.records.record import Record
from routing.observability.sample import HEAD_BYTES
from routing.policy.attempts import Attempt, Attempts
from routing.policy.targets import LiveTarget, ProviderState
from routing.request import Request

DISTRIBUTION = Distribution(
    providers=[ProviderSettings(id="up", type="local::echo")],
    models=[
        ModelSettings(
            id="m", provider="up", provider_model="gpt", price=PriceSettings(input=1, output=10)
        )
    ],
)
LEDGER = Ledger(Prices(DISTRIBUTION))
PROVIDER = Provider("up", ProviderConfig(), [])
FIELDS = {"messages": Raw(json.dumps("x" * 38).encode())}
EXTENT = Extent(Prompt(FIELDS, "messages"))
BODY = b'{"choices":[{"message":{"content":"abcd"},"finish_reason":"stop"}]}'


async def stream() -> AsyncGenerator[bytes, None]:
    yield b""


def ended(
    reply: Reply | None = None,
    *,
    operation: Any = CHAT,
    streams: bool = False,
    complete: bool = True,
    failures: int = 0,
) -> Request:
    """A request that was answered with `reply`, after `failures` of another target."""
    attempts = Attempts()
    request = Request(operation, "req", Principal("key-1"), attempts, sample_bytes=HEAD_BYTES)
    request.begun, request.ended = 100.0, 102.0
    target = ProviderState("up").target("gpt")
    for _ in range(failures):
        attempt = Attempt(target, clock=lambda: 100.25)
        attempt.fail(upstream_error("up", "broke"))
        attempts.add(attempt)
    request.call = Call(operation, FIELDS, "m", streams, "req", extent=EXTENT)
    request.route = Route([LiveTarget(PROVIDER, Target("gpt"), target)], None, "m")
    if reply is not None:
        times = iter([100.5, 101.0, 102.0])
        attempt = Attempt(target, stream=streams, clock=lambda: next(times))
        attempts.add(attempt)
        attempt.has_content()
        request.reply, request.status, request.complete = reply, 200, complete
        if streams:
            request.sampled().add(BODY)
        request.first_sent = 101.125
    request.model = "m"
    return request


def record(request: Request) -> Record:
    return LEDGER.record(request)


def counted(prompt: int, completion: int, **more: Any) -> Any:
    return lambda: Usage(prompt, completion, **more)


def test_a_request_that_was_answered() -> None:
    usage = counted(7, 5, cached_tokens=2, reasoning_tokens=1, cache_write_tokens=3)
    found = record(ended(Reply(BODY, read_usage=usage)))
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
    assert found.duration == 2


def test_searches_of_the_vendor_and_tools_that_were_run_here() -> None:
    searched = counted(7, 5, units=Units(searches=2))
    request = ended(Reply(BODY, read_usage=searched))
    request.parts = [ReplyPart("turn"), ReplyPart("tool"), ReplyPart("turn"), ReplyPart("tool")]
    found = record(request)
    assert (found.searches, found.tool_calls) == (2, 2)
    again = ended(Reply(BODY, read_usage=searched))
    again.cached = True
    assert record(again).searches is None
    assert record(ended(Reply(BODY, read_usage=counted(7, 5)))).searches is None


def test_a_stream_has_a_first_content() -> None:
    found = record(ended(Reply(stream(), read_usage=counted(7, 5)), streams=True))
    assert (found.stream, found.first_content) == (1, 1.0)


def test_what_other_targets_took_is_no_overhead_of_its_own() -> None:
    found = record(ended(Reply(BODY, read_usage=counted(7, 5)), failures=1))
    assert found.attempts == 2
    assert found.overhead == 0.25 + 0.125


def test_a_stream_that_was_cut_is_estimated() -> None:
    request = ended(Reply(stream(), read_usage=lambda: None), streams=True, complete=False)
    request.cancelled = True
    found = record(request)
    assert (found.input_tokens, found.output_tokens, found.estimated) == (10, 1, 1)
    assert (found.cancelled, found.cost) == (1, 20_000)


def test_a_whole_reply_is_paid_for_whether_the_client_got_it_or_not() -> None:
    found = record(ended(Reply(BODY, read_usage=counted(7, 5)), complete=False))
    assert (found.input_tokens, found.output_tokens, found.estimated) == (7, 5, 0)


def test_embeddings_say_nothing() -> None:
    found = record(ended(Reply(BODY, read_usage=counted(7, 0)), operation=EMBEDDINGS))
    assert (found.input_tokens, found.output_tokens, found.estimated) == (7, 0, 0)
    found = record(ended(Reply(BODY), operation=EMBEDDINGS))
    assert (found.output_tokens, found.estimated) == (0, 1)


def test_a_request_that_nobody_answered() -> None:
    request = ended(failures=2)
    request.error, request.status = upstream_error("up", "broke\x00"), 502
    found = record(request)
    assert (found.status, found.error) == (502, "server_error")
    assert found.message == "Provider 'up': broke\\x00"
    assert (found.target, found.attempts) == ("up/gpt", 2)
    assert (found.input_tokens, found.cost, found.overhead) == (None, None, None)
    assert found.finish_reason == ""


def test_a_request_that_went_nowhere() -> None:
    request = Request(CHAT, "req")
    request.error, request.status = model_not_found("x"), 404
    request.model = "x\n" * 1000
    found = record(request)
    assert (found.key, found.route, found.provider, found.attempts) == ("", "", "", 0)
    assert found.model == "x\\n" * (MAX_MODEL // 2)
    assert found.error == "not_found"


def test_a_client_that_left_before_there_was_a_status() -> None:
    request = ended()
    request.cancelled = True
    assert record(request).status == CLIENT_LEFT


def test_what_was_spent_is_the_same_from_then_on() -> None:
    counts = iter([Usage(7, 5), Usage(70, 50)])
    request = ended(Reply(BODY, read_usage=lambda: next(counts)))
    spent = LEDGER.spent(request)
    assert (spent.usage, LEDGER.cost(request)) == (Usage(7, 5), 57_000)
    assert LEDGER.spent(request) is spent
    found = record(request)
    assert (found.input_tokens, found.output_tokens, found.cost) == (7, 5, 57_000)


def test_a_reply_that_another_had_asked_for_costs_nothing() -> None:
    request = ended(Reply(BODY, read_usage=lambda: Usage(1000, 100)))
    request.attempts, request.cached = Attempts(), True
    record = LEDGER.record(request)
    assert (record.cost, record.provider, record.attempts) == (0, CACHE, 0)
    assert (record.input_tokens, record.output_tokens, record.estimated) == (1000, 100, 0)
    assert record.finish_reason == "stop"
