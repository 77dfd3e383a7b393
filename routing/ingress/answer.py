"""The answer to one request, sent over ASGI."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from random import getrandbits
from typing import Any

from llama_compat.dialects.base import Dialect
from llama_compat.errors import APIError
from llama_compat.exchange import ADAPTED_HEADER, DROPPED_HEADER, Reply
from routing.asgi import Scope, Send, headers_by_name
from routing.observability.sample import Sample
from routing.policy.targets import header_text
from routing.request import Request

MAX_HEADER = 2000
"""Of the names of dropped parameters, so many characters are in their header; clients and proxies
refuse headers of 8 KiB and more."""

GATHERED = 32
"""So many events of a stream are noted before anybody looks at them."""

_SANE_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


def request_id_of(scope: Scope) -> str:
    """The client's `x-request-id` if it is short printable ASCII, or one that is made.

    The same again for a scope that has been given its own as `request_id`.
    """
    if "request_id" in scope:
        return str(scope["request_id"])
    sent = headers_by_name(scope).get(b"x-request-id")
    if sent is not None and _SANE_REQUEST_ID.fullmatch(sent):
        return bytes(sent).decode()
    return new_request_id()


def new_request_id() -> str:
    """An id for a request whose client has none for it."""
    # No secret, so it need not cost a system call; each process has a seed of its own.
    return f"req_{getrandbits(96):024x}"


class Answer:
    """Sends the answer to one request, and notes in the request what was sent.

    Args:
        send: ASGI's.
        request: what is answered.
        dialect: in which it is told what goes wrong; its operation's own if None.

    Attributes:
        last_sent: when something was sent last, on the clock of `time.monotonic`.
    """

    def __init__(self, send: Send, request: Request, dialect: Dialect | None = None) -> None:
        self._send = send
        self._request = request
        self._dialect = dialect or request.operation.dialect
        self._streaming = False
        self._sample: Sample | None = None
        self._keeping: asyncio.Task[None] | None = None
        self.last_sent = 0.0

    async def reply(self, reply: Reply) -> None:
        """Send a provider's reply; a stream event by event, as they come."""
        request = self._request
        request.reply = reply
        headers = {**reply.headers}
        if reply.dropped:
            headers[DROPPED_HEADER] = _listed(reply.dropped)
        if reply.adapted:
            headers[ADAPTED_HEADER] = _listed(reply.adapted)
        if isinstance(reply.body, bytes):
            await self._whole(reply, headers, reply.body)
            return
        if request.sample_bytes:
            self._sample = request.sampled()
        if not self._streaming:
            self._streaming = True
            told = headers if reply.media else {**headers, **self._dialect.stream_headers}
            await self._start(reply.status, told)
        if reply.first:
            await self._event(reply.first)
            request.first_sent = self.last_sent
        async for events in reply.body:
            await self._event(events)
        reply.read_to_end = True
        await self._settled(reply)
        await self._event(b"" if reply.media else self._dialect.stream_end, more=False)
        request.complete = True

    async def _whole(self, reply: Reply, headers: dict[str, str], body: bytes) -> None:
        # As a stream is sent, without the coroutines that there is nothing to wait for in.
        request = self._request
        if reply.at_end or request.holds_something:
            await self._settled(reply)
        else:
            reply.closed = True
        headers["content-length"] = str(len(body))
        await self._send(self._head(reply.status, headers))
        if self._keeping is not None and not self._keeping.done():
            await asyncio.wait([self._keeping])
        await self._send({"type": "http.response.body", "body": body})
        self.last_sent = request.first_sent = time.monotonic()
        request.complete = True

    async def _settled(self, reply: Reply) -> None:
        """Free what `reply` took before its client knows of its end, and may ask for the next."""
        await reply.aclose()
        await self._request.settle()

    async def error(self, error: APIError) -> None:
        """Send `error`: as a response of its own, or inside the stream, which it ends."""
        request = self._request
        request.failed(error)
        if request.sample_bytes:
            self._sample = request.sampled()
        await request.settle()
        if self._streaming:
            if request.reply is not None and request.reply.media:
                return  # it is left without its end, so that nobody takes it for whole
            await self._event(self._render_stream_error(error), more=False)
        elif not request.status:
            body = self._dialect.render_error(error, request.request_id)
            headers = {
                **error.headers,
                "content-type": "application/json",
                "content-length": str(len(body)),
            }
            await self._start(self._dialect.status(error), headers)
            await self._event(body, more=False)

    async def keep_alive(self) -> None:
        """Send what means nothing, so that the connection stays open; headers first, if need be."""
        if not self._streaming:
            self._streaming = True
            await self._start(200, self._dialect.stream_headers)
        await self._body(self._dialect.keep_alive)

    def keep(self, sending: asyncio.Task[None]) -> None:
        """`sending` sends a keep-alive: what comes next waits for its end."""
        self._keeping = sending

    def _render_stream_error(self, error: APIError) -> bytes:
        reply = self._request.reply
        if reply is not None and reply.render_error is not None:
            return reply.render_error(error)
        return self._dialect.render_stream_error(error, self._request.request_id)

    async def _event(self, body: bytes, *, more: bool = True) -> None:
        if self._keeping is not None and not self._keeping.done():
            await asyncio.wait([self._keeping])
        sample = self._sample
        if sample is not None:
            sample.pieces.append(body)
            if len(sample.pieces) >= GATHERED:
                sample.gather()
        await self._body(body, more=more)

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        await self._send(self._head(status, headers))

    def _head(self, status: int, headers: Mapping[str, str]) -> dict[str, Any]:
        request, dialect = self._request, self._dialect
        request.status = status
        if dialect.reply_headers is not None:
            headers = {**dialect.reply_headers(request.request_id), **headers}
        raw = {name.encode("latin-1"): value.encode("latin-1") for name, value in headers.items()}
        if request.rate_limits:  # ours, in the place of a vendor's
            raw.update(dialect.rate_limit_headers(request.rate_limits))
        lines = [
            *raw.items(),
            (b"x-request-id", request.request_id.encode()),
            *request.attempts.answer_headers(),
        ]
        return {"type": "http.response.start", "status": status, "headers": lines}

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
        self.last_sent = time.monotonic()


def _listed(names: Sequence[str]) -> str:
    """Names that are the client's, for a header: of more than it should hold only the number is
    told."""
    listed: list[str] = []
    size = 0
    for name in names:
        shown = header_text(name[:MAX_HEADER])
        size += len(shown) + 2
        if size > MAX_HEADER and listed:
            break
        listed.append(shown[:MAX_HEADER])
    more = len(names) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more else "")
