"""Every request, told when it has ended to those who want to know of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from llama_compat.dialects.base import Kind
from llama_compat.hosted.parts import ReplyPart
from routing.observability.records.ledger import Ledger
from routing.observability.records.record import Record
from routing.observability.sample import HEAD_BYTES
from routing.policy.attempts import Attempt
from routing.request import Request

if TYPE_CHECKING:
    from routing.observability.records.recorder import Recorder
    from routing.observability.telemetry.context import Trace
    from routing.observability.telemetry.meter import Meter
    from routing.observability.telemetry.tracer import Tracer

log = logging.getLogger(__name__)


class Batch(Struct):
    """Requests that have ended, with the same in all of `SHARED`.

    Attributes:
        kind: what they came down to in the vocabulary.
        records: theirs.
        attempts: those of each.
        traces: of each that is traced.
        parts: of the reply of each, where the server ran tools for it: all, and not only as many as
            its record keeps.
        ended: when each did, on the clock of `time.monotonic`.
    """

    kind: Kind
    records: Sequence[Record]
    attempts: Sequence[Sequence[Attempt]]
    traces: Sequence[Trace | None]
    parts: Sequence[Sequence[ReplyPart]] = ()
    ended: Sequence[float] = ()


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
    "guardrails",
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
    def closing(self) -> Callable[[Request, Record], None] | None:
        """Called when a request has ended, with its record, while all that the request consisted
        of is still there; None if that does not matter."""
        ...

    async def start(self) -> None:
        """Make ready."""
        ...

    async def stop(self) -> None:
        """Finish."""
        ...

    def ended(self, batch: Batch) -> None:
        """Called with requests that have ended, some time later and many at once."""
        ...


_Ended = tuple[Record, Sequence[Attempt], "Trace | None", Sequence[ReplyPart], float]


class Observers:
    """All who want to know of requests, at least one.

    What goes wrong with one of them is logged, and nothing that a client would notice.

    Args:
        observers: they.
        ledger: makes the records.
        meter: the one of them who counts for Prometheus, if there is one.
        recorder: the one of them who records, if there is one.
        tracer: the one of them who traces, if there is one.

    Attributes:
        sample_bytes: how much of the beginning of answers they need.
    """

    def __init__(
        self,
        observers: Sequence[Observer],
        ledger: Ledger,
        meter: Meter | None = None,
        recorder: Recorder | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._observers = observers
        self._ledger = ledger
        self.meter = meter
        self.recorder = recorder
        self.tracer = tracer
        self.sample_bytes = max([HEAD_BYTES, *(each.sample_bytes for each in observers)])
        self._closing = [each.closing for each in observers if each.closing is not None]
        self._waiting: list[Request] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._running = AsyncExitStack()

    async def start(self) -> None:
        """Start them."""
        self._loop = asyncio.get_running_loop()
        for each in self._observers:
            self._running.push_async_callback(each.stop)
            await each.start()

    async def stop(self) -> None:
        """Tell those that were started the last, and stop them."""
        self._loop = None
        self.flush()
        await self._running.aclose()

    def ended(self, request: Request) -> None:
        """A request has ended: they are told now, if that can't wait, or soon."""
        self._waiting.append(request)
        full = len(self._waiting) >= BATCH or len(request.body) > LARGE_BYTES
        if full or self._loop is None:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(GATHER_SECONDS, self.flush)

    def flush(self) -> None:
        """Tell all of what has ended."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        waiting, self._waiting = self._waiting, []
        alike: dict[tuple[Any, ...], list[_Ended]] = {}
        for request in waiting:
            try:
                record = self._ledger.record(request)
                for tell in self._closing:
                    tell(request, record)
            except Exception:
                log.exception("request %s could not be recorded", request.request_id)
                continue
            key = request.operation.kind, *_shared(record)
            ended = (
                record,
                request.attempts.made,
                request.trace,
                request.parts,
                request.ended,
            )
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
