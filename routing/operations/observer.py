"""Every request, told when it has ended to those who want to know of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

from llama_compat.dialects.base import Operation
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal, Reply
from llama_compat.text.one_line import one_line
from llama_compat.types import Usage
from routing.operations.records.estimate import prompt_tokens, settled
from routing.operations.records.prices import Prices
from routing.operations.records.record import Record
from routing.operations.records.sample import HEAD_BYTES, Sample, finish_reason
from routing.policy.attempts import Attempts

if TYPE_CHECKING:
    from routing.models import Route
    from routing.operations.limits.limiter import Admission
    from routing.operations.records.recorder import Recorder
    from routing.operations.telemetry.meter import Meter
    from routing.operations.telemetry.tracer import Trace

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""The status of a request whose client left before there was one (nginx's number for it)."""

MAX_MODEL = 200
MAX_MESSAGE = 500
"""Of a model's name and of an error so many characters are recorded."""


class Observed:
    """One request as far as it has come.

    Attributes:
        operation, principal: what is asked, by whom; None where the request brought no good key.
        request_id: its `x-request-id`.
        attempts: what was tried to answer it, and the headers that it brought.
        begun: when it came in, on the clock of `time.monotonic`, as all times here.
        body: what the client sent.
        model: what it asked for.
        call, route: what came of that.
        first_sent: when the first of the reply was sent.
        reply: what a provider answered.
        admission: what limits reserved for it; None where nothing limits it.
        sample: of what was sent.
        trace: its spans, where it is traced.
        status: HTTP status; 0 while there is none.
        error: what the client was told of.
        complete: whether it got all of the reply.
        cancelled: whether it left, or the server stopped, before that.
    """

    __slots__ = (
        "_at_end",
        "_postponed",
        "admission",
        "attempts",
        "begun",
        "body",
        "call",
        "cancelled",
        "complete",
        "error",
        "first_sent",
        "model",
        "operation",
        "principal",
        "reply",
        "request_id",
        "route",
        "sample",
        "status",
        "trace",
    )

    def __init__(
        self,
        operation: Operation,
        request_id: str,
        principal: Principal | None = None,
        attempts: Attempts | None = None,
        sample: Sample | None = None,
        at_end: Callable[[Observed], None] = lambda observed: None,
    ) -> None:
        self.operation = operation
        self.request_id = request_id
        self.principal = principal
        self.attempts = Attempts() if attempts is None else attempts
        self.sample = Sample() if sample is None else sample
        self._at_end = at_end
        self._postponed = False
        self.begun = time.monotonic()
        self.body = b""
        self.model = ""
        self.call: Call | None = None
        self.route: Route | None = None
        self.first_sent = 0.0
        self.reply: Reply | None = None
        self.admission: Admission | None = None
        self.trace: Trace | None = None
        self.status = 0
        self.error: APIError | None = None
        self.complete = self.cancelled = False

    def end(self, model: str) -> None:
        """It has been answered, as well as could be; `model` is what it asked for."""
        self.model = "" if model == "-" else model
        if not self._postponed:
            self._at_end(self)

    def postpone(self) -> None:
        """What is answered now is not the end: `end_later` says when that is."""
        self._postponed = True

    def end_later(self, attempts: Attempts, reply: Reply | None, error: APIError | None) -> None:
        """What was postponed has ended: in a reply, an error, or neither, if it was cancelled."""
        if self.call is not None:
            self.model = self.call.model
        self.attempts, self.reply, self.error = attempts, reply, error
        self.cancelled = reply is None and error is None
        self.sample = Sample()
        if reply is not None and isinstance(reply.body, bytes):
            self.sample.add(reply.body)
        self._at_end(self)

    def usage(self) -> tuple[Usage | None, bool]:
        """What it used, and whether that is estimated; None where nothing was generated."""
        if self.reply is None or self.call is None or self.operation.kind == "token_count":
            return None, False
        counted = self.reply.usage
        if self.operation.kind == "embedding" and not (counted and counted.prompt_tokens):
            return Usage(prompt_tokens(self.call.fields)), True
        # A whole reply has been paid for, whether the client got it or not.
        complete = self.complete or isinstance(self.reply.body, bytes)
        return settled(counted, self.call.fields, self.sample, complete=complete)


class Observer(Protocol):
    """Wants to know of every request, from `start` to `stop`."""

    sample_bytes: int
    """How much of the beginning of answers it needs."""

    async def start(self) -> None:
        """Make ready."""
        ...

    async def stop(self) -> None:
        """Finish."""
        ...

    def begun(self, observed: Observed) -> None:
        """One has come in."""
        ...

    def ended(self, observed: Observed, record: Record) -> None:
        """It has been answered, as well as could be."""
        ...


class Observers:
    """All who want to know of requests.

    What goes wrong with one of them is logged, and nothing that a client would notice.

    Args:
        observers: they.
        prices: what requests cost.
        meter: the one of them who counts for Prometheus, if there is one.
        recorder: the one of them who records, if there is one.

    Attributes:
        running: the requests that have not ended.
    """

    def __init__(
        self,
        observers: Sequence[Observer],
        prices: Prices,
        meter: Meter | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._observers = observers
        self.meter = meter
        self.recorder = recorder
        self.running: set[Observed] = set()
        self._prices = prices
        self._sample_bytes = max([HEAD_BYTES, *(each.sample_bytes for each in observers)])
        self._running = AsyncExitStack()

    @property
    def count_usage(self) -> bool:
        """Whether one of them needs to know what each request used; what runs is known without."""
        return bool(self._observers)

    def most(self, route: Route, usage: Usage) -> int | None:
        """What a request of `route` with this usage costs at most, in billionths of a dollar; None
        where nobody knows."""
        costs = [
            self._prices.cost(route.name, each.provider.id, each.target.model, usage)
            for each in route.targets
        ]
        return max((cost for cost in costs if cost is not None), default=None)

    async def start(self) -> None:
        """Start them."""
        if self._observers:
            await self._prices.start()
        for each in self._observers:
            self._running.push_async_callback(each.stop)
            await each.start()

    async def stop(self) -> None:
        """Stop those that were started."""
        await self._running.aclose()

    def begin(
        self,
        operation: Operation,
        request_id: str,
        principal: Principal | None,
        attempts: Attempts,
    ) -> Observed:
        """A request has come in; whoever answers it calls `end` on what this gives."""
        observed = Observed(
            operation, request_id, principal, attempts, Sample(self._sample_bytes), self._end
        )
        self.running.add(observed)
        for each in self._observers:
            each.begun(observed)
        return observed

    def _end(self, observed: Observed) -> None:
        self.running.discard(observed)
        if not self._observers:
            return
        try:
            record = record_of(observed, self._prices)
            for each in self._observers:
                each.ended(observed, record)
        except Exception:
            log.exception("request %s could not be recorded", observed.request_id)


def record_of(observed: Observed, prices: Prices) -> Record:
    """The record of a request that has ended."""
    now = time.monotonic()
    duration = now - observed.begun
    error, route = observed.error, observed.route
    usage, estimated = observed.usage()
    record = Record(
        time=time.time() - duration,
        request_id=observed.request_id,
        key=observed.principal.id if observed.principal is not None else "",
        api=observed.operation.dialect.name,
        operation=observed.operation.name,
        model=one_line(observed.model, MAX_MODEL),
        status=observed.status or CLIENT_LEFT,
        error="" if error is None else error.error_class.value,
        message="" if error is None else one_line(error.message, MAX_MESSAGE),
        stream=int(observed.call is not None and observed.call.stream),
        cancelled=int(observed.cancelled),
        duration=duration,
    )
    last = observed.attempts.last
    if route is not None:
        record.route = route.name
    if last is not None:
        record.provider = last.target.provider.id
        record.served = last.target.model
        record.target = last.target.id
        record.attempts = observed.attempts.sent
    if last is not None and last.content:
        record.finish_reason = one_line(finish_reason(observed.sample.tail), MAX_MODEL)
        if record.stream:
            record.first_content = last.content - observed.begun
        waited = observed.attempts.made[0].begun - observed.begun
        record.overhead = waited + max(observed.first_sent - last.content, 0.0)
    if usage is not None:
        record.input_tokens = usage.prompt_tokens
        record.cached_tokens = usage.cached_tokens
        record.cache_write_tokens = usage.cache_write_tokens
        record.output_tokens = usage.completion_tokens
        record.reasoning_tokens = usage.reasoning_tokens
        record.estimated = int(estimated)
        record.cost = prices.cost(record.route, record.provider, record.served, usage)
    return record
