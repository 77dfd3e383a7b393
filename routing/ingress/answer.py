"""The answer to one request, sent over ASGI."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from urllib.parse import quote

from llama_compat.errors import APIError
from llama_compat.exchange import OpenAIReply
from llama_compat.wire import sse
from routing.asgi import Scope, Send

log = logging.getLogger(__name__)

_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")

MAX_LOGGED = 1000
"""Of what is said of a request, so many characters are in the log."""

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}

_SANE_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


def sent_request_id(scope: Scope) -> str | None:
    """The client's `x-request-id` if it is short printable ASCII."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_REQUEST_ID.fullmatch(value):
            return bytes(value).decode()
    return None


def new_request_id() -> str:
    """For a client that names its request not."""
    return f"req_{os.urandom(12).hex()}"


class Answer:
    """The answer to one request: what has been sent of it, and the line about it in the log.

    Attributes:
        request_id: the client's name for the request, or one that is made.
        model: what the client asked for, for the log.
        outcome: what went wrong, for the log; empty if all went well.
    """

    def __init__(self, send: Send, scope: Scope) -> None:
        self._send = send
        self._path = scope["path"]
        self._begun = time.perf_counter()
        self._streaming = False
        self._status = 0
        self._sent_id = sent_request_id(scope)
        self.request_id = self._sent_id or new_request_id()
        self.model = "-"
        self.outcome = ""

    async def reply(self, reply: OpenAIReply, dropped: list[str]) -> None:
        """Send a provider's reply; a stream event by event, as they come."""
        headers = {**reply.headers}
        if dropped:
            # The names are the client's: what a header can't hold is percent-encoded.
            names = (quote(name, safe=_PRINTABLE, errors="replace") for name in dropped)
            headers["x-llama-compat-dropped"] = ", ".join(names)
        if isinstance(reply.body, bytes):
            await self._start(reply.status, {**headers, "content-length": str(len(reply.body))})
            await self._body(reply.body, more=False)
            return
        await self._start(reply.status, {**headers, **STREAM_HEADERS})
        self._streaming = True
        if reply.first:
            await self._body(reply.first)
        async for events in reply.body:
            await self._body(events)
        await self._body(sse.DONE, more=False)

    async def error(self, error: APIError) -> None:
        """Send `error`: as a response of its own, or as a stream's last event."""
        self.outcome = error.message
        if self._streaming:
            await self._body(sse.encode_data(error.json()) + sse.DONE, more=False)
        elif not self._status:
            body = error.json()
            headers = {**error.headers, "content-type": "application/json"}
            headers["content-length"] = str(len(body))
            vendors_id = error.headers.get("x-upstream-request-id")
            if vendors_id is not None and self._sent_id is None:
                # A client that has no name of its own for the request asks the vendor by this one.
                self.outcome += f" (the vendor's request {vendors_id})"
                headers["x-request-id"] = vendors_id
            await self._start(error.status, headers)
            await self._body(body, more=False)

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        if "x-request-id" not in headers:
            raw.append((b"x-request-id", self.request_id.encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def log(self) -> None:
        """One line about the request."""
        level = logging.WARNING if self.outcome else logging.INFO
        if log.isEnabledFor(level):
            milliseconds = (time.perf_counter() - self._begun) * 1000
            log.log(
                level,
                "%s POST %s model=%s status=%s %.0f ms%s",
                self.request_id,
                self._path,
                _one_line(self.model),
                self._status or "-",
                milliseconds,
                f": {_one_line(self.outcome)}" if self.outcome else "",
            )


def _one_line(text: str) -> str:
    """`text`, which may be anybody's, without what would forge lines of the log or fill it."""
    text = text[:MAX_LOGGED]
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
