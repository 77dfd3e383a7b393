"""A span of every request, and a child of it for every attempt at a target."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from llama_compat.error_classes import ErrorClass
from routing.observability.observers import Batch
from routing.observability.records.record import Record
from routing.observability.records.trail import parts_of
from routing.observability.telemetry import semconv
from routing.observability.telemetry.content import input_messages, output_messages
from routing.observability.telemetry.context import Trace, random_ids, trace_of
from routing.observability.telemetry.otlp import SpanSender, attributes, text
from routing.policy.attempts import Attempt
from routing.request import Request

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution, TracesSettings
    from llama_compat.exchange import Reply, Target
    from providers.base import Provider
    from routing.layers.policy import Ask

CONTENT_BYTES = 64 * 1024
"""So much of an answer is looked at where spans have what was said."""

Values = tuple[tuple[str, Any], ...]
"""Attributes by name; those that are None are left out."""

NANO = 1_000_000_000

INTERNAL, SERVER, CLIENT = 1, 2, 3
"""OTLP's kinds of spans."""

MOST_KINDS = 1024
"""Of so many kinds of attempts what their spans have in common is kept."""

FAILED = 2
"""OTLP's status of a span that failed."""


class Tracer:
    """Traces the requests of one runtime, from `start` to `stop`.

    Args:
        distribution: what is served.
        settings: how.
    """

    def __init__(self, distribution: Distribution, settings: TracesSettings) -> None:
        self.sample_bytes = CONTENT_BYTES if settings.content else 0
        self._sample = settings.sample
        self._ids = random_ids()
        self._names = {each.id: semconv.provider_name(each.type) for each in distribution.providers}
        self._local = {
            each.id for each in distribution.providers if each.type.startswith("local::")
        }
        self._sender = SpanSender(settings)
        self._attempts: dict[tuple[Any, ...], tuple[str, str]] = {}
        self._with_content = settings.content

    async def start(self) -> None:
        """Begin to send."""
        await self._sender.start()

    async def stop(self) -> None:
        """Send what is left."""
        await self._sender.stop()

    def around_attempts(self, ask: Ask) -> Ask:
        """`ask`, whose target is told which trace it is part of."""

        def traced(request: Request, provider: Provider, target: Target) -> Awaitable[Reply]:
            self._trace(request).attempt_begins()
            return ask(request, provider, target)

        return traced

    def _trace(self, request: Request) -> Trace:
        """The request's part in a trace, made when it is first asked for."""
        if request.trace is None:
            headers = request.attempts.headers
            request.trace = trace_of(headers, self._sample, next(self._ids))
        return request.trace

    def closing(self, request: Request, record: Record) -> None:
        """One has ended: what was said is kept, if that is wanted."""
        trace, call = self._trace(request), request.call
        if not self._with_content or call is None or not trace.sampled:
            return
        said = None
        if request.reply is not None:
            head, streamed = request.sample.head, bool(record.stream)
            said = output_messages(head, record.finish_reason, streamed=streamed)
        asked = input_messages(call.fields)
        trace.content = "," + attributes(
            ((semconv.INPUT_MESSAGES, asked), (semconv.OUTPUT_MESSAGES, said))
        )

    def ended(self, batch: Batch) -> None:
        """Some have been answered, as well as could be."""
        operation, first = semconv.OPERATIONS[batch.kind], batch.records[0]
        head = _head(f"{operation} {first.route}".rstrip(), SERVER)
        constant = attributes(self._of_its_kind(operation, first))
        # Times on the clock of `time.monotonic`, put on the calendar.
        shift = int((time.time() - time.monotonic()) * NANO)
        spans = []
        for record, attempts, trace in zip(
            batch.records, batch.attempts, batch.traces, strict=True
        ):
            if trace is None or not trace.sampled:
                continue
            same, begun = f'{{"traceId":"{trace.trace_id}","spanId":"', int(record.time * NANO)
            more = f',"traceState":{text(trace.state)}' if trace.state else ""
            parent = f',"parentSpanId":"{trace.parent_id}"' if trace.parent_id else ""
            status = _status(record.message) if record.error else ""
            told = (
                f'{same}{trace.span_id}"{parent}{more}{head}{begun}",'
                f'"endTimeUnixNano":"{begun + int(record.duration * NANO)}",'
                f'"attributes":[{constant}{_of_request(record)}{trace.content}]{status}}}'
            )
            more += f',"parentSpanId":"{trace.span_id}"'
            for attempt, span_id in zip(attempts, trace.attempts, strict=False):
                told += f',{same}{span_id}"{more}{self._attempt(attempt, operation, shift)}'
            if record.trail:
                told += self._parts(record, f'{same}%s"{more}', operation, begun)
            spans.append(told)
        self._sender.put(spans)

    def _parts(self, record: Record, same: str, operation: str, begun: int) -> str:
        """The spans of a reply's turns and of the tools that were run between them.

        Args:
            record: of the request.
            same: what each begins with, but for its id.
            operation: of the request.
            begun: when it came, in nanoseconds since 1970.
        """
        told = ""
        for step in parts_of(record.trail):
            is_tool = step.why == "tool"
            named = semconv.EXECUTE_TOOL if is_tool else operation
            name = step.target if is_tool else record.served
            values = attributes(
                (
                    (semconv.OPERATION, named),
                    (semconv.TOOL_NAME, step.target if is_tool else None),
                    (semconv.REQUEST_MODEL, None if is_tool else record.served or None),
                    (semconv.INPUT_TOKENS, step.input_tokens),
                    (semconv.OUTPUT_TOKENS, step.output_tokens),
                    (semconv.ERROR_TYPE, step.error or None),
                )
            )
            told += (
                f",{same % next(self._ids)[-16:]}{_head(f'{named} {name}'.rstrip(), INTERNAL)}"
                f'{begun + int(step.begun * NANO)}",'
                f'"endTimeUnixNano":"{begun + int(step.ended * NANO)}","attributes":[{values}]'
                f"{_status(step.error) if step.error else ''}}}"
            )
        return told

    def _attempt(self, attempt: Attempt, operation: str, shift: int) -> str:
        """The rest of an attempt's span, after what says whose it is."""
        key = operation, *_kind_of_attempt(attempt)
        head, constant = self._attempts.get(key) or self._of_attempts(*key)
        begun, ended = attempt.begun, attempt.ended or attempt.begun
        own = ""
        if attempt.stream and attempt.content:
            own = f"{_FIRST_CHUNK}{attempt.content - begun!r}}}}}"
        if attempt.loading:
            own += f"{_LOADING}{attempt.loading!r}}}}}"
        status = _status(attempt.error) if attempt.error_class is not None else ""
        return (
            f'{head}{int(begun * NANO) + shift}",'
            f'"endTimeUnixNano":"{int(ended * NANO) + shift}","attributes":[{constant}{own}]'
            f"{status}}}"
        )

    def _of_its_kind(self, operation: str, record: Record) -> Values:
        return (
            (semconv.OPERATION, operation),
            (semconv.PROVIDER, self._names.get(record.provider)),
            (semconv.REQUEST_MODEL, record.model or None),
            (semconv.REQUEST_STREAM, True if record.stream else None),
            (semconv.RESPONSE_MODEL, record.served or None),
            (semconv.FINISH_REASONS, (record.finish_reason,) if record.finish_reason else None),
            (semconv.STATUS_CODE, record.status),
            (semconv.ERROR_TYPE, record.error or None),
            ("llama_compat.key", record.key or None),
            ("llama_compat.api", record.api),
            ("llama_compat.target", record.target or None),
            ("llama_compat.attempts", record.attempts),
            ("llama_compat.estimated", True if record.estimated else None),
            ("llama_compat.cancelled", True if record.cancelled else None),
            ("llama_compat.guardrails", record.guardrails or None),
        )

    def _of_attempts(
        self,
        operation: str,
        provider: str,
        target: str,
        model: str,
        why: str,
        outcome: str,
        error: ErrorClass | None,
    ) -> tuple[str, str]:
        """The head and the attributes of all attempts that agree in this."""
        if len(self._attempts) >= MOST_KINDS:
            self._attempts.clear()
        values: Values = (
            (semconv.OPERATION, operation),
            (semconv.PROVIDER, self._names.get(provider)),
            (semconv.REQUEST_MODEL, model),
            (semconv.ERROR_TYPE, None if error is None else error.value),
            ("llama_compat.target", target),
            ("llama_compat.attempt.why", why),
            ("llama_compat.attempt.outcome", outcome),
        )
        kind = INTERNAL if provider in self._local else CLIENT
        found = _head(f"{operation} {model}", kind), attributes(values)
        self._attempts[operation, provider, target, model, why, outcome, error] = found
        return found


_kind_of_attempt = attrgetter(
    "target.provider.id",
    "target.id",
    "target.model",
    "why._value_",
    "outcome._value_",
    "error_class",
)


def _head(name: str, kind: int) -> str:
    """What follows the ids, up to the time of the beginning."""
    return f',"name":{text(name)},"kind":{kind},"flags":1,"startTimeUnixNano":"'


def _status(message: str) -> str:
    return f',"status":{{"code":{FAILED},"message":{text(message)}}}'


def _of_request(record: Record) -> str:
    """What the span of each request has for itself, with a comma before each attribute."""
    told = f"{_REQUEST_ID}{text(record.request_id)}}}}}"
    if (tokens := record.input_tokens) is not None:
        told += f'{_INPUT}"{tokens}"}}}}'
    if (tokens := record.output_tokens) is not None:
        told += f'{_OUTPUT}"{tokens}"}}}}'
    if (tokens := record.cached_tokens) is not None:
        told += f'{_CACHED}"{tokens}"}}}}'
    if (tokens := record.cache_write_tokens) is not None:
        told += f'{_CACHE_WRITE}"{tokens}"}}}}'
    if (tokens := record.reasoning_tokens) is not None:
        told += f'{_REASONING}"{tokens}"}}}}'
    if record.first_content is not None:
        told += f"{_FIRST_CHUNK}{record.first_content!r}}}}}"
    if record.cost is not None:
        told += f"{_COST}{record.cost}e-9}}}}"  # it is in billionths
    return told


def _before(name: str, kind: str) -> str:
    """An attribute in OTLP's JSON up to its value, with a comma before it."""
    return f',{{"key":"{name}","value":{{"{kind}":'


# What is written for every request is put together once: to fill in a long format takes longer.
_REQUEST_ID = _before("llama_compat.request_id", "stringValue")
_INPUT = _before(semconv.INPUT_TOKENS, "intValue")
_OUTPUT = _before(semconv.OUTPUT_TOKENS, "intValue")
_CACHED = _before(semconv.CACHE_READ_TOKENS, "intValue")
_CACHE_WRITE = _before(semconv.CACHE_WRITE_TOKENS, "intValue")
_REASONING = _before(semconv.REASONING_TOKENS, "intValue")
_FIRST_CHUNK = _before(semconv.TIME_TO_FIRST_CHUNK, "doubleValue")
_LOADING = _before("llama_compat.attempt.loading_seconds", "doubleValue")
_COST = _before("llama_compat.cost_usd", "doubleValue")
