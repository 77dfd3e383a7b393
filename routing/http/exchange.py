"""One request and its answer, over ASGI."""

from __future__ import annotations

import asyncio
import http
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from routing.asgi import REPEAT, WATCH, ASGIApplication
from routing.http.repeats import MAX_ANSWER_BYTES, Repeat, Repeatable

if TYPE_CHECKING:
    from routing.http.connection import Connection

log = logging.getLogger(__name__)

HIGH_WATER_BYTES = 64 * 1024
"""Of a body that nobody has asked for yet; then the client waits."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""What every client of HTTP/1.1 takes before an answer, asked for or not (RFC 9110, 15.2)."""


def _status_line(status: int) -> bytes:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


STATUS_LINES = {status: _status_line(status) for status in range(100, 600)}

_BODILESS = frozenset({204, 304})


class Exchange:
    """One request as its application sees it: `receive` and `send`.

    Attributes:
        scope: ASGI's.
        buffered: bytes of the body that nobody has asked for yet.
        more_body: the rest of the body has not come yet.
        keep_alive: another request may follow on the connection.
        complete: the answer has been sent.
        gone: the client has left.
        late: the client stopped sending its body.
        task: the application, while it runs.
    """

    __slots__ = (
        "_body",
        "_chunked",
        "_connection",
        "_expects_continue",
        "_has_news",
        "_left",
        "_on_leaving",
        "_repeatable",
        "_repeated_body",
        "_repeated_head",
        "_unsent_head",
        "_waiting",
        "buffered",
        "complete",
        "gone",
        "keep_alive",
        "late",
        "more_body",
        "scope",
        "started",
        "task",
    )

    def __init__(
        self,
        connection: Connection,
        scope: dict[str, Any],
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.more_body = True
        self.started = False
        self.complete = False
        self.gone = False
        self.late = False
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._expects_continue = expects_continue
        self._unsent_head = b""  # goes out with what is first of the body
        self._has_news = False
        self._waiting: asyncio.Future[None] | None = None
        self._body: list[bytes] = []
        self.buffered = 0
        self._chunked = False
        self._left: int | None = None
        self._on_leaving: Callable[[], None] | None = None
        self._repeatable: Repeatable | None = None
        scope["extensions"] = {WATCH: self.watch, REPEAT: self.repeat}

    async def run(self, application: ASGIApplication) -> None:
        """Have `application` answer; what it leaves half-done ends the connection."""
        try:
            await application(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            pass  # the server stops; what could be said of it has been
        except Exception:
            log.exception("%s %s failed", self.scope["method"], self.scope["path"])
            if not self.started:
                await self._internal_error()
        if not self.complete and not self.gone:
            self._connection.close()
        del self.scope["extensions"]  # refers to this: nothing is left for the garbage collector

    # What the connection has to tell --------------------------------------------------------------

    def add_body(self, part: bytes) -> None:
        """More of the body has come."""
        self._body.append(part)
        self.buffered += len(part)
        self._tell()

    def end_body(self) -> None:
        """All of the body has come."""
        self.more_body = False
        self._tell()

    def leave(self) -> None:
        """The client has gone."""
        self.gone = True
        self._tell()
        if self._on_leaving is not None:
            self._on_leaving()

    def watch(self, on_leaving: Callable[[], None] | None) -> None:
        """Have `on_leaving` called when the client goes, at once if it has; None ends that."""
        self._on_leaving = on_leaving
        if on_leaving is not None and self.gone:
            on_leaving()

    def repeat(self, again: Repeatable) -> None:
        """Have the same bytes answered as this request is, should they come again and `again`
        agree."""
        if not self.started and self.keep_alive:
            self._repeatable, self._repeated_body = again, b""

    def give_up(self) -> None:
        """The client does not go on sending: whoever reads the body learns so."""
        self.late = True
        self._tell()

    @property
    def reads(self) -> bool:
        """Whether the rest of the body is waited for."""
        return self.more_body and not self.complete and not self.gone

    # ASGI -----------------------------------------------------------------------------------------

    async def receive(self) -> dict[str, Any]:
        """The next part of the body, or that the client is gone.

        A client that stopped sending is gone with `late` set: it can still be told so.
        """
        if self._expects_continue:
            self._expects_continue = False
            if not self.started:
                self._connection.writer.write(CONTINUE)
        if not self.gone and not self.complete and not self.late:
            if self.more_body:
                self._connection.wants_body()
            if not self._has_news:
                await self._news()
            self._has_news = False
        if self.gone or self.complete:
            return {"type": "http.disconnect"}
        if self.late:
            return {"type": "http.disconnect", "late": True}
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self.buffered = 0
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def _tell(self) -> None:
        """There is something for `receive` to give."""
        self._has_news = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _news(self) -> None:
        # Made only if it is waited for, as most requests have come whole before anybody asks.
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    async def send(self, message: dict[str, Any]) -> None:
        """The status and the headers, or a part of the body; waits for a client that is slow.

        Raises:
            RuntimeError: not what can come next, or a header that is none.
        """
        connection, writer = self._connection, self._connection.writer
        if writer.paused is not None and not self.gone:
            await writer.paused
        if self.gone:
            return
        if not self.started:
            if message["type"] != "http.response.start":
                raise RuntimeError(f"the answer began with {message['type']}")
            self._unsent_head = self._head(message["status"], message.get("headers", ()))
            self.started = True
            return
        if self.complete or message["type"] != "http.response.body":
            raise RuntimeError(f"{message['type']} in or after the body of an answer")
        body, more = message.get("body", b""), message.get("more_body", False)
        head, self._unsent_head = self._unsent_head, b""
        data = b""
        if self._chunked:
            if body:
                data = b"%x\r\n%b\r\n" % (len(body), body)
            if not more:
                data += b"0\r\n\r\n"
        elif self.scope["method"] != "HEAD":
            if self._left is not None:
                self._left -= len(body)
                if self._left < 0 or (self._left and not more):
                    raise RuntimeError("the body is not as long as its content-length")
            data = body
        writer.write(head + data if head else data, at_once=not more)
        if self._repeatable is not None:
            self._note_repeat(self._repeatable, data, more=more)
        if not more:
            self.complete = True
            self._tell()
            connection.answered(self)

    def _note_repeat(self, source: Repeatable, data: bytes, *, more: bool) -> None:
        """Keep what is sent, so that it can be sent again."""
        self._repeated_body += data
        if len(self._repeated_body) > MAX_ANSWER_BYTES:
            self._repeatable = None
        elif not more and self.keep_alive:
            repeat = Repeat(source, self._repeated_head, self._repeated_body)
            self._connection.remember(self, repeat)

    def _head(self, status: int, headers: Any) -> bytes:
        # A body that has not come whole would have to be read and thrown away, however long it is.
        self.keep_alive = self.keep_alive and not self.more_body
        lines = [*self._connection.default_headers, *headers]
        by_name = dict(lines)
        connection = by_name.get(b"connection")
        if connection is not None and b"close" in connection.lower():
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append((b"connection", b"close"))
        length = by_name.get(b"content-length")
        self._left = None if length is None else int(length)
        # HTTP/1.0 has no chunks: the end of the body is the end of the connection.
        self._chunked = (
            length is None
            and self.scope["method"] != "HEAD"
            and self.scope["http_version"] == "1.1"
            and status not in _BODILESS
        )
        if self._chunked:
            lines.append((b"transfer-encoding", b"chunked"))
        told = [*map(b": ".join, lines)]
        # Looked for before there are any between the lines: to count them takes several times as
        # long as to find that there is none.
        find = b"".join(told).find
        if find(b"\n") >= 0 or find(b"\r") >= 0 or find(b"\0") >= 0:
            raise RuntimeError("a header holds a line break or a NUL")
        if self._repeatable is not None:
            if status != 200:
                self._repeatable = None
            else:
                own, varying = len(self._connection.default_headers), self._repeatable.varying
                same = [each for each in lines[own:] if each[0] not in varying]
                self._repeated_head = b"\r\n".join(map(b": ".join, same))
        told.append(b"\r\n")
        return STATUS_LINES[status] + b"\r\n".join(told)

    async def _internal_error(self) -> None:
        body = b"Internal Server Error"
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
