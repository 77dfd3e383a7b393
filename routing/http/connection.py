"""A client's connection: requests in, one after the other, and their answers out."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from time import monotonic
from typing import cast
from urllib.parse import unquote

import httptools

from llama_compat.errors import (
    APIError,
    headers_too_large,
    malformed_request,
    request_timed_out,
)
from routing.asgi import HEADERS
from routing.http.exchange import HIGH_WATER_BYTES, STATUS_LINES, Exchange
from routing.http.limits import PROGRESS_BYTES
from routing.http.peers import address, has_left
from routing.http.state import ServerState
from routing.logs import BoundedLog

log = BoundedLog(logging.getLogger(__name__))

READ_AHEAD_BYTES = 64 * 1024
"""Of the requests behind the one that is answered; then nothing more is read."""

AHEAD_SECONDS = 5.0
"""How long so much may wait behind a request. Then it is thrown away, to see whether the client is
still there, and the connection closes after the answer."""

DISCARDED_BYTES = 4 * 1024 * 1024
"""In one second, while an answer is awaited."""

CHUNKED_STEP_BYTES = 1024
"""Nobody knows where a body in chunks ends: no more than this is looked at past its end."""

LARGEST_FRAMING = 8
"""Bytes of framing for a byte of a body in chunks; a chunk of one byte has five. More is chunk
extensions or trailers without an end, beyond what a request's headers may come to."""

GATHERED_BYTES = 64 * 1024
"""What is written waits for the end of the loop's turn, up to so much."""

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_VERSIONS = frozenset({"1.0", "1.1"})

LINGER_SECONDS = 5.0
"""How long what a refused client still sends is read and thrown away, so that it gets to read why:
closing at once would reset the connection under the answer."""


class Connection(asyncio.Protocol):
    """Reads requests with httptools' parser and has the application answer one at a time.

    Where a message ends within what came is looked for first, and the parser is fed up to there:
    what is behind a request that has not been answered stays bytes. Nothing here grows faster than
    what the client sends, and all of it has a bound.

    What one turn of the event loop has to say is sent at once: headers and body, and events of a
    stream that come together, are one system call.

    Attributes:
        writing_paused: done when the client has taken enough of what it was sent; None where it is
            not behind.
        default_headers: those of every answer.
    """

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._limits = server.limits
        self._max_headers = server.limits.max_headers
        self._max_head_bytes = server.limits.max_header_bytes
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        # After "Connection: close" llhttp would take more data for an error, even in its own turn.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.writing_paused: asyncio.Future[None] | None = None
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        # Requests: the one that is read, the one that is answered, those between them, and bytes.
        self._reading: Exchange | None = None
        self._answering: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._ahead = b""
        self._ahead_at = 0
        self._paused = False
        # The head that is read.
        self._in_head = True
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        # The body that is read.
        self._body_left: int | None = None
        self._unparsed_left = 0
        self._body_bytes = 0
        self._framed_bytes = 0
        # The clock's.
        self._fresh = True
        self._since = monotonic()
        self._progress = 0
        self._stalled_since = 0.0
        self._taken = 0
        self._lingering = False
        self._discarded = 0
        self._refusal: APIError | None = None
        self._written = 0

    # asyncio's protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._client = address(transport.get_extra_info("peername"))
        self._local = address(transport.get_extra_info("sockname"))
        if self._server.ending:
            self._transport.close()
            return
        self._server.connections.add(self)
        self._server.idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and with it all that it asked for."""
        self._server.connections.discard(self)
        self._server.idle.pop(self, None)
        self._gathered.clear()
        self._ahead = b""
        self._queue.clear()
        if self._answering is not None:
            self._answering.leave()
        self.resume_writing()

    def pause_writing(self) -> None:
        """The client takes its answer slower than it comes."""
        if self.writing_paused is None:
            self.writing_paused = self._loop.create_future()

    def resume_writing(self) -> None:
        """The client has taken enough of its answer."""
        if self.writing_paused is not None:
            if not self.writing_paused.done():
                self.writing_paused.set_result(None)
            self.writing_paused = None

    def data_received(self, data: bytes) -> None:
        """Read what came, as far as its turn has come."""
        if self._lingering:
            self._discarded += len(data)
            if self._answering is not None and self._discarded > DISCARDED_BYTES:
                self._pause_reading()
            return
        if self._ahead:
            self._stash(self._ahead[self._ahead_at :] + data, 0)
        else:
            self._feed(data, 0)

    # Reading --------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        """A request has come whole and is not answered: what follows has to wait."""
        return self._answering is not None and self._reading is None

    def _stash(self, data: bytes, at: int) -> None:
        # Reading goes on, as that is how a client is seen to leave; but not for ever.
        self._ahead, self._ahead_at = data, at
        if len(data) - at > READ_AHEAD_BYTES:
            self._pause_reading()

    def _feed(self, data: bytes, at: int) -> None:
        view, size = memoryview(data), len(data)
        try:
            while at < size:
                if self._busy:
                    self._stash(data, at)
                    return
                if self._unparsed_left:
                    end = min(size, at + self._unparsed_left)
                    self._take_unparsed(data[at:end])
                    at = end
                else:
                    at += self._parse(view[at : self._next_end(data, at, size)])
        except APIError as error:
            self._refuse(error)

    def _next_end(self, data: bytes, at: int, size: int) -> int:
        """Up to where `data` is parsed next: no further than the message that begins or goes on."""
        if self._in_head:
            found = data.find(b"\r\n\r\n", at)
            room = self._max_head_bytes - self._framed_bytes
            return min(size if found < 0 else found + 4, at + room + 1)
        if self._body_left is None:
            return min(size, at + CHUNKED_STEP_BYTES)
        return min(size, at + max(1, self._body_left))

    def _parse(self, data: memoryview) -> int:
        """Have the parser read `data`; how much of it was read."""
        head_before, read = self._in_head, len(data)
        self._framed_bytes += read
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            read = offer.args[0]
            self._decline_upgrade()
        except httptools.HttpParserError:
            raise self._refusal or malformed_request() from None
        if self._in_head:
            # What the parser keeps of a header that does not end is in no callback yet.
            if head_before and self._framed_bytes > self._max_head_bytes:
                raise headers_too_large(self._max_head_bytes)
        elif self._framed_bytes > (
            self._limits.max_header_bytes + (LARGEST_FRAMING + 1) * self._body_bytes
        ):
            raise malformed_request("its chunks are more framing than body")
        return read

    def _decline_upgrade(self) -> None:
        # An upgrade is an offer, which need not be taken (RFC 9110, section 7.8): Java's client
        # offers HTTP/2 with every first request. But the parser takes it for given, and what
        # follows for another protocol's, which a body is not.
        reading = self._reading
        if reading is None:
            return
        if self._body_left:
            self._unparsed_left = self._body_left
        elif self._body_left is None:
            raise malformed_request("a body in chunks and an upgrade don't go together")

    def _take_unparsed(self, data: bytes) -> None:
        self._unparsed_left -= len(data)
        self.on_body(data)
        if not self._unparsed_left:
            self._message_complete()

    def _refused(self, error: APIError) -> APIError:
        # The parser tells of what its callbacks raise, but not what it was.
        self._refusal = error
        return error

    # httptools' callbacks -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        self._url = b""
        self._headers = []
        self._body_left = 0
        if not self._fresh:  # the head of the first has to come in time from the very beginning
            self._since = monotonic()

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, of which nothing is wanted."""
        headers = self._headers
        headers.append((name.lower(), value))
        if len(headers) > self._max_headers:
            raise self._refused(headers_too_large(self._max_headers, "headers"))

    def _look_at_framing(self, headers: Mapping[bytes, bytes]) -> None:
        """How the body comes, by the headers, of which the parser has refused two that differ."""
        length = headers.get(b"content-length")
        if b"transfer-encoding" in headers:
            self._body_left = None
        elif length is not None:
            if len(length) > 20:
                raise self._refused(malformed_request("its content-length has too many digits"))
            self._body_left = int(length)

    def on_headers_complete(self) -> None:
        """The body follows; the application begins as soon as it is this request's turn."""
        parser, url = self._parser, self._url
        headers, self._headers = self._headers, []  # a trailer is none of these
        by_name = dict(headers)
        self._look_at_framing(by_name)
        self._in_head = False
        self._body_bytes = self._framed_bytes = 0
        version = parser.get_http_version()
        if version not in _VERSIONS:
            raise self._refused(malformed_request(f"HTTP/{version} is not spoken here"))
        if url.startswith(b"/") and b"?" not in url and b"#" not in url:
            raw_path, query = url, b""
        else:
            parsed = httptools.parse_url(url)
            raw_path, query = parsed.path or b"/", parsed.query or b""
        path = raw_path.decode("ascii")
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self._local,
            "client": self._client,
            "scheme": "http",
            "root_path": "",
            "headers": headers,
            HEADERS: by_name,
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
        }
        exchange = Exchange(
            self,
            scope,
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            expects_continue=by_name.get(b"expect", b"").lower() == b"100-continue",
        )
        self._fresh = False
        self._since, self._progress = monotonic(), 0
        self._server.idle.pop(self, None)
        self._reading = exchange
        if self._answering is None:
            self._start(exchange)
        else:
            self._queue.append(exchange)

    def on_body(self, body: bytes) -> None:
        """A piece of a request's body."""
        size = len(body)
        self._body_bytes += size
        self._progress += size
        if self._body_left:
            self._body_left -= size
        exchange = self._reading
        if exchange is None or exchange.complete:
            return
        exchange.add_body(body)
        if exchange.buffered > HIGH_WATER_BYTES:
            self._pause_reading()

    def on_message_complete(self) -> None:
        """A request has come whole."""
        if not (self._parser.should_upgrade() and self._body_left != 0):
            self._message_complete()

    def _message_complete(self) -> None:
        if self._reading is not None:
            self._reading.end_body()
            self._reading = None
        self._in_head = True
        self._framed_bytes = 0
        self._since = monotonic()
        if self._answering is None:
            self._server.idle[self] = None

    # Answering ------------------------------------------------------------------------------------

    def _start(self, exchange: Exchange) -> None:
        self._answering = exchange
        task = self._loop.create_task(exchange.run(self._server.application))
        exchange.task = task
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def wants_body(self) -> None:
        """The application waits for more of the body."""
        if self._paused:
            self._resume_reading()
            # The client was made to wait: its time begins anew.
            self._since, self._progress = monotonic(), 0

    def write(self, data: bytes, *, at_once: bool = False) -> None:
        """Have `data` sent when the event loop comes round, or `at_once` with all before it."""
        if not data:
            return
        if not self._gathered:
            if at_once:
                self._send(data)
                return
            self._loop.call_soon(self._flush)
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if at_once or self._gathered_bytes > GATHERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        self._gathered_bytes = 0
        self._send(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._written += len(data)
            self._transport.write(data)

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Those of every answer."""
        return self._server.default_headers

    def answered(self, exchange: Exchange) -> None:
        """`exchange` is complete: it is the next one's turn."""
        self._answering = None
        if not exchange.keep_alive or self._server.ending:
            self.close(linger=exchange.more_body)
            return
        if self._queue:
            self._start(self._queue.popleft())
            return
        self._since = monotonic()
        self._server.idle[self] = None
        if self._ahead:
            # Not from within the application's turn: what is read may have it answer again.
            self._loop.call_soon(self._go_on)
        elif self._paused:
            self._resume_reading()

    def _go_on(self) -> None:
        if self._answering is not None or self._transport.is_closing():
            return
        ahead, at = self._ahead, self._ahead_at
        self._ahead = b""
        self._feed(ahead, at)
        if len(self._ahead) - self._ahead_at <= READ_AHEAD_BYTES:
            self._resume_reading()

    def close(self, *, linger: bool = False) -> None:
        """Send what was written and close the connection.

        Args:
            linger: read on for a while, for nothing, as the client is still sending.
        """
        self._flush()
        self._server.idle.pop(self, None)
        self._queue.clear()
        self._ahead = b""
        if not linger or self._transport.is_closing() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._lingering = True
        self._since = monotonic()
        self._transport.write_eof()
        self._resume_reading()

    def abort(self) -> None:
        """Close the connection at once; it counts no more."""
        self._server.connections.discard(self)
        self._server.idle.pop(self, None)
        self._transport.abort()

    def shutdown(self) -> None:
        """The server ends: what has come whole is answered, the rest is not waited for."""
        if self._answering is None:
            self.close()
            return
        self._answering.keep_alive = False
        self._queue.clear()
        if self._answering.reads and self._answering.task is not None:
            self._answering.task.cancel()  # the endpoint tells the client why

    def _refuse(self, error: APIError) -> None:
        """Answer what is no request, or too much of one, and close."""
        log.warning("a client is refused: %s", error.message)
        self._reading = None
        if self._answering is not None:
            # Its answer goes on; what is behind it is not read.
            answering = self._answering
            answering.keep_alive = False
            self._queue.clear()
            if not answering.more_body:
                self._lingering = True
                return
            answering.leave()
            if answering.started:
                self.close(linger=True)
                return
        body = error.json()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.write(STATUS_LINES[error.status] + head % len(body) + body)
        self.close(linger=True)

    # Time -----------------------------------------------------------------------------------------

    def look_at_clock(self, now: float) -> None:
        """End what takes longer than it may; called once a second."""
        limits, waited = self._limits, now - self._since
        if self._does_not_read(now):
            log.warning(
                "a client took no answer for %g s (write_seconds): connection closed",
                limits.write_seconds,
            )
            self.abort()
        elif self._lingering and self._answering is None:
            if waited > (1 if self._server.ending else LINGER_SECONDS):
                self.abort()
        elif self._reading is not None:
            self._look_at_body(now, waited)
        elif self._answering is not None:
            self._look_behind(waited)
        elif self._fresh or self._framed_bytes:
            if waited > limits.header_seconds:
                if self._framed_bytes:
                    self._refuse(request_timed_out("headers", limits.header_seconds))
                else:
                    log.info("a client said nothing: connection closed")
                    self.close()
        elif waited > limits.idle_seconds:
            self.close()

    def _look_at_body(self, now: float, waited: float) -> None:
        if self._paused or self._progress >= PROGRESS_BYTES:
            self._since, self._progress = now, 0
        elif waited > self._limits.body_seconds:
            error = request_timed_out("body", self._limits.body_seconds)
            exchange = self._reading
            assert exchange is not None
            if exchange is self._answering and not exchange.late:
                log.warning("a client is refused: %s", error.message)
                exchange.give_up()
            else:
                self.abort()

    def _look_behind(self, waited: float) -> None:
        # That a client has left is the last thing that is read of it, and this may never be read.
        if not self._paused:
            return
        if has_left(self._transport):
            self.abort()
        elif self._lingering or waited > AHEAD_SECONDS:
            assert self._answering is not None
            self._answering.keep_alive = False
            self._ahead = b""
            self._lingering, self._discarded = True, 0
            self._resume_reading()

    def _does_not_read(self, now: float) -> bool:
        """Whether what was written has hardly moved for too long."""
        unsent = self._transport.get_write_buffer_size()
        taken = self._written - unsent
        if not unsent or taken - self._taken >= PROGRESS_BYTES:
            self._taken, self._stalled_since = taken, now
            return False
        return now - self._stalled_since > self._limits.write_seconds

    # Pausing --------------------------------------------------------------------------------------

    def _pause_reading(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
