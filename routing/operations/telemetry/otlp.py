"""Sends spans to a receiver of OTLP over HTTP, in OTLP's JSON.

The protocol is small (https://opentelemetry.io/docs/specs/otlp/#otlphttp). OpenTelemetry's own SDK
takes several times as long to make a span and to encode it: too long for two spans a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
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

BATCH = 500
GATHER_SECONDS = 1.0
RETRY_SECONDS = 5.0
STOP_SECONDS = 5.0
RECEIVE_SECONDS = 10.0

RETRIED = frozenset({408, 429, 502, 503, 504})
"""What a receiver that is away answers, or the connection to it; anything else is our mistake."""

Spans = Callable[[], Iterable[bytes]]
"""Renders the spans of one request in OTLP's JSON: in the sender's thread, when they are sent."""

_encode = msgspec.json.Encoder().encode


def attributes(values: Iterable[tuple[str, Any]]) -> bytes:
    """Attributes in OTLP's JSON, commas between them; those that are None are left out."""
    return b",".join([_attribute(name, value) for name, value in values if value is not None])


constant_attributes = lru_cache(4096)(attributes)
"""The same for a tuple of those that most requests of a kind have in common."""


def _attribute(name: str, value: Any) -> bytes:
    kind = type(value)
    if kind is str:
        return b'{"key":"%b","value":{"stringValue":%b}}' % (name.encode(), text(value))
    if kind is int:
        return b'{"key":"%b","value":{"intValue":"%d"}}' % (name.encode(), value)
    return b'{"key":"%b","value":%b}' % (name.encode(), _encode(_value(value)))


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case float():
            return {"doubleValue": value}
        case tuple():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}


def text(value: str) -> bytes:
    """A string in JSON; half a character is a question mark."""
    return _encode(value.encode(errors="replace").decode())


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
        resource = attributes(
            [("service.name", settings.service_name), ("service.version", __version__)]
        )
        scope = _encode({"name": "llama_compat", "version": __version__})
        self._head = (
            b'{"resourceSpans":[{"resource":{"attributes":[%b]},"scopeSpans":[{"scope":%b,"spans":['
            % (resource, scope)
        )
        self._spans: deque[Spans] = deque()
        self._arrived = asyncio.Event()
        self._stopping = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._drops = Drops("traces of requests")

    @property
    def dropped(self) -> int:
        """Of how many requests the spans were not sent."""
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

    def put(self, spans: Spans) -> None:
        """Have the spans of one request sent."""
        if len(self._spans) >= self._limit:
            self._drops.add(1)
            return
        self._spans.append(spans)
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

    async def _send(self, batch: Sequence[Spans]) -> None:
        body = await asyncio.to_thread(self._encoded, batch)
        async with self._upstream.post(PATH, body) as response:
            await response.read()

    def _encoded(self, batch: Sequence[Spans]) -> bytes:
        return self._head + b",".join(each for spans in batch for each in spans()) + b"]}]}]}"

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return
