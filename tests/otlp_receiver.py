"""A receiver of OTLP over HTTP: a real server, which takes what it gets for OpenTelemetry's own
messages and refuses what is none."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

WAIT_SECONDS = 30


class OTLPReceiver:
    """Receives spans while it is entered.

    Attributes:
        statuses: what the next requests are answered with; 200 when there are none.
        headers: those of the last request.
        resources: the attributes of the resources that told of spans.
    """

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self.resources: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self._spans: list[Span] = []
        self._arrived = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = receiver._receive(self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> OTLPReceiver:
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def spans(self, request_id: str) -> list[Span]:
        """The spans of the trace of a request, the request's own first, waited for."""
        deadline = time.monotonic() + WAIT_SECONDS
        with self._arrived:
            while True:
                own = [s for s in self._spans if attributes(s).get(_REQUEST_ID) == request_id]
                if own:
                    trace = [s for s in self._spans if s.trace_id == own[0].trace_id]
                    return sorted(trace, key=lambda span: span is not own[0])
                assert not self.problems, self.problems
                assert self._arrived.wait(deadline - time.monotonic()), "no span came"

    def _receive(self, path: str, headers: dict[str, str], body: bytes) -> int:
        with self._arrived:
            self.headers = {name.lower(): value for name, value in headers.items()}
            if self.statuses:
                return self.statuses.pop(0)
            try:
                assert path == "/v1/traces", path
                assert self.headers["content-type"] == "application/json"
                message = ParseDict(_with_binary_ids(json.loads(body)), ExportTraceServiceRequest())
            except (AssertionError, ParseError, ValueError) as error:
                self.problems.append(repr(error))
                self._arrived.notify_all()
                return 400
            for resource in message.resource_spans:
                self.resources.append(_values(resource.resource.attributes))
                for scope in resource.scope_spans:
                    self._spans += scope.spans
            self._arrived.notify_all()
            return 200


_REQUEST_ID = "llama_compat.request_id"


def attributes(span: Span) -> dict[str, Any]:
    """A span's attributes as Python's values."""
    return _values(span.attributes)


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


def _with_binary_ids(request: dict[str, Any]) -> dict[str, Any]:
    # OTLP's JSON has ids in hexadecimal, protobuf's own has all bytes in base64.
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return request
