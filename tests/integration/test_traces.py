"""Spans of requests and of attempts, as a receiver of OTLP gets them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.proto")

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.integration import wire
from tests.integration.relay import MESSAGES
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import ServerProcess, running, write_template
from tests.otlp_receiver import OTLPReceiver, attributes

pytestmark = pytest.mark.ours

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}


def template(folder: Path, upstream: ScriptedUpstream, **traces: Any) -> Path:
    return write_template(
        folder / "traces.yaml",
        server={"traces": traces},
        providers=[
            {"id": "up", "type": "remote::openai", "config": {"base_url": upstream.url}},
            {"id": "echo", "type": "local::echo"},
        ],
        models=[
            {"id": "plain", "provider": "up", "price": {"input": 1, "output": 10}},
            {"id": "status-400", "provider": "up"},
            {"id": "echo", "provider": "echo"},
            {
                "id": "safe",
                "targets": [
                    {"provider": "up", "model": "status-500"},
                    {"provider": "echo", "model": "echo", "priority": 1},
                ],
                "routing": {"retries": {"same_target": 0}, "cooldown": {"failures": 1000}},
            },
        ],
    )


@pytest.fixture(scope="module")
def receiver() -> Iterator[OTLPReceiver]:
    with OTLPReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def server(
    receiver: OTLPReceiver, upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    path = template(
        tmp_path_factory.mktemp("traces"),
        upstream,
        endpoint=receiver.url,
        headers={"x-receiver-key": "secret"},
        service_name="a gateway",
    )
    with running(path) as process:
        yield process


def ask(
    server: ServerProcess, model: str, headers: dict[str, str] | None = None, **members: Any
) -> str:
    """Ask for something; the request's id."""
    request_id = f"trace-{uuid.uuid4().hex}"
    body = {"model": model, "messages": MESSAGES, **members}
    url = f"{server.url}/v1/chat/completions"
    wire.request("POST", url, body, {"x-request-id": request_id, **(headers or {})})
    return request_id


def test_a_request_and_its_attempt(
    server: ServerProcess, receiver: OTLPReceiver, upstream: ScriptedUpstream
) -> None:
    request_id = ask(server, "plain", stream=True)
    request, attempt = receiver.spans(request_id)
    assert (request.name, request.kind) == ("chat plain", Span.SPAN_KIND_SERVER)
    assert (attempt.name, attempt.kind) == ("chat plain", Span.SPAN_KIND_CLIENT)
    assert request.parent_span_id == b""
    assert attempt.parent_span_id == request.span_id
    assert request.start_time_unix_nano <= attempt.start_time_unix_nano
    assert attempt.start_time_unix_nano < attempt.end_time_unix_nano
    assert attempt.end_time_unix_nano <= request.end_time_unix_nano + 50_000_000
    values = attributes(request)
    assert values.pop("gen_ai.response.time_to_first_chunk") > 0
    assert values == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "plain",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "plain",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "http.response.status_code": 200,
        "llama_compat.request_id": request_id,
        "llama_compat.key": "anybody",
        "llama_compat.api": "openai",
        "llama_compat.target": "up/plain",
        "llama_compat.attempts": 1,
        "llama_compat.cost_usd": 57e-6,
    }
    assert attributes(attempt)["llama_compat.attempt.outcome"] == "answered"
    # What the vendor got says that it is part of the attempt.
    sent = upstream.request(request_id)
    expected = f"00-{request.trace_id.hex()}-{attempt.span_id.hex()}-01"
    assert sent.header("traceparent") == expected
    assert sent.header("tracestate") is None


def test_a_request_within_a_trace(
    server: ServerProcess, receiver: OTLPReceiver, upstream: ScriptedUpstream
) -> None:
    request_id = ask(server, "plain", PARENT)
    request, attempt = receiver.spans(request_id)
    assert request.trace_id.hex() == attempt.trace_id.hex() == TRACE
    assert request.parent_span_id.hex() == SPAN
    assert request.trace_state == "vendor=1"
    sent = upstream.request(request_id)
    assert sent.header("traceparent") == f"00-{TRACE}-{attempt.span_id.hex()}-01"
    assert sent.header("tracestate") == "vendor=1"


def test_who_is_not_to_be_traced_is_not(
    server: ServerProcess, receiver: OTLPReceiver, upstream: ScriptedUpstream
) -> None:
    quiet = f"00-{'a' * 32}-{SPAN}-00"
    request_id = ask(server, "plain", {"traceparent": quiet})
    assert (
        upstream.request(request_id)
        .header(
            "traceparent",
        )
        .startswith(f"00-{'a' * 32}-")
    )  # type: ignore[union-attr]
    receiver.spans(ask(server, "plain"))
    assert not [span for span in receiver._spans if span.trace_id.hex() == "a" * 32]


def test_another_client_api(
    server: ServerProcess, receiver: OTLPReceiver, upstream: ScriptedUpstream
) -> None:
    """Where the call is translated, the vendor is told of the trace too."""
    request_id = f"trace-{uuid.uuid4().hex}"
    body = {"model": "plain", "messages": MESSAGES, "max_tokens": 10}
    wire.request("POST", f"{server.url}/v1/messages", body, {"x-request-id": request_id})
    _, attempt = receiver.spans(request_id)
    sent = upstream.request(request_id).header("traceparent")
    assert sent is not None
    assert attempt.span_id.hex() in sent


def test_each_attempt_is_a_span(server: ServerProcess, receiver: OTLPReceiver) -> None:
    request, *attempts = receiver.spans(ask(server, "safe"))
    assert attributes(request)["llama_compat.attempts"] == 2
    assert request.status.code == Status.STATUS_CODE_UNSET
    failed, answered = sorted(attempts, key=lambda span: span.start_time_unix_nano)
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert attributes(failed)["error.type"] == "server_error"
    assert attributes(answered)["llama_compat.attempt.why"] == "fallback"
    assert answered.kind == Span.SPAN_KIND_INTERNAL
    assert {failed.parent_span_id, answered.parent_span_id} == {request.span_id}


def test_a_request_that_fails(server: ServerProcess, receiver: OTLPReceiver) -> None:
    request, _ = receiver.spans(ask(server, "status-400"))
    assert request.status.code == Status.STATUS_CODE_ERROR
    assert request.status.message
    assert attributes(request)["error.type"] == "bad_request"
    (alone,) = receiver.spans(ask(server, "no-such-model"))
    assert alone.name == "chat"
    assert attributes(alone)["http.response.status_code"] == 404


def test_the_receiver_learns_who_sends(server: ServerProcess, receiver: OTLPReceiver) -> None:
    receiver.spans(ask(server, "echo"))
    assert receiver.resources[-1]["service.name"] == "a gateway"
    assert receiver.headers["x-receiver-key"] == "secret"


def test_nothing_that_was_said_is_in_a_span(server: ServerProcess, receiver: OTLPReceiver) -> None:
    messages = [{"role": "user", "content": "a secret"}]
    for span in receiver.spans(ask(server, "echo", messages=messages)):
        assert "a secret" not in str(span)


def test_what_was_said_is_there_where_the_template_wants_it(
    receiver: OTLPReceiver, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    with running(template(tmp_path, upstream, endpoint=receiver.url, content=True)) as server:
        values = attributes(receiver.spans(ask(server, "echo", stream=True))[0])
    part = {"type": "text", "content": MESSAGES[0]["content"]}
    assert json.loads(values["gen_ai.input.messages"]) == [{"role": "user", "parts": [part]}]
    said = {"role": "assistant", "parts": [part], "finish_reason": "stop"}
    assert json.loads(values["gen_ai.output.messages"]) == [said]


def test_a_receiver_that_is_away_costs_no_request(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    with OTLPReceiver() as receiver:
        pass
    with running(template(tmp_path, upstream, endpoint=receiver.url, queue=2)) as server:
        for _ in range(5):
            ask(server, "echo")
        server.wait_for_log("traces of requests were dropped")
        assert server.health()["status"] == "ok"


def test_what_a_receiver_is_too_busy_for_comes_again(
    receiver: OTLPReceiver, server: ServerProcess
) -> None:
    receiver.statuses.append(503)
    receiver.spans(ask(server, "echo"))
    assert receiver.statuses == []
