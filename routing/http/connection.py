"""A client's connection: requests in, one after the other, and their answers out."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from llama_compat.connection_errors import request_timed_out
from llama_compat.errors import APIError
from routing.asgi import UPGRADE
from routing.http.exchange import CONTINUE, HIGH_WATER_BYTES, STATUS_LINES, Exchange
from routing.http.patience import Patience
from routing.http.peers import Intake, address, has_left, peer_state
from routing.http.reader import RequestReader
from routing.http.repeats import MAX_REQUEST_BYTES, Repeat
from routing.http.state import ServerState
from routing.http.writer import Writer
from routing.observability.logs import BoundedLog

if TYPE_CHECKING:
    from routing.allowance import Allowance
    from routing.http.websocket import WebSocket

log = BoundedLog(logging.getLogger(__name__))

READ_AHEAD_BYTES = 64 * 1024
"""Of the requests behind the one that is answered; then nothing more is read."""

AHEAD_SECONDS = 5.0
"""How long so much may wait behind a request. Then it is thrown away, to see whether the client is
still there, and the connection closes after the answer."""

DISCARDED_BYTES = 4 * 1024 * 1024
"""In one second, while an answer is awaited."""

RESET_SECONDS = (0.02, 0.2)
"""So long after that it is seen whether the client has reset the connection; then once a second."""

AGAIN_SECONDS = 1.0
"""Then it is sent once more, as a relay between may have learnt by the first that the client has
left, and tells so who sends it the next."""

BEHIND_SECONDS = 5.0
"""Who has not even got that by then, and no answer, has left."""

LINGER_SECONDS = 5.0
"""How long what a refused client still sends is read and thrown away, so that it gets to read why:
closing at once would reset the connection under the answer."""


class Connection(asyncio.Protocol):
    """Has the application answer the requests that are read, one at a time.

    Nothing here grows faster than what the client sends, and all of it has a bound.

    Attributes:
        writer: what the client is sent goes there.
    """

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(self, server.limits)
        self.writer = Writer(self._loop)
        self._patience = Patience()
        # Requests: the one that is read, the one that is answered, those between them, and bytes.
        self._reading: Exchange | None = None
        self._answering: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._ahead = b""
        self._ahead_at = 0
        # What came last, where it is all of the one request that is answered.
        self._came = b""
        self._intake = Intake()
        # Whether the socket is read for nothing, until the client has gone.
        self._lingering = False
        self._discarded = 0
        # Whether the client sends no more, and may be waiting for its answer all the same.
        self._half_closed = False
        self._asked_again = False

    # asyncio's protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection."""
        self._transport = cast(asyncio.Transport, transport)
        self.writer.begin(self._transport)
        self._intake.begin(self._transport)
        self._reader.client = address(transport.get_extra_info("peername"))
        self._reader.local = address(transport.get_extra_info("sockname"))
        if self._server.ending:
            self._transport.close()
            return
        self._server.connections.add(self)
        self._server.idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and with it all that it asked for."""
        self._server.connections.discard(self)
        self._server.idle.pop(self, None)
        self._ahead = b""
        self._queue.clear()
        if self._answering is not None:
            self._answering.leave()
        self.writer.end()

    def eof_received(self) -> bool:
        """The client sends no more: it has closed the connection, or its own side of it alone, as
        scripts do, and reads its answer.

        The two differ in what becomes of what they are sent. Who has asked all and has no answer
        yet is sent what says nothing, and has left if that is refused. All others have left.
        """
        exchange = self._answering
        if (
            self._lingering
            or exchange is None
            or exchange.more_body
            or exchange.started
            or exchange.scope["http_version"] != "1.1"
            or not self._transport.can_write_eof()
            or peer_state(self._transport) is None
        ):
            return False
        exchange.keep_alive = False
        self._half_closed = True
        self._patience.begin()
        self.writer.write(CONTINUE, at_once=True)
        for seconds in RESET_SECONDS:
            self._loop.call_later(seconds, self._look_for_reset)
        return True

    def _look_for_reset(self) -> None:
        state = None if self._transport.is_closing() else peer_state(self._transport)
        if state is None:
            return
        # Of an answer that has begun something always is on its way, for `write_seconds`.
        waits = self._answering is not None and not self._answering.started
        waited = monotonic() - self._patience.since
        if state.has_reset or (waits and state.is_behind and waited > BEHIND_SECONDS):
            self.abort()
        elif waits and waited > AGAIN_SECONDS and not self._asked_again:
            self._asked_again = True
            self.writer.write(CONTINUE, at_once=True)

    def pause_writing(self) -> None:
        """The client takes its answer slower than it comes."""
        self.writer.pause()

    def resume_writing(self) -> None:
        """The client has taken enough of its answer."""
        self.writer.resume()

    def data_received(self, data: bytes) -> None:
        """Read what came, as far as its turn has come."""
        if self._lingering:
            self._discarded += len(data)
            if self._answering is not None and self._discarded > DISCARDED_BYTES:
                self._intake.pause()
            return
        if self._ahead:
            self._stash(self._ahead[self._ahead_at :] + data, 0)
            return
        self._came = b""
        if self._answering is None and self._reader.is_between and len(data) <= MAX_REQUEST_BYTES:
            if self._is_answered_again(data):
                return
            self._came = data
        self._feed(data, 0)

    # Again ----------------------------------------------------------------------------------------

    def _is_answered_again(self, data: bytes) -> bool:
        """Answer a request that is `data`, and came before, as it was answered then, if that may
        be."""
        server = self._server
        repeat = server.repeats.find(data)
        if repeat is None or self.writer.paused is not None or server.ending:
            return False
        try:
            varying = repeat.source.again()
        except Exception:
            logging.getLogger(__name__).exception("a request that came again is read")
            varying = None
        if varying is None:
            server.repeats.forget(data)
            return False
        self._patience.fresh = False
        self._patience.begin()
        server.idle.pop(self, None)
        server.idle[self] = None
        own = b"\r\n".join(map(b": ".join, (*server.default_headers, *varying)))
        answer = (STATUS_LINES[200], own, b"\r\n", repeat.head, b"\r\n\r\n", repeat.body)
        self.writer.write(b"".join(answer), at_once=True)
        return True

    def remember(self, exchange: Exchange, repeat: Repeat) -> None:
        """The request of `exchange`, which is answered now, may come again; if it came alone and in
        one piece."""
        came, self._came = self._came, b""
        if came and exchange is self._answering and not (self._reading or self._ahead):
            self._server.repeats.keep(came, repeat)

    # Reading --------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        """A request has come whole and is not answered: what follows has to wait."""
        return self._answering is not None and self._reading is None

    def _stash(self, data: bytes, at: int) -> None:
        # Reading goes on, as that is how a client is seen to leave; but not for ever.
        self._ahead, self._ahead_at = data, at
        if len(data) - at > READ_AHEAD_BYTES:
            self._intake.pause()

    def _feed(self, data: bytes, at: int) -> None:
        view, size, read = memoryview(data), len(data), self._reader.read
        try:
            while at < size:
                if self._busy:
                    self._stash(data, at)
                    return
                at = read(data, view, at)
        except APIError as error:
            self._refuse(error)

    # What is read ---------------------------------------------------------------------------------

    def head_begins(self) -> None:
        """A request begins."""
        if not self._patience.fresh:
            self._patience.begin()

    def head_ends(self, scope: dict[str, Any], *, keep_alive: bool, expects_continue: bool) -> None:
        """Its head is there; the application begins as soon as it is this request's turn."""
        if expects_continue:
            self._came = b""
        exchange = Exchange(self, scope, keep_alive=keep_alive, expects_continue=expects_continue)
        self._patience.fresh = False
        self._patience.begin()
        self._server.idle.pop(self, None)
        self._reading = exchange
        if self._answering is None:
            self._start(exchange)
        else:
            self._queue.append(exchange)

    def body_comes(self, part: bytes) -> None:
        """A piece of its body."""
        self._patience.progress += len(part)
        exchange = self._reading
        if exchange is None or exchange.complete:
            return
        exchange.add_body(part)
        if exchange.buffered > HIGH_WATER_BYTES:
            self._intake.pause()

    def message_ends(self) -> None:
        """It has come whole."""
        if self._reading is not None:
            self._reading.end_body()
            self._reading = None
        self._patience.begin()
        if self._answering is None:
            self._server.idle[self] = None

    def upgrade_offered(self) -> None:
        """Its client would speak a WebSocket from now on, if what it asks has come first."""
        exchange = self._answering
        if exchange is not None and not self._queue:
            exchange.scope["extensions"][UPGRADE] = partial(self._upgrade, exchange)

    def _upgrade(
        self, exchange: Exchange, request_id: str, limit: int, room: Allowance
    ) -> WebSocket:
        from routing.http.websocket import WebSocket, handshake

        protocol = handshake(exchange.scope["headers"], request_id, limit)
        ahead, self._ahead = self._ahead[self._ahead_at :], b""
        self._server.connections.discard(self)
        self._answering, exchange.complete = None, True
        socket = WebSocket(self._server, self._transport, self.writer, self._intake, protocol, room)
        self._transport.set_protocol(socket)
        self._intake.resume()
        socket.begin(ahead)
        return socket

    # Answering ------------------------------------------------------------------------------------

    def _start(self, exchange: Exchange) -> None:
        self._answering = exchange
        task = self._loop.create_task(exchange.run(self._server.application))
        exchange.task = task
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def wants_body(self) -> None:
        """The application waits for more of the body."""
        if self._intake.paused:
            self._intake.resume()
            # The client was made to wait: its time begins anew.
            self._patience.begin()

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
        self._patience.begin()
        self._server.idle[self] = None
        if self._ahead:
            # Not from within the application's turn: what is read may have it answer again.
            self._loop.call_soon(self._go_on)
        elif self._intake.paused:
            self._intake.resume()

    def _go_on(self) -> None:
        if self._answering is not None or self._transport.is_closing():
            return
        ahead, at = self._ahead, self._ahead_at
        self._ahead = b""
        self._feed(ahead, at)
        if len(self._ahead) - self._ahead_at <= READ_AHEAD_BYTES:
            self._intake.resume()

    def close(self, *, linger: bool = False) -> None:
        """Send what was written and close the connection.

        Args:
            linger: read on for a while, for nothing, as the client is still sending.
        """
        self.writer.flush()
        self._server.idle.pop(self, None)
        self._queue.clear()
        self._ahead = b""
        if not linger or self._transport.is_closing() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._lingering = True
        self._patience.begin()
        self._transport.write_eof()
        self._intake.resume()

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
        self.writer.write(STATUS_LINES[error.status] + head % len(body) + body)
        self.close(linger=True)

    # Time -----------------------------------------------------------------------------------------

    def look_at_clock(self, now: float) -> None:
        """End what takes longer than it may; called once a second."""
        limits, waited = self._limits, now - self._patience.since
        if self._half_closed:
            self._look_for_reset()
        if self.writer.is_stalled(now, limits.write_seconds):
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
        elif self._patience.fresh or self._reader.framed_bytes:
            if waited > limits.header_seconds:
                if self._reader.framed_bytes:
                    self._refuse(request_timed_out("headers", limits.header_seconds))
                else:
                    log.info("a client said nothing: connection closed")
                    self.close()
        elif waited > limits.idle_seconds:
            self.close()

    def _look_at_body(self, now: float, waited: float) -> None:
        if self._intake.paused:
            self._patience.begin(now)
        elif not self._patience.moves(now) and waited > self._limits.body_seconds:
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
        if not self._intake.paused:
            return
        if has_left(self._transport):
            self.abort()
        elif self._lingering or waited > AHEAD_SECONDS:
            assert self._answering is not None
            self._answering.keep_alive = False
            self._ahead = b""
            self._lingering, self._discarded = True, 0
            self._intake.resume()
