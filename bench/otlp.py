"""What a request's spans cost, by the sender of our own and by OpenTelemetry's SDK.

    python -m bench.otlp [--rounds 5] [--requests 20000]

A request has two spans, its own and one for its attempt, with the same names, times and attributes
either way. Counted is the processor time of a process from the first span to the moment at which a
receiver on loopback has all of them: ids, `traceparent`, attributes, queue, encoding, HTTP, every
thread. What a request was (its record, its attempts) is there before. The ways take turns, each in
a process of its own, and the median counts. The receiver, a process of its own too, takes what came
for OpenTelemetry's messages, and the run fails unless every span is there.

The SDK is installed into `bench/.peers` with pip, and told to queue as much as it is given, so that
it drops nothing; all else is its default. Prints the figures and writes them to
`bench/results/otlp.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

from bench.load.others import CACHE
from bench.machine import write_results

SDK = ("opentelemetry-sdk==1.45.2", "opentelemetry-exporter-otlp-proto-http==1.45.2")

NOON = 1_790_000_000.0
BATCH = 64
"""So many requests that ended at about the same time and agree are told of together under load."""


# --------------------------------------------------------------------------------------------------
# The receiver
# --------------------------------------------------------------------------------------------------


def receive() -> None:
    """Take spans until the process is ended; `GET /` says how many came since the last time."""
    bodies: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            bodies.append((self.headers["content-type"], body))
            self._answer(b"")

        def do_GET(self) -> None:
            size = sum(len(body) for _, body in bodies)
            # Protobuf's reading of JSON takes a while: it sees one message of a run.
            spans = sum(spans_in(*each, checked=not at) for at, each in enumerate(bodies))
            bodies.clear()
            self._answer(json.dumps({"spans": spans, "bytes": size}).encode())

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    # One that has connected and says nothing holds up nobody else for long.
    Handler.timeout = 1
    print(server.server_port, flush=True)
    server.serve_forever()


def spans_in(content_type: str, body: bytes, *, checked: bool) -> int:
    """How many spans a message holds; with `checked` it has to be one by OpenTelemetry's words."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest()
    if content_type == "application/json":
        told = json.loads(body)
        if not checked:
            return sum(1 for _ in _spans(told))
        for span in _spans(told):
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in span:
                    # OTLP's JSON has ids in hexadecimal, protobuf's own has all bytes in base64.
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        ParseDict(told, message)
    else:
        message.ParseFromString(body)
    scopes = [scope for resource in message.resource_spans for scope in resource.scope_spans]
    return sum(len(scope.spans) for scope in scopes)


def _spans(told: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in told["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


@contextmanager
def receiver() -> Iterator[str]:
    """Its URL, while it runs."""
    command = [sys.executable, "-m", "bench.otlp", "--receive"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


# --------------------------------------------------------------------------------------------------
# The ways: the processor time of so many requests' spans
# --------------------------------------------------------------------------------------------------


def request_ids(count: int) -> list[str]:
    return [f"{index:032x}" for index in range(count)]


def by_our_own(url: str, count: int, batch: int = BATCH) -> float:
    """Seconds of processor time, with `batch` requests told of together."""
    import uvloop

    from llama_compat.dialects.openai.operations import CHAT
    from llama_compat.distribution import (
        Distribution,
        ModelSettings,
        ProviderSettings,
        TracesSettings,
    )
    from routing.observability.observers import Batch
    from routing.observability.records.record import Record
    from routing.observability.telemetry.tracer import Tracer
    from routing.policy.attempts import Attempt, Attempts, Why
    from routing.policy.targets import ProviderState
    from routing.request import Request

    provider = ProviderSettings(id="up", type="remote::openai", config={})
    model = ModelSettings(id="m", provider="up", provider_model="gpt")
    distribution = Distribution(providers=[provider], models=[model])
    target = ProviderState("up").target("gpt")

    def ended(request_id: str) -> tuple[Record, Request, Attempt]:
        attempt = Attempt(target, Why.first, stream=True, clock=lambda: 100.5)
        attempt.content, attempt.ended = 100.75, 101.0
        record = Record(
            time=NOON,
            request_id=request_id,
            key="key-1",
            api="openai",
            operation="chat",
            route="m",
            model="m",
            served="gpt",
            provider="up",
            target="up/gpt",
            attempts=1,
            status=200,
            stream=1,
            finish_reason="stop",
            input_tokens=100,
            output_tokens=10,
            first_content=0.25,
            duration=0.5,
            cost=1000,
        )
        return record, Request(CHAT, request_id, None, Attempts()), attempt

    async def send() -> float:
        tracer = Tracer(distribution, TracesSettings(endpoint=url, queue=count))
        requests = [ended(each) for each in request_ids(count)]
        await tracer.start()
        begun = time.process_time()
        for at in range(0, count, batch):
            some = requests[at : at + batch]
            traces = []
            for _, request, _ in some:
                trace = tracer._trace(request)
                trace.attempt_begins()
                traces.append(trace)
            records, attempts = [each[0] for each in some], [[each[2]] for each in some]
            tracer.ended(Batch("chat", records, attempts, traces))
            await asyncio.sleep(0)
        while tracer._sender._spans:  # noqa: ASYNC110 (nobody tells when it is empty)
            await asyncio.sleep(0.01)
        await tracer.stop()
        return time.process_time() - begun

    return uvloop.run(send())


def by_sdk(url: str, count: int) -> float:
    """Seconds of processor time."""
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import SpanKind, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    provider = TracerProvider(resource=Resource({"service.name": "llama-compat"}))
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=2 * count + 512))
    tracer = provider.get_tracer("llama_compat", "0.1.0")
    propagator, nowhere, noon = TraceContextTextMapPropagator(), Context(), int(NOON * 1e9)
    ids = request_ids(count)
    begun = time.process_time()
    for request_id in ids:
        span = tracer.start_span(
            "chat m", context=nowhere, kind=SpanKind.SERVER, start_time=noon, attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "m",
                "gen_ai.request.stream": True,
            },
        )  # fmt: skip
        inside = set_span_in_context(span, nowhere)
        attempt = tracer.start_span(
            "chat gpt", context=inside, kind=SpanKind.CLIENT, start_time=noon, attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt",
                "llama_compat.target": "up/gpt",
                "llama_compat.attempt.why": "first",
            },
        )  # fmt: skip
        sent: dict[str, str] = {}
        propagator.inject(sent, set_span_in_context(attempt, inside))
        attempt.set_attributes({
            "llama_compat.attempt.outcome": "answered",
            "gen_ai.response.time_to_first_chunk": 0.25,
        })  # fmt: skip
        attempt.end(noon + 500_000_000)
        span.set_attributes({
            "gen_ai.response.model": "gpt",
            "gen_ai.response.finish_reasons": ("stop",),
            "http.response.status_code": 200,
            "llama_compat.key": "key-1",
            "llama_compat.api": "openai",
            "llama_compat.target": "up/gpt",
            "llama_compat.attempts": 1,
            "llama_compat.request_id": request_id,
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 10,
            "gen_ai.response.time_to_first_chunk": 0.25,
            "llama_compat.cost_usd": 1e-6,
        })  # fmt: skip
        span.end(noon + 500_000_000)
    assert provider.force_flush(120_000)
    provider.shutdown()
    return time.process_time() - begun


WAYS: dict[str, Callable[[str, int], float]] = {
    "own": by_our_own,
    "own, one request at a time": lambda url, count: by_our_own(url, count, batch=1),
    "sdk": by_sdk,
}


# --------------------------------------------------------------------------------------------------
# The run
# --------------------------------------------------------------------------------------------------


def sdk_folder() -> Path:
    """Where the SDK is; it is installed if it is not there."""
    folder = CACHE / SDK[0]
    if not (folder / "opentelemetry" / "sdk").is_dir():
        print(f"installing {' and '.join(SDK)} into {folder}", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(folder), *SDK], check=True)
    return folder


def measure(way: str, url: str, count: int) -> dict[str, float]:
    """One way, in a process of its own: its time for a request, and the bytes of one."""
    path = os.pathsep.join([str(sdk_folder()), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "bench.otlp", "--way", way, "--url", url]
    done = subprocess.run(
        [*command, "--requests", str(count)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    with urlopen(url) as answer:
        came = json.loads(answer.read())
    if came["spans"] != 2 * count:
        raise RuntimeError(f"{way}: {came['spans']} of {2 * count} spans came")
    return {"cpu_us": float(done.stdout) / count * 1e6, "bytes": came["bytes"] / count}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--receive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.receive:
        receive()
        return
    if options.way:
        print(WAYS[options.way](options.url, options.requests))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with receiver() as url:
        for _ in range(options.rounds):
            for way, rounds in found.items():
                rounds.append(measure(way, url, options.requests))
    spans: dict[str, Any] = {
        way: {
            "cpu_us_a_request": round(median(each["cpu_us"] for each in rounds), 1),
            "rounds": [round(each["cpu_us"], 1) for each in rounds],
            "bytes_a_request": round(median(each["bytes"] for each in rounds)),
        }
        for way, rounds in found.items()
    }
    of_sdk = spans["sdk"]["cpu_us_a_request"]
    for measured in spans.values():
        measured["of_the_sdk"] = round(measured["cpu_us_a_request"] / of_sdk, 3)
    print(f"{'':28}{'µs of CPU a request':>20}{'of the SDK':>12}{'bytes':>8}")
    for way, measured in spans.items():
        print(
            f"{way:28}{measured['cpu_us_a_request']:>20}{measured['of_the_sdk']:>12}"
            f"{measured['bytes_a_request']:>8}"
        )
    run = {"requests": options.requests, "spans_a_request": 2, "sdk": SDK, "ways": spans}
    packages = ("opentelemetry-api", "opentelemetry-proto", "protobuf", "msgspec", "uvloop")
    print(f"written to {write_results('otlp', run, *packages)}")


if __name__ == "__main__":
    main()
