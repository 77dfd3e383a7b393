"""Spans as they are written for a receiver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from llama_compat.dialects.openai.operations import CHAT
from llama_compat.distribution import Distribution, ModelSettings, ProviderSettings, TracesSettings
from llama_compat.errors import upstream_error
from llama_compat.exchange import Call
from llama_compat.wire.json_fields import parse_fields
from routing.observability.observers import Batch
from routing.observability.records.record import Record
from routing.observability.telemetry.context import Trace
from routing.observability.telemetry.tracer import Tracer
from routing.policy.attempts import Attempt, Attempts, Why
from routing.policy.targets import ProviderState
from routing.request import Request
from tests.unit.routing.observability.records.records import NOON, record

DISTRIBUTION = Distribution(
    providers=[
        ProviderSettings(id="up", type="remote::openai", config={}),
        ProviderSettings(id="own", type="local::echo"),
    ],
    models=[ModelSettings(id="m", provider="up", provider_model="gpt")],
)
TARGET = ProviderState("up").target("gpt")


class Sender:
    """Takes what would be sent."""

    def __init__(self) -> None:
        self.spans: list[list[dict[str, Any]]] = []

    def put(self, spans: Sequence[str]) -> None:
        self.spans += [json.loads(f"[{each}]") for each in spans]


def tracer(**settings: Any) -> tuple[Tracer, Sender]:
    found = Tracer(DISTRIBUTION, TracesSettings(endpoint="http://127.0.0.1:1", **settings))
    sender = found._sender = Sender()  # type: ignore[assignment]
    return found, sender


def begun(tracer: Tracer, *headers: tuple[bytes, bytes]) -> Request:
    seen = Request(CHAT, "req", None, Attempts(headers))
    tracer._trace(seen)
    return seen


def attempt(
    seen: Request, begun: float, *, target: Any = TARGET, why: Why = Why.first, **more: Any
) -> Attempt:
    made = Attempt(target, why, clock=lambda: begun, **more)
    seen.attempts.add(made)
    trace_of(seen).attempt_begins()
    return made


def spans(record: Record, seen: Request, tracer: Tracer, sender: Sender) -> list[dict[str, Any]]:
    """Those of one request: its own, and its attempts'."""
    tracer.ended(Batch("chat", [record], [seen.attempts.made], [seen.trace]))
    (found,) = sender.spans
    return found


def values(span: dict[str, Any]) -> dict[str, Any]:
    """A span's attributes: OTLP's kind of value, and the value."""
    return {each["key"]: next(iter(each["value"].items())) for each in span["attributes"]}


def trace_of(seen: Request) -> Trace:
    assert seen.trace is not None
    return seen.trace


def test_a_request_and_its_attempt() -> None:
    own, sender = tracer()
    seen = begun(own)
    made = attempt(seen, 100.5)
    made.content, made.ended = 100.75, 101.0
    request, tried = spans(record(duration=0.25, request_id='r"1'), seen, own, sender)
    trace = trace_of(seen)
    assert (request["traceId"], request["spanId"]) == (trace.trace_id, trace.span_id)
    assert (tried["traceId"], tried["spanId"]) == (trace.trace_id, trace.attempts[0])
    assert tried["parentSpanId"] == trace.span_id
    assert "parentSpanId" not in request
    assert "traceState" not in request
    assert (request["name"], request["kind"], request["flags"]) == ("chat m", 2, 1)
    assert (tried["name"], tried["kind"]) == ("chat gpt", 3)
    assert request["startTimeUnixNano"] == str(int(NOON) * 10**9)
    assert request["endTimeUnixNano"] == str(int(NOON) * 10**9 + 250_000_000)
    took = int(tried["endTimeUnixNano"]) - int(tried["startTimeUnixNano"])
    assert took == 500_000_000
    assert "status" not in request
    assert "status" not in tried
    assert values(request) == {
        "gen_ai.operation.name": ("stringValue", "chat"),
        "gen_ai.provider.name": ("stringValue", "openai"),
        "gen_ai.request.model": ("stringValue", "m"),
        "gen_ai.response.model": ("stringValue", "gpt"),
        "gen_ai.response.finish_reasons": ("arrayValue", {"values": [{"stringValue": "stop"}]}),
        "http.response.status_code": ("intValue", "200"),
        "llama_compat.key": ("stringValue", "key-1"),
        "llama_compat.api": ("stringValue", "openai"),
        "llama_compat.target": ("stringValue", "up/gpt"),
        "llama_compat.attempts": ("intValue", "1"),
        "llama_compat.request_id": ("stringValue", 'r"1'),
        "gen_ai.usage.input_tokens": ("intValue", "100"),
        "gen_ai.usage.output_tokens": ("intValue", "10"),
        "llama_compat.cost_usd": ("doubleValue", 1e-6),
    }
    assert values(tried) == {
        "gen_ai.operation.name": ("stringValue", "chat"),
        "gen_ai.provider.name": ("stringValue", "openai"),
        "gen_ai.request.model": ("stringValue", "gpt"),
        "llama_compat.target": ("stringValue", "up/gpt"),
        "llama_compat.attempt.why": ("stringValue", "first"),
        "llama_compat.attempt.outcome": ("stringValue", "running"),
    }


TRAIL = json.dumps(
    [
        {"target": "", "why": "turn", "outcome": "answered", "begun": 0.1, "ended": 0.5,
         "input_tokens": 7, "output_tokens": 3},
        {"target": "their_name", "why": "tool", "outcome": "answered", "begun": 0.5, "ended": 0.75,
         "tool": "mcp"},
        {"target": "their_name", "why": "tool", "outcome": "failed", "begun": 0.75, "ended": 1.75,
         "tool": "mcp", "error": "unavailable"},
    ]
)  # fmt: skip
"""What is kept of a reply in which the server ran a tool twice."""


def test_turns_and_tools_of_a_reply_are_spans_of_their_own() -> None:
    own, sender = tracer()
    seen = begun(own)
    attempt(seen, 100.5)
    found = spans(record(duration=2.0, trail=TRAIL), seen, own, sender)
    request, _, turn, tool, failed = found
    assert {each["parentSpanId"] for each in found[1:]} == {request["spanId"]}
    assert len({each["spanId"] for each in found}) == 5
    assert {each["traceId"] for each in found} == {request["traceId"]}
    assert (turn["name"], tool["name"]) == ("chat gpt", "execute_tool their_name")
    begins = int(request["startTimeUnixNano"])
    assert int(tool["startTimeUnixNano"]) - begins == 500_000_000
    assert int(tool["endTimeUnixNano"]) - begins == 750_000_000
    assert values(turn) == {
        "gen_ai.operation.name": ("stringValue", "chat"),
        "gen_ai.request.model": ("stringValue", "gpt"),
        "gen_ai.usage.input_tokens": ("intValue", "7"),
        "gen_ai.usage.output_tokens": ("intValue", "3"),
    }
    assert values(tool) == {
        "gen_ai.operation.name": ("stringValue", "execute_tool"),
        "gen_ai.tool.name": ("stringValue", "their_name"),
    }
    assert values(failed)["error.type"] == ("stringValue", "unavailable")
    assert failed["status"] == {"code": 2, "message": "unavailable"}


def test_what_is_not_known_is_left_out_and_the_rest_is_there() -> None:
    own, sender = tracer()
    known = record(
        input_tokens=None,
        output_tokens=None,
        cached_tokens=3,
        cache_write_tokens=2,
        reasoning_tokens=1,
        cost=None,
        first_content=0.125,
        stream=1,
        estimated=1,
        cancelled=1,
        guardrails="pii:redact",
        route="",
        key="",
    )
    request, *_ = spans(known, begun(own), own, sender)
    found = values(request)
    assert request["name"] == "chat"
    assert found["gen_ai.usage.cache_read.input_tokens"] == ("intValue", "3")
    assert found["gen_ai.usage.cache_creation.input_tokens"] == ("intValue", "2")
    assert found["gen_ai.usage.reasoning.output_tokens"] == ("intValue", "1")
    assert found["gen_ai.response.time_to_first_chunk"] == ("doubleValue", 0.125)
    assert found["gen_ai.request.stream"] == ("boolValue", True)
    assert found["llama_compat.estimated"] == ("boolValue", True)
    assert found["llama_compat.cancelled"] == ("boolValue", True)
    assert found["llama_compat.guardrails"] == ("stringValue", "pii:redact")
    for name in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
        assert name not in found
    assert "llama_compat.cost_usd" not in found
    assert "llama_compat.key" not in found


def test_attempts_that_failed_and_another_target() -> None:
    own, sender = tracer()
    seen = begun(own)
    attempt(seen, 100.0).fail(upstream_error("up", 'said "no"'))
    local = attempt(
        seen, 101.0, target=ProviderState("own").target("tiny"), why=Why.fallback, stream=True
    )
    local.content, local.ended, local.loading = 101.5, 102.0, 0.25
    failed_too = record(error="server_error", message="all\n", status=502)
    request, first, second = spans(failed_too, seen, own, sender)
    assert request["status"] == {"code": 2, "message": "all\n"}
    assert first["status"] == {"code": 2, "message": "Provider 'up': said \"no\""}
    assert values(first)["error.type"] == ("stringValue", "server_error")
    assert values(first)["llama_compat.attempt.outcome"] == ("stringValue", "failed")
    assert "status" not in second
    assert second["kind"] == 1
    assert values(second)["llama_compat.attempt.why"] == ("stringValue", "fallback")
    assert values(second)["gen_ai.response.time_to_first_chunk"] == ("doubleValue", 0.5)
    assert values(second)["llama_compat.attempt.loading_seconds"] == ("doubleValue", 0.25)
    assert len({request["spanId"], first["spanId"], second["spanId"]}) == 3


def test_one_that_never_ended_has_taken_no_time() -> None:
    own, sender = tracer()
    seen = begun(own)
    attempt(seen, 100.0)
    _, tried = spans(record(), seen, own, sender)
    assert tried["startTimeUnixNano"] == tried["endTimeUnixNano"]


def test_a_request_within_a_trace() -> None:
    own, sender = tracer()
    parent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    seen = begun(own, (b"traceparent", parent), (b"tracestate", b'a="1"'))
    attempt(seen, 100.0)
    request, tried = spans(record(), seen, own, sender)
    assert request["parentSpanId"] == "00f067aa0ba902b7"
    assert request["traceState"] == tried["traceState"] == 'a="1"'
    assert request["traceId"] == tried["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_what_is_not_sampled_is_not_sent() -> None:
    own, sender = tracer(sample=0.0)
    seen = begun(own)
    own.ended(Batch("chat", [record(), record()], [[], []], [seen.trace, None]))
    assert sender.spans == []


@pytest.mark.parametrize("content", [False, True])
def test_content_is_kept_where_it_is_asked_for(content: bool) -> None:
    own, _ = tracer(content=content)
    seen = Request(CHAT, "req")
    fields = parse_fields(b'{"messages": [{"role": "user", "content": "Hi"}]}')
    seen.call = Call(CHAT, fields, "m", False, "req")
    own.closing(seen, record())
    assert ("Hi" in trace_of(seen).content) is content
    assert (own.sample_bytes > 0) is content


def test_what_was_never_tried_has_a_span_all_the_same() -> None:
    own, sender = tracer()
    seen = Request(CHAT, "req")
    own.closing(seen, record())
    (request,) = spans(record(), seen, own, sender)
    assert request["spanId"] == trace_of(seen).span_id
