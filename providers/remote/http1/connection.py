"""One connection: a request goes out, its answer comes in, and then perhaps the next.

A connection is `idle`, or it has an exchange: first the head of the answer is awaited, then its
body is read, or thrown away where nobody wants the rest (`discard`). It has no task of its own:
what arrives moves it, and one timer, which is seldom set anew, since a deadline that moves away
needs no other timer.
"""

from __future__ import annotations

import asyncio
import math
import select
from typing import Protocol, cast

from providers.remote.http1.errors import (
    ClosedError,
    DisconnectedError,
    HTTPError,
    ProtocolError,
    SilenceTimeout,
    TotalTimeout,
)
from providers.remote.http1.parser import ResponseParser
from providers.remote.http1.response import Response
from providers.remote.http1.timeouts import Timeouts

READ_BUFFER_BYTES = 1 << 18
"""What is read ahead of a slow reader before the connection is no longer read from."""

WRITE_BYTES = 1 << 16
"""A large request is written in pieces of this size, as fast as they are taken."""

DISCARD_SECONDS = 0.1
DISCARD_BYTES = 1 << 16
"""How near the end of an answer has to be whose rest nobody wants, so that it is read on to, and
the connection used again."""


class ConnectionOwner(Protocol):
    """Keeps connections; each calls it when it can be used again, and when it has closed."""

    def connection_idle(self, connection: HTTPConnection) -> None:
        """Called when the exchange is over, and another may begin."""

    def connection_closed(self, connection: HTTPConnection) -> None:
        """Called once when the connection has closed."""


class HTTPConnection(asyncio.Protocol):
    """A connection to a server, or by way of a proxy.

    Args:
        key: of the route that it belongs to.
        owner: keeps the connection.
        timeouts: for its exchanges.
        idle_seconds: closed when it was idle for so long.

    Attributes:
        leased: whether a request has it, for its owner to keep.
    """

    __slots__ = (
        "_deadline",
        "_error",
        "_head",
        "_idle",
        "_idle_seconds",
        "_loop",
        "_owner",
        "_parser",
        "_poll",
        "_reading",
        "_response",
        "_silence",
        "_timeouts",
        "_timer",
        "_timer_at",
        "_total_deadline",
        "_transport",
        "_unsent",
        "_writable",
        "key",
        "leased",
    )

    def __init__(
        self, key: str, owner: ConnectionOwner, timeouts: Timeouts, idle_seconds: float
    ) -> None:
        self.key = key
        self.leased = False
        self._owner = owner
        self._timeouts = timeouts
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._parser = ResponseParser()
        self._transport: asyncio.Transport | None = None
        self._idle = True
        self._head: asyncio.Future[Response] | None = None
        self._response: Response | None = None
        self._error: HTTPError | None = None
        self._unsent: memoryview | None = None
        self._reading = self._writable = True
        self._silence = 0.0
        self._deadline = self._total_deadline = self._timer_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    # For the owner --------------------------------------------------------------------------------

    def is_usable(self) -> bool:
        """Whether an exchange can begin: the server has neither left nor said anything unasked.

        What it said would be taken for the answer to the next request, which may be another
        client's. The system is asked too, for the event loop may not have had the time to look.
        """
        if not self._idle or self._error is not None or self._transport is None:
            return False
        return not self._transport.is_closing() and not self._poll.poll(0)

    @property
    def failure(self) -> HTTPError | None:
        """Why no exchange can begin or go on any more."""
        return self._error

    async def exchange(
        self, head: bytes, body: bytes | memoryview, total_deadline: float
    ) -> Response:
        """Send a request; the answer, once its head is there.

        Args:
            head: the request line and the headers, with the blank line.
            total_deadline: the loop's time at which the exchange has to be over.

        Raises:
            HTTPError: there is no answer.
        """
        assert self._idle and self._transport is not None  # noqa: PT018
        self._idle = False
        self._parser.expect()
        self._total_deadline = total_deadline
        self._silence = self._timeouts.first_byte
        self._expect_within(self._silence)
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._head = answer
        if len(body) <= WRITE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._unsent = memoryview(body)
            self._write_more()
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                # Its answer may have come since, and the connection have gone on to another.
                if self._head is answer:
                    self.abort()
            elif answer.exception() is None:
                answer.result().close()  # the connection may have gone on to another exchange
            raise

    def abort(self, error: HTTPError | None = None) -> None:
        """Close at once; whoever waits for something gets `error`."""
        self._end(error or ClosedError("the connection was closed on this side"))
        if self._transport is not None:
            self._transport.abort()

    # For the response -----------------------------------------------------------------------------

    def resume(self) -> None:
        """What was read ahead has been taken."""
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()
            self._expect_within(self._silence)

    def discard(self) -> None:
        """Nobody wants the rest of the answer: read on to its end if that is near, or close."""
        self.resume()
        self._expect_within(DISCARD_SECONDS)

    # Called by the event loop ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, idle."""
        self._transport = cast(asyncio.Transport, transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Take what the server has sent."""
        parser, response = self._parser, self._response
        if self._idle:
            self.abort(ProtocolError("the server spoke without being asked"))
            return
        if self._error is not None:
            return
        try:
            parser.feed(data)
        except ProtocolError as error:
            self.abort(error)
            return
        if response is None:
            if not parser.has_head:
                return
            response = self._begin_response()
        if parser.complete:
            self._complete(response)
        elif response.discarding:
            if not response.discard_more(len(data), DISCARD_BYTES):
                self.abort()
        else:
            if parser.body:
                self._silence = self._timeouts.between_bytes
            self._expect_within(self._silence)
            if response.take_in(len(data)) > READ_BUFFER_BYTES and self._reading:
                self._pause()

    def eof_received(self) -> None:
        """Take the end of what the server sends, even if there is more to be sent to it."""
        self._end_by_server(None)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end."""
        self._end_by_server(exc)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._owner.connection_closed(self)

    def pause_writing(self) -> None:
        """The server does not take what is sent as fast as it is written."""
        self._writable = False

    def resume_writing(self) -> None:
        """It has taken it."""
        self._writable = True
        self._write_more()

    # ----------------------------------------------------------------------------------------------

    def _begin_response(self) -> Response:
        response = self._response = Response(self, self._parser)
        head, self._head = self._head, None
        if head is not None and not head.done():
            head.set_result(response)
        elif head is not None:
            response.discard()  # whoever asked has left
        if response.status >= 300 and self._unsent is not None:
            # It is refused already. Never None again: this connection can't be used any more.
            self._unsent = memoryview(b"")
        return response

    def _complete(self, response: Response) -> None:
        self._response = None
        response.end(None)
        assert self._transport is not None
        if not self._parser.keep_alive or self._unsent is not None or self._transport.is_closing():
            self.abort()
            return
        self._idle = True
        self._total_deadline = math.inf
        self._silence = self._idle_seconds
        self._expect_within(self._silence)
        self.resume()
        self._owner.connection_idle(self)

    def _end_by_server(self, exc: Exception | None) -> None:
        if self._error is not None:
            return
        if self._response is not None and exc is None and self._parser.end():
            self._complete(self._response)
            return
        what = str(exc) if exc else "the server closed the connection"
        self._end(DisconnectedError(what, begun=self._parser.begun and not self._idle))

    def _end(self, error: HTTPError) -> None:
        if self._error is not None:
            return
        self._error = error
        self._unsent = None
        response, self._response = self._response, None
        if response is not None:
            response.end(error)
        elif self._head is not None and not self._head.done():
            self._head.set_exception(error)

    def _pause(self) -> None:
        assert self._transport is not None
        self._reading = False
        self._transport.pause_reading()
        self._deadline = self._total_deadline  # the silence is ours
        self._set_timer()

    def _write_more(self) -> None:
        if not self._unsent or not self._writable or self._error is not None:
            return
        assert self._transport is not None
        piece, rest = self._unsent[:WRITE_BYTES], self._unsent[WRITE_BYTES:]
        self._unsent = rest or None
        self._transport.write(piece)
        if self._response is None:
            self._expect_within(self._silence)
        if rest and self._writable:
            self._loop.call_soon(self._write_more)  # others have their turn in between

    def _expect_within(self, seconds: float) -> None:
        deadline = self._loop.time() + seconds
        total = self._total_deadline
        self._deadline = deadline if deadline < total else total
        if self._deadline < self._timer_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = self._deadline
        if self._deadline < math.inf:
            self._timer = self._loop.call_at(self._deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._loop.time() < self._deadline:
            self._set_timer()
        elif self._idle:
            self.abort()
        elif self._deadline == self._total_deadline:
            assert self._timeouts.total is not None
            self.abort(TotalTimeout(self._timeouts.total))
        else:
            self.abort(SilenceTimeout(self._silence))
