"""Sends spans to a receiver of OTLP over HTTP, in OTLP's JSON.

The protocol is small (https://opentelemetry.io/docs/specs/otlp/#otlphttp), and OpenTelemetry's own
SDK takes several times as long to make a span and to encode it (`bench/otlp.py`), too long for two
spans a request: so it is spoken here, and held against a receiver that speaks OpenTelemetry's own
in the tests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from llama_compat import __version__
from llama_compat.distribution import TracesSettings
from llama_compat.errors import APIError
from providers.remote.config import RemoteConfig
from providers.remote.http1 import Timeouts
from providers.remote.upstream.exchanges import Upstream
from routing.observability.drops import Drops
from routing.waiting import first_of

log = logging.getLogger(__name__)

PATH = "/v1/traces"

BATCH = 500
GATHER_SECONDS = 1.0
RETRY_SECONDS = 5.0
STOP_SECONDS = 5.0
RECEIVE_SECONDS = 10.0

RETRIED = frozenset({408, 429, 502, 503, 504})
"""What a receiver that is away answers, or the connection to it; anything else is our mistake."""

_encode = msgspec.json.Encoder().encode


def attributes(values: Iterable[tuple[str, Any]]) -> str:
    """Attributes in OTLP's JSON, commas between them; those that are None are left out."""
    return ",".join([_attribute(name, value) for name, value in values if value is not None])


def _attribute(name: str, value: Any) -> str:
    return f'{{"key":"{name}","value":{_encode(_value(value)).decode()}}}'


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case tuple():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": _whole(str(value))}


def text(value: str) -> str:
    """A string in JSON; half a character is a question mark."""
    return _encode(value if value.isascii() else _whole(value)).decode()


def _whole(value: str) -> str:
    return value.encode(errors="replace").decode()


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
        scope = _encode({"name": "llama_compat", "version": __version__}).decode()
        self._head = (
            f'{{"resourceSpans":[{{"resource":{{"attributes":[{resource}]}},'
            f'"scopeSpans":[{{"scope":{scope},"spans":['
        )
        self._spans: deque[str] = deque()
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

    def put(self, spans: Sequence[str]) -> None:
        """Have spans sent, those of one request in each text, as far as there is room."""
        room = max(self._limit - len(self._spans), 0)
        self._spans.extend(spans[:room])
        self._drops.add(len(spans[room:]))
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
                await first_of(self._stopping, GATHER_SECONDS)
            batch = list(islice(self._spans, BATCH))
            try:
                await self._send(batch)
            except APIError as error:
                self._drops.log(error.message)
                if self._stopping.is_set():
                    return
                if error.status in RETRIED:
                    await first_of(self._stopping, RETRY_SECONDS)
                    continue
                self._drops.add(len(batch))
            except Exception:
                log.exception("spans could not be sent")
                self._drops.add(len(batch))
            for _ in batch:
                self._spans.popleft()

    async def _send(self, batch: Sequence[str]) -> None:
        body = f"{self._head}{','.join(batch)}]}}]}}]}}".encode()
        async with self._upstream.post(PATH, body) as response:
            await response.read()
