"""The answer to one request, sent over ASGI."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from operator import methodcaller
from random import getrandbits
from typing import TYPE_CHECKING

from llama_compat.dialects.base import Dialect
from llama_compat.dialects.rate_limits import RateLimit
from llama_compat.errors import APIError
from llama_compat.exchange import Reply
from llama_compat.text.one_line import one_line
from routing.asgi import Scope, Send, headers_by_name
from routing.logs import log_line
from routing.policy.attempts import Attempts
from routing.policy.targets import header_text
from routing.request_log import RequestLine

if TYPE_CHECKING:
    from routing.operations.observer import Observed
    from routing.operations.records.sample import Sample

log = logging.getLogger(__name__)


MAX_HEADER = 2000
"""Of the names of dropped parameters, so many characters are in their header; clients and proxies
refuse headers of 8 KiB and more."""

GATHERED = 32
"""So many events of a stream are noted before anybody looks at them."""

_latin_1 = methodcaller("encode", "latin-1")

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
    # No secret, so it need not cost a system call; each process has a seed of its own.
    return f"req_{getrandbits(96):024x}"


class Answer:
    """The answer to one request: what has been sent of it, and the line about it in the log.

    Attributes:
        request_id: the client's name for the request, or one that is made.
        model: what the client asked for, for the log.
        outcome: what went wrong, for the log; empty if all went well.
        last_sent: when something was sent last, on the event loop's clock.
        observed: what is to be known of the request afterwards; None where nobody wants to know.
        attempts: what was tried to answer it.
    """

    def __init__(self, send: Send, scope: Scope, dialect: Dialect) -> None:
        self._send = send
        self._dialect = dialect
        self._path = scope["path"]
        self._begun = time.perf_counter()
        self._streaming = False
        self._status = 0
        self._keeping: asyncio.Task[None] | None = None
        self._reply: Reply | None = None
        self.request_id = request_id_of(scope)
        self.model = "-"
        self.outcome = ""
        self.last_sent = 0.0
        self.observed: Observed | None = None
        self._sample: Sample | None = None
        self.attempts = Attempts(scope["headers"])
        self._limits: Mapping[str, str] = {}

    def limits(self, limits: Sequence[RateLimit]) -> None:
        """What is left of this server's limits, for the answer's headers."""
        self._limits = self._dialect.rate_limit_headers(limits)

    async def reply(self, reply: Reply) -> None:
        """Send a provider's reply; a stream event by event, as they come."""
        self._reply = reply
        observed = self.observed
        if observed is not None:
            observed.reply = reply
        headers = {**reply.headers}
        if reply.dropped:
            headers["x-llama-compat-dropped"] = _listed(reply.dropped)
        if isinstance(reply.body, bytes):
            await self._start(reply.status, {**headers, "content-length": str(len(reply.body))})
            await self._event(reply.body, more=False)
            if observed is not None:
                observed.first_sent = self.last_sent
                observed.complete = True
            return
        if observed is not None:
            self._sample = observed.sampled()
        if not self._streaming:
            self._streaming = True
            await self._start(reply.status, {**headers, **self._dialect.stream_headers})
        if reply.first:
            await self._event(reply.first)
            if observed is not None:
                observed.first_sent = self.last_sent
        async for events in reply.body:
            await self._event(events)
        reply.read_to_end = True
        await self._event(self._dialect.stream_end, more=False)
        if observed is not None:
            observed.complete = True

    async def error(self, error: APIError) -> None:
        """Send `error`: as a response of its own, or inside the stream, which it ends."""
        self.outcome = error.message
        if self.observed is not None:
            self.observed.error = error
            self._sample = self.observed.sampled()
        vendors_id = error.headers.get("x-upstream-request-id")
        if vendors_id is not None:
            self.outcome += f" (the vendor's request {vendors_id})"
        if self._streaming:
            await self._event(self._render_stream_error(error), more=False)
        elif not self._status:
            body = self._dialect.render_error(error, self.request_id)
            headers = {
                **error.headers,
                "content-type": "application/json",
                "content-length": str(len(body)),
            }
            await self._start(self._dialect.status(error), headers)
            await self._event(body, more=False)

    def cancel(self, why: str = "") -> None:
        """The client left, which is `why`, or the server stops: it does not get all of it."""
        self.outcome = why
        if self.observed is not None:
            self.observed.cancelled = True

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
        if self._reply is not None and self._reply.render_error is not None:
            return self._reply.render_error(error)
        return self._dialect.render_stream_error(error, self.request_id)

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
        self._status = status
        if self.observed is not None:
            self.observed.status = status
        headers = {**self._dialect.reply_headers(self.request_id), **headers, **self._limits}
        raw = [
            *zip(map(_latin_1, headers), map(_latin_1, headers.values()), strict=True),
            (b"x-request-id", self.request_id.encode()),
            *self.attempts.answer_headers(),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
        self.last_sent = time.monotonic()

    def log(self, *, with_usage: bool = False) -> None:
        """One line about the request, with the tokens that it cost if they are known."""
        usage = self.attempts.usage if with_usage else None
        line = RequestLine(
            self.request_id,
            self._path,
            one_line(self.model),
            self._status,
            (time.perf_counter() - self._begun) * 1000,
            None if usage is None else usage.prompt_tokens,
            None if usage is None else usage.completion_tokens,
            one_line(self.attempts.in_words().removeprefix(" via ")),
            one_line(self.outcome),
        )
        if self.outcome:
            log.warning(line)
        else:
            log_line(line)


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
