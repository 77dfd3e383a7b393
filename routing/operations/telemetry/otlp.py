"""Sends spans to a receiver of OTLP over HTTP, in OTLP's JSON.

The protocol is small (https://opentelemetry.io/docs/specs/otlp/#otlphttp). OpenTelemetry's own SDK
takes several times as long to make a span and to encode it: too long for two spans a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from llama_compat import __version__
from llama_compat.distribution import TracesSettings
from llama_compat.errors import APIError
from providers.remote.config import RemoteConfig, Timeouts
from providers.remote.upstream import Upstream
from routing.operations.drops import Drops

log = logging.getLogger(__name__)

PATH = "/v1/traces"

BATCH = 1000
GATHER_SECONDS = 1.0
RETRY_SECONDS = 5.0
STOP_SECONDS = 5.0
RECEIVE_SECONDS = 10.0

RETRIED = frozenset({408, 429, 502, 503, 504})
"""What a receiver that is away answers, or the connection to it; anything else is our mistake."""

Span = dict[str, Any]
"""A span in OTLP's JSON."""


def attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes in OTLP's JSON; those that are None are left out."""
    return [
        {"key": name, "value": _value(value)} for name, value in values.items() if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}


class SpanSender:
    """Sends spans, from `start` to `stop`. Whoever hands one over never waits.

    Args:
        settings: where to, and how many may wait.
    """

    def __init__(self, settings: TracesSettings) -> None:
        timeouts = Timeouts(
            connect=STOP_SECONDS, first_byte=RECEIVE_SECONDS, between_bytes=RECEIVE_SECONDS
        )
        config = RemoteConfig(
            base_url=settings.endpoint, headers=settings.headers, timeouts=timeouts
        )
        self._upstream = Upstream("traces", config, {})
        self._limit = settings.queue
        self._resource = attributes(
            {"service.name": settings.service_name, "service.version": __version__}
        )
        self._spans: deque[Span] = deque()
        self._arrived = asyncio.Event()
        self._stopping = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._drops = Drops("spans")

    @property
    def dropped(self) -> int:
        """How many spans were not sent."""
        return self._drops.count

    async def start(self) -> None:
        """Begin to send."""
        await self._upstream.start()
        self._sending = asyncio.create_task(self._send_all())

    async def stop(self) -> None:
        """Send what is left, if the receiver is there."""
        self._stopping.set()
        self._arrived.set()
        if self._sending is not None:
            _, late = await asyncio.wait([self._sending], timeout=STOP_SECONDS)
            self._sending.cancel()
            if late:
                await asyncio.wait(late)
        self._drops.add(len(self._spans))
        self._drops.log(now=True)
        await self._upstream.stop()

    def put(self, spans: Sequence[Span]) -> None:
        """Have `spans` sent."""
        if len(self._spans) + len(spans) > self._limit:
            self._drops.add(len(spans))
            return
        self._spans.extend(spans)
        if not self._arrived.is_set():
            self._arrived.set()

    async def _send_all(self) -> None:
        while True:
            if not self._spans:
                self._drops.log()
                if self._stopping.is_set():
                    return
                self._arrived.clear()
                await self._arrived.wait()
                await self._pause(GATHER_SECONDS)
            batch = list(islice(self._spans, BATCH))
            try:
                await self._send(batch)
            except APIError as error:
                self._drops.log(error.message)
                if self._stopping.is_set():
                    return
                if error.status in RETRIED:
                    await self._pause(RETRY_SECONDS)
                    continue
                self._drops.add(len(batch))
            except Exception:
                log.exception("spans could not be sent")
                self._drops.add(len(batch))
            for _ in batch:
                self._spans.popleft()

    async def _send(self, batch: Sequence[Span]) -> None:
        body = await asyncio.to_thread(self._encoded, batch)
        async with self._upstream.post(PATH, body) as response:
            await response.read()

    def _encoded(self, batch: Sequence[Span]) -> bytes:
        scope = {"name": "llama_compat", "version": __version__}
        spans = {"scope": scope, "spans": batch}
        resource = {"resource": {"attributes": self._resource}, "scopeSpans": [spans]}
        return msgspec.json.encode({"resourceSpans": [resource]})

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return
