"""A span of every request, and a child of it for every attempt at a target."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from providers.remote.outgoing import OUTGOING
from routing.operations.observer import Observed
from routing.operations.records.prices import NANO_DOLLARS
from routing.operations.records.record import Record
from routing.operations.telemetry import semconv
from routing.operations.telemetry.content import input_messages, output_messages
from routing.operations.telemetry.context import TraceContext, context_of
from routing.operations.telemetry.otlp import (
    SpanSender,
    attributes,
    constant_attributes,
    text,
)
from routing.policy.attempts import Attempt

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution, TracesSettings

CONTENT_BYTES = 64 * 1024
"""So much of an answer is looked at where spans have what was said."""

Values = tuple[tuple[str, Any], ...]
"""Attributes by name; those that are None are left out."""

NANO = 1_000_000_000

INTERNAL, SERVER, CLIENT = 1, 2, 3
"""OTLP's kinds of spans."""

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
        self._settings = settings
        self._names = {each.id: semconv.provider_name(each.type) for each in distribution.providers}
        self._local = {
            each.id for each in distribution.providers if each.type.startswith("local::")
        }
        self._sender = SpanSender(settings)

    async def start(self) -> None:
        """Begin to send."""
        await self._sender.start()

    async def stop(self) -> None:
        """Send what is left."""
        await self._sender.stop()

    def begun(self, observed: Observed) -> None:
        """A request has come in: each attempt for it tells its target which trace it is part of."""
        context = context_of(observed.attempts.headers, self._settings.sample)
        trace = observed.trace = Trace(context)
        observed.attempts.on_attempt = trace.attempt_begins

    def ended(self, observed: Observed, record: Record) -> None:
        """It has been answered, as well as could be."""
        trace = observed.trace
        if trace is None or not trace.context.sampled:
            return
        content = self._content(observed, record) if self._settings.content else ()
        # Times on the clock of `time.monotonic`, put on the calendar.
        shift = record.time - observed.begun
        operation = semconv.OPERATIONS[observed.operation.kind]
        self._sender.put(partial(self._spans, trace, operation, record, shift, content))

    def _spans(
        self, trace: Trace, operation: str, record: Record, shift: float, content: Values
    ) -> Iterator[bytes]:
        yield _span(
            trace.context,
            f"{operation} {record.route}".rstrip(),
            SERVER,
            record.time,
            record.time + record.duration,
            constant_attributes(self._of_its_kind(operation, record)),
            attributes(chain(_of_request(record), content)),
            record.message if record.error else None,
        )
        for attempt, context in trace.attempts:
            target = attempt.target
            waited = attempt.content - attempt.begun if attempt.content and attempt.stream else None
            yield _span(
                context,
                f"{operation} {target.model}",
                INTERNAL if target.provider.id in self._local else CLIENT,
                attempt.begun + shift,
                (attempt.ended or attempt.begun) + shift,
                constant_attributes(self._of_attempt(operation, attempt)),
                attributes([(semconv.TIME_TO_FIRST_CHUNK, waited)]),
                None if attempt.error_class is None else attempt.error,
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
        )

    def _of_attempt(self, operation: str, attempt: Attempt) -> Values:
        target, error_class = attempt.target, attempt.error_class
        return (
            (semconv.OPERATION, operation),
            (semconv.PROVIDER, self._names.get(target.provider.id)),
            (semconv.REQUEST_MODEL, target.model),
            (semconv.ERROR_TYPE, None if error_class is None else error_class.value),
            ("llama_compat.target", target.id),
            ("llama_compat.attempt.why", attempt.why.value),
            ("llama_compat.attempt.outcome", attempt.outcome.value),
        )

    @staticmethod
    def _content(observed: Observed, record: Record) -> Values:
        if observed.call is None:
            return ()
        asked = (semconv.INPUT_MESSAGES, input_messages(observed.call.fields))
        if observed.reply is None:
            return (asked,)
        said = output_messages(
            observed.sample.head, record.finish_reason, streamed=bool(record.stream)
        )
        return asked, (semconv.OUTPUT_MESSAGES, said)


def _of_request(record: Record) -> Values:
    return (
        (semconv.TIME_TO_FIRST_CHUNK, record.first_content),
        (semconv.INPUT_TOKENS, record.input_tokens),
        (semconv.OUTPUT_TOKENS, record.output_tokens),
        (semconv.CACHE_READ_TOKENS, record.cached_tokens),
        (semconv.CACHE_WRITE_TOKENS, record.cache_write_tokens),
        (semconv.REASONING_TOKENS, record.reasoning_tokens),
        ("llama_compat.request_id", record.request_id),
        ("llama_compat.cost_usd", None if record.cost is None else record.cost / NANO_DOLLARS),
    )


class Trace:
    """The spans of one request.

    Attributes:
        context: the request's own.
        attempts: each attempt with its span.
    """

    __slots__ = ("attempts", "context")

    def __init__(self, context: TraceContext) -> None:
        self.context = context
        self.attempts: list[tuple[Attempt, TraceContext]] = []

    def attempt_begins(self, attempt: Attempt) -> None:
        """An attempt is begun: what is sent for it says which span it is part of."""
        context = self.context.child()
        self.attempts.append((attempt, context))
        OUTGOING.set(context.headers())


def _span(
    context: TraceContext,
    name: str,
    kind: int,
    begun: float,
    ended: float,
    constant: bytes,
    own: bytes,
    failure: str | None,
) -> bytes:
    more = b""
    if context.parent_id:
        more += b',"parentSpanId":"%b"' % context.parent_id.encode()
    if context.state:
        more += b',"traceState":%b' % text(context.state)
    if failure is not None:
        more += b',"status":{"code":%d,"message":%b}' % (FAILED, text(failure))
    return (
        b'{"traceId":"%b","spanId":"%b","name":%b,"kind":%d,"flags":1,"startTimeUnixNano":"%d",'
        b'"endTimeUnixNano":"%d","attributes":[%b]%b}'
        % (
            context.trace_id.encode(),
            context.span_id.encode(),
            text(name),
            kind,
            begun * NANO,
            ended * NANO,
            constant + b"," + own if own else constant,
            more,
        )
    )
