"""Every request, told when it has ended to those who want to know of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field, structs

from llama_compat.dialects.base import Kind, Operation
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal, Reply
from llama_compat.text.one_line import one_line
from llama_compat.types import Usage
from routing.operations.records.estimate import prompt_tokens, sane, settled
from routing.operations.records.prices import Prices
from routing.operations.records.record import Record
from routing.operations.records.sample import HEAD_BYTES, Sample, finish_reason
from routing.policy.attempts import Attempt, Attempts

if TYPE_CHECKING:
    from routing.models import Route
    from routing.operations.limits.limiter import Admission
    from routing.operations.records.recorder import Recorder
    from routing.operations.telemetry.context import Trace
    from routing.operations.telemetry.meter import Meter

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""The status of a request whose client left before there was one (nginx's number for it)."""

_NOTHING_COUNTED = (None, None, None, None, None)

MAX_MODEL = 200
MAX_MESSAGE = 500
"""Of a model's name and of an error so many characters are recorded."""


def _ignore(observed: Observed) -> None:
    """Nobody wants to know."""


class Observed(Struct, eq=False):
    """One request as far as it has come.

    Attributes:
        operation, principal: what is asked, by whom; None where the request brought no good key.
        request_id: its `x-request-id`.
        attempts: what was tried to answer it, and the headers that it brought.
        sample_bytes: how much of the beginning of its answer is needed.
        at_end: is told when it has ended.
        begun: when it came in, on the clock of `time.monotonic`, as all times here.
        body: what the client sent.
        model: what it asked for.
        call, route: what came of that.
        first_sent: when the first of the reply was sent.
        reply: what a provider answered.
        admission: what limits reserved for it; None where nothing limits it.
        trace: its spans, where it is traced.
        status: HTTP status; 0 while there is none.
        error: what the client was told of.
        complete: whether it got all of the reply.
        cancelled: whether it left, or the server stopped, before that.
        postponed: whether it ends later than its answer.
        ended: when it had been answered.
        record: what is recorded of it, where that had to be known at once.
        sent: of a stream or an error, as far as it was sent; None where nothing was.
    """

    operation: Operation
    request_id: str
    principal: Principal | None = None
    attempts: Attempts = field(default_factory=Attempts)
    sample_bytes: int = HEAD_BYTES
    at_end: Callable[[Observed], None] = _ignore
    begun: float = field(default_factory=time.monotonic)
    body: bytes = b""
    model: str = ""
    call: Call | None = None
    route: Route | None = None
    first_sent: float = 0.0
    reply: Reply | None = None
    admission: Admission | None = None
    trace: Trace | None = None
    status: int = 0
    error: APIError | None = None
    complete: bool = False
    cancelled: bool = False
    postponed: bool = False
    ended: float = 0.0
    record: Record | None = None
    sent: Sample | None = None

    def sampled(self) -> Sample:
        """Where whoever sends the answer, if it is not one whole reply, notes what is sent."""
        if self.sent is None:
            self.sent = Sample(self.sample_bytes)
        return self.sent

    @property
    def sample(self) -> Sample:
        """Of what was sent."""
        if self.sent is not None:
            return self.sent
        whole = Sample(self.sample_bytes)
        if self.reply is not None and isinstance(self.reply.body, bytes):
            whole.add(self.reply.body)
        return whole

    @property
    def tail(self) -> bytes:
        """How what was sent ended."""
        if self.sent is not None:
            return self.sent.tail
        reply = self.reply
        return reply.body if reply is not None and isinstance(reply.body, bytes) else b""

    def end(self, model: str) -> None:
        """It has been answered, as well as could be; `model` is what it asked for."""
        self.model = "" if model == "-" else model
        if not self.postponed:
            self.at_end(self)

    def postpone(self) -> None:
        """What is answered now is not the end: `end_later` says when that is."""
        self.postponed = True

    def end_later(self, attempts: Attempts, reply: Reply | None, error: APIError | None) -> None:
        """What was postponed has ended: in a reply, an error, or neither, if it was cancelled."""
        if self.call is not None:
            self.model = self.call.model
        self.attempts, self.reply, self.error = attempts, reply, error
        self.cancelled = reply is None and error is None
        self.sent = None
        self.at_end(self)

    def usage(self, last: Attempt | None) -> tuple[Usage | None, bool]:
        """What it used, and whether that is estimated; None where nothing was generated.

        Args:
            last: the attempt whose answer the client got.
        """
        reply, call, kind = self.reply, self.call, self.operation.kind
        if reply is None or call is None or kind == "token_count":
            return None, False
        # An attempt reads what its reply used once; a reply as often as it is asked.
        counted = None if last is None else last.usage
        if counted is None:
            counted = reply.usage
        if kind == "embedding" and not (counted and counted.prompt_tokens):
            return Usage(prompt_tokens(call.fields)), True
        # A whole reply has been paid for, whether the client got it or not.
        complete = self.complete or isinstance(reply.body, bytes)
        if complete and counted is not None:
            counted = sane(counted)
            if counted.prompt_tokens or counted.completion_tokens:
                return counted, False
        return settled(counted, call.fields, self.sample, complete=complete)


class Batch(Struct):
    """Requests that have ended, with the same in all of `SHARED`.

    Attributes:
        kind: what they came down to in the vocabulary.
        records: theirs.
        attempts: those of each.
        traces: of each that is traced.
    """

    kind: Kind
    records: Sequence[Record]
    attempts: Sequence[Sequence[Attempt]]
    traces: Sequence[Trace | None]


SHARED = (
    "key",
    "api",
    "operation",
    "route",
    "model",
    "served",
    "provider",
    "target",
    "attempts",
    "status",
    "error",
    "stream",
    "cancelled",
    "finish_reason",
    "estimated",
)
"""The columns that many records have in common: who wants to know of requests looks once at all
that came to an end at about the same time and agree in these."""

_shared = attrgetter(*SHARED)

BATCH = 64
"""So many requests are looked at together: more would hold up others for more than a millisecond or
so, and fewer cost more each, as whatever looks at them is no longer at hand."""

LARGE_BYTES = 64 * 1024
"""A request with more than that waits for no others: it is not to be kept any longer."""

GATHER_SECONDS = 0.1
"""How long one waits for others at most."""


class Observer(Protocol):
    """Wants to know of every request, from `start` to `stop`."""

    @property
    def sample_bytes(self) -> int:
        """How much of the beginning of answers it needs."""
        ...

    @property
    def begun(self) -> Callable[[Observed], None] | None:
        """Is told when a request comes in; None if that does not matter."""
        ...

    @property
    def closing(self) -> Callable[[Observed, Record], None] | None:
        """Is told when one has ended, and what is recorded of it, as long as all that it consisted
        of is there; None if that does not matter."""
        ...

    async def start(self) -> None:
        """Make ready."""
        ...

    async def stop(self) -> None:
        """Finish."""
        ...

    def ended(self, batch: Batch) -> None:
        """Some have been answered, as well as could be."""
        ...


_Ended = tuple[Record, Sequence[Attempt], "Trace | None"]


class Observers:
    """All who want to know of requests.

    What goes wrong with one of them is logged, and nothing that a client would notice.

    Args:
        observers: they.
        prices: what requests cost.
        meter: the one of them who counts for Prometheus, if there is one.
        recorder: the one of them who records, if there is one.
        settles: whether there are limits, for which usage has to be known.

    Attributes:
        running: the requests that have not ended.
        count_usage: whether what each request used needs to be known; what runs is known without.
    """

    def __init__(
        self,
        observers: Sequence[Observer],
        prices: Prices,
        meter: Meter | None = None,
        recorder: Recorder | None = None,
        *,
        settles: bool = False,
    ) -> None:
        self._observers = observers
        self.meter = meter
        self.recorder = recorder
        self.count_usage = bool(observers) or settles
        self.running: set[Observed] = set()
        self._prices = prices
        self._sample_bytes = max([HEAD_BYTES, *(each.sample_bytes for each in observers)])
        self._begun = [each.begun for each in observers if each.begun is not None]
        self._closing = [each.closing for each in observers if each.closing is not None]
        self._waiting: list[Observed] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._running = AsyncExitStack()

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
        self._loop = asyncio.get_running_loop()
        if self.count_usage:
            await self._prices.start()
        if self.meter is not None:
            self.meter.watch(self.running)
        for each in self._observers:
            self._running.push_async_callback(each.stop)
            await each.start()

    async def stop(self) -> None:
        """Tell those that were started the last, and stop them."""
        self._loop = None
        self.flush()
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
            operation, request_id, principal, attempts, self._sample_bytes, self._end
        )
        self.running.add(observed)
        for tell in self._begun:
            tell(observed)
        return observed

    def _end(self, observed: Observed) -> None:
        self.running.discard(observed)
        if not self.count_usage:
            return
        observed.ended = time.monotonic()
        if observed.admission is not None:
            self._settle(observed, observed.admission)
        if not self._observers:
            return
        self._waiting.append(observed)
        if self._timer is None or len(self._waiting) >= BATCH or len(observed.body) > LARGE_BYTES:
            self._look(observed)

    def _look(self, observed: Observed) -> None:
        """Tell all of what has ended now, if that can't wait, or soon."""
        loop = self._loop
        if loop is None or len(self._waiting) >= BATCH or len(observed.body) > LARGE_BYTES:
            self.flush()
        else:
            self._timer = loop.call_later(GATHER_SECONDS, self.flush)

    def _settle(self, observed: Observed, admission: Admission) -> None:
        try:
            record = observed.record = record_of(observed, self._prices)
        except Exception:
            log.exception("what request %s used is not known", observed.request_id)
            admission.settle(None, None)
            return
        usage = Usage(record.input_tokens or 0, record.output_tokens or 0)
        admission.settle_usage(usage, record.cost)

    def flush(self) -> None:
        """Tell all of what has ended."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        waiting, self._waiting = self._waiting, []
        alike: dict[tuple[Any, ...], list[_Ended]] = {}
        for observed in waiting:
            try:
                record = observed.record or record_of(observed, self._prices)
                for tell in self._closing:
                    tell(observed, record)
            except Exception:
                log.exception("request %s could not be recorded", observed.request_id)
                continue
            key = observed.operation.kind, *_shared(record)
            ended = record, observed.attempts.made, observed.trace
            found = alike.get(key)
            if found is None:
                alike[key] = [ended]
            else:
                found.append(ended)
        for (kind, *_), those in alike.items():
            batch = Batch(kind, *zip(*those, strict=True))
            for each in self._observers:
                try:
                    each.ended(batch)
                except Exception:
                    ids = [record.request_id for record in batch.records]
                    log.exception("requests %s could not be observed", ", ".join(ids))


def record_of(observed: Observed, prices: Prices) -> Record:
    """The record of a request that has ended."""
    ended = observed.ended or time.monotonic()
    begun, call, route, error = observed.begun, observed.call, observed.route, observed.error
    attempts, operation, principal = observed.attempts, observed.operation, observed.principal
    stream = call is not None and call.stream
    name = "" if route is None else route.name
    served = provider = target_id = finished = ""
    first_content = overhead = cost = None
    last = attempts.last
    usage, estimated = observed.usage(last)
    if last is not None:
        target, content = last.target, last.content
        served, provider, target_id = target.model, target.provider.id, target.id
        if content:
            finished = one_line(finish_reason(observed.tail))
            overhead = attempts.made[0].begun - begun
            if observed.first_sent > content:
                overhead += observed.first_sent - content
            if stream:
                first_content = content - begun
    if usage is None:
        counts = _NOTHING_COUNTED
    else:
        counts = structs.astuple(usage)
        cost = prices.cost(name, provider, served, usage)
    prompt, completion, cached, reasoning, written = counts
    return Record(
        time.time() - time.monotonic() + begun,
        observed.request_id,
        "" if principal is None else principal.id,
        operation.dialect.name,
        operation.name,
        name,
        one_line(observed.model, MAX_MODEL) if observed.model != name else name,
        served,
        provider,
        target_id,
        attempts.sent,
        observed.status or CLIENT_LEFT,
        "" if error is None else error.error_class.value,
        "" if error is None else one_line(error.message, MAX_MESSAGE),
        1 if stream else 0,
        1 if observed.cancelled else 0,
        finished,
        prompt,
        cached,
        written,
        completion,
        reasoning,
        1 if estimated else 0,
        first_content,
        ended - begun,
        overhead,
        cost,
    )
