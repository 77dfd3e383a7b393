"""A connection that speaks WebSocket (RFC 6455): messages in and out, with a bound on all that a
client chooses.

What the frames are is the `websockets` library's to know, which does no input or output here.
Nothing is compressed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from llama_compat.connection_errors import connection_limit_reached, request_timed_out
from llama_compat.errors import APIError
from routing.allowance import Allowance
from routing.asgi import RawHeaders
from routing.http.patience import Patience
from routing.http.peers import Intake, has_left
from routing.http.state import ServerState
from routing.http.writer import Writer
from routing.observability.logs import BoundedLog

log = BoundedLog(logging.getLogger(__name__))

_quiet = logging.getLogger(f"{__name__}.protocol")
_quiet.setLevel(logging.CRITICAL)  # the library tells of every connection that closes

MAX_OPEN = 16
"""So many messages of one client are worked on, or wait for that; then nothing more is read."""

FIRST_STEP_BYTES, LAST_STEP_BYTES = 512, 8192
"""So much is taken apart at a time: twice as much as before while no frame comes to its end."""

FRAMES_AT_ONCE = 64
"""After so many it is the turn of other connections: a frame may have as few as six bytes."""

MAX_EMPTY_FRAMES = 1000
"""In a second: pings, pongs and frames without anything in them, which cost a client next to
nothing and are no request that a limit would hold for."""

CLOSE_SECONDS = 5.0
"""How long a client may take to agree that the connection closes."""

NORMAL, GOING_AWAY, UNSUPPORTED, POLICY, INTERNAL, LATER = 1000, 1001, 1003, 1008, 1011, 1013
"""Why a WebSocket is closed (RFC 6455, section 7.4.1, and its registry)."""


_OFFER = frozenset({b"connection", b"upgrade"})


def handshake(headers: RawHeaders, request_id: str, limit: int) -> ServerProtocol:
    """The protocol of a connection that has been upgraded, with the answer to its client.

    Args:
        headers: of the request that offers it.
        request_id: its id.
        limit: bytes that a message may have.

    Raises:
        APIError: 400 or 426, it is not offered as it should be.
    """
    protocol = ServerProtocol(max_size=limit, logger=_quiet)
    protocol.receive_data(_head(headers))
    events = protocol.events_received()
    if not events:
        raise APIError(400, "The WebSocket's handshake can't be read.", code="invalid_handshake")
    assert isinstance(events[0], Request)
    answer = protocol.accept(events[0])
    if answer.status_code != 101:
        status = answer.status_code if answer.status_code in (400, 426) else 400
        why = str(protocol.handshake_exc)
        raise APIError(status, f"This is no WebSocket handshake: {why}.", code="invalid_handshake")
    answer.headers["x-request-id"] = request_id
    protocol.send_response(answer)
    return protocol


def _head(headers: RawHeaders) -> bytes:
    """A head with what the library has to see; the rest may be longer than it allows."""
    lines = [b"GET / HTTP/1.1"]
    for name, value in headers:
        if name in _OFFER or name.startswith(b"sec-websocket-"):
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"


class WebSocket(asyncio.Protocol):
    """One WebSocket, from its handshake to its end.

    `receive` gives its messages; whoever takes one says when it has been `taken`, and when it is
    `done` with it. A client that sends more than is worked on waits; so does who sends to one that
    reads too slowly.

    Args:
        server: what all connections share.
        transport, writer, intake: the connection's.
        protocol: what `handshake` gave.
        room: for the messages.

    Attributes:
        gone: the connection is closed, or closing: nothing more is received or sent.
        ending: the server ends, and takes no more messages.
    """

    def __init__(
        self,
        server: ServerState,
        transport: asyncio.Transport,
        writer: Writer,
        intake: Intake,
        protocol: ServerProtocol,
        room: Allowance,
    ) -> None:
        settings = server.limits.websockets
        assert settings is not None
        self._settings = settings
        self._limits = server.limits
        self._server = server
        self._transport = transport
        self._writer = writer
        self._intake = intake
        self._protocol = protocol
        self._room = room
        self._loop = asyncio.get_running_loop()
        self.gone = False
        self.ending = False
        self._watchers: dict[Callable[[], None], None] = {}
        # What has come: messages, a part of the next one, and bytes that were not looked at.
        self._messages: deque[bytes] = deque()
        self._bytes = 0  # of messages that were not taken
        self._open = 0  # messages that were given and are not done
        self._part: bytearray | None = None
        self._ahead = b""
        self._news: asyncio.Future[None] | None = None
        self._error: APIError | None = None
        # Time
        self._begun = self._heard = self._asked = monotonic()
        self._pinged = 0.0
        self._closing = 0.0
        self._patience = Patience()
        self._empty_frames = 0  # since the clock was looked at

    def begin(self, ahead: bytes) -> None:
        """Answer the handshake; `ahead` has come behind it."""
        self._server.connections.add(self)
        self._server.idle[self] = None
        self._flush()
        if self._server.ending:
            self.shutdown()
        elif ahead:
            self.data_received(ahead)

    # asyncio's protocol ---------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and with it all that it asked for."""
        self._server.connections.discard(self)
        self._leave()
        self._writer.end()

    def pause_writing(self) -> None:
        """The client reads slower than it is sent to. Pings that it may send have answers too, so
        nothing more is read of it."""
        self._writer.pause()
        self._intake.pause()

    def resume_writing(self) -> None:
        """The client has read enough."""
        self._writer.resume()
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Take apart what came."""
        if self.gone:
            return
        self._heard, self._pinged = monotonic(), 0.0
        if self._ahead:
            self._ahead += data
        else:
            self._feed(data)

    # Reading --------------------------------------------------------------------------------------

    @property
    def _is_full(self) -> bool:
        return self._open + len(self._messages) >= MAX_OPEN or self._writer.paused is not None

    def _feed(self, data: bytes) -> None:
        at, frames, step = 0, 0, FIRST_STEP_BYTES
        while at < len(data):
            if self._is_full or frames >= FRAMES_AT_ONCE:
                self._ahead = data[at:]
                self._intake.pause()
                if not self._is_full:
                    self._loop.call_soon(self._go_on)
                return
            before = self._partial
            self._protocol.receive_data(data[at : at + step])
            at += step
            events = self._protocol.events_received()
            frames += len(events)
            step = FIRST_STEP_BYTES if events else min(2 * step, LAST_STEP_BYTES)
            for event in events:
                self._take(event)
            self._flush()
            if self._protocol.state is not State.OPEN:
                self._end()
                return
            self._hold(before)
            if self._error is not None:
                return  # nothing more is read until the client has been told
        self._intake.resume()

    def _go_on(self) -> None:
        if self.gone or self._is_full or self._error is not None:
            return
        ahead, self._ahead = self._ahead, b""
        if ahead:
            self._feed(ahead)
        else:
            self._intake.resume()

    def _take(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        # The library has its last frame in hand until another comes, or its parser is collected.
        data, frame.data = frame.data, b""
        if not data or frame.opcode in (Opcode.PING, Opcode.PONG):
            self._empty_frames += 1
            if self._empty_frames > MAX_EMPTY_FRAMES:
                self.close(POLICY, "too many frames without anything in them")
                return
        if frame.opcode is Opcode.BINARY:
            self.close(UNSUPPORTED, "messages are text")
        elif frame.opcode is Opcode.TEXT or frame.opcode is Opcode.CONT:
            if self._part is None:
                if frame.fin:
                    self._add(bytes(data))
                    return
                self._part = bytearray()
            self._part += data
            if frame.fin:
                message, self._part = bytes(self._part), None
                self._add(message)

    def _add(self, message: bytes) -> None:
        if self.ending or self.gone or self._protocol.state is not State.OPEN:
            return
        self._messages.append(message)
        self._bytes += len(message)
        self._server.idle.pop(self, None)
        self._tell()

    @property
    def _partial(self) -> int:
        """Bytes of a message that has not come whole."""
        return len(self._protocol.reader.buffer) + (len(self._part) if self._part else 0)

    def _hold(self, before: int) -> None:
        """See that there is room for what has come; of a part of a message there were `before`
        bytes."""
        partial = self._partial
        if not before or partial < before:
            self._patience.begin()
        self._patience.progress += max(0, partial - before)
        self._count(partial)

    def _count(self, partial: int) -> None:
        try:
            self._room.grow_to(self._bytes + partial)
        except APIError as error:
            self._fail(error)
        else:
            self._room.shrink_to(self._bytes + partial)

    def _fail(self, error: APIError) -> None:
        self._error = self._error or error
        self._intake.pause()
        self._tell()

    # Messages -------------------------------------------------------------------------------------

    async def receive(self) -> bytes | None:
        """The next message; None when there are no more.

        Raises:
            APIError: the client takes too long or asks too much of the server. It should be told,
                and the connection closed.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._messages and not self.gone:
                self._open += 1
                return self._messages.popleft()
            if self.gone or self.ending:
                return None
            self._news = self._loop.create_future()
            try:
                await self._news
            finally:
                self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def taken(self, size: int) -> None:
        """A message of `size` bytes is somebody else's now."""
        self._bytes -= size
        self._count(self._partial)

    def done(self) -> None:
        """A message has been worked on."""
        self._open -= 1
        self._asked = monotonic()
        if not (self._open or self._messages or self.gone):
            self._server.idle[self] = None
        self._go_on()

    def watch(self, on_leaving: Callable[[], None], *, ends: bool = False) -> None:
        """Have `on_leaving` called when the client goes, at once if it has; `ends` ends that."""
        if ends:
            self._watchers.pop(on_leaving, None)
        elif self.gone:
            on_leaving()
        else:
            self._watchers[on_leaving] = None

    async def send(self, message: bytes) -> None:
        """Send a text; waits for a client that is slow."""
        while (paused := self._writer.paused) is not None and not self.gone:
            # Waited for together: who is cancelled is not to cancel it for the others.
            await asyncio.wait([paused])
        if not self.gone:
            self._protocol.send_text(message)
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            self._writer.write(data)

    # Its end --------------------------------------------------------------------------------------

    def close(self, code: int, reason: str = "") -> None:
        """Say why nothing more will come, and wait a moment for the client to agree."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
            self._flush()
            self._end()

    def _end(self) -> None:
        # What the client still sends is thrown away: unread, it would reset the connection under
        # what the client is told last.
        self._leave()
        self._ahead = b""
        self._writer.flush()
        if not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()
            self._intake.resume()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; it counts no more."""
        self._server.connections.discard(self)
        self._leave()
        self._transport.abort()

    def shutdown(self) -> None:
        """The server ends: what was asked is answered, and nothing else."""
        self.ending = True
        self._tell()

    def _leave(self) -> None:
        if self.gone:
            return
        self.gone = True
        self._closing = monotonic()
        self._server.idle.pop(self, None)
        self._messages.clear()
        self._part = None
        self._bytes = 0
        # What came of a frame, too: it would lie there until the client agrees to the end.
        self._protocol.reader.discard()
        self._room.shrink_to(0)
        self._tell()
        watchers, self._watchers = self._watchers, {}
        for tell in watchers:
            tell()

    # Time -----------------------------------------------------------------------------------------

    def look_at_clock(self, now: float) -> None:
        """End what takes longer than it may; called once a second."""
        settings, limits = self._settings, self._limits
        self._empty_frames = 0
        if self.gone:
            if now - self._closing > (1 if self._server.ending else CLOSE_SECONDS):
                self.abort()
        elif self._writer.is_stalled(now, limits.write_seconds):
            log.warning(
                "a client took no events for %g s (write_seconds): WebSocket closed",
                limits.write_seconds,
            )
            self.abort()
        elif self._intake.paused and has_left(self._transport):
            self.abort()
        elif now - self._begun > settings.max_seconds:
            self._fail(connection_limit_reached(settings.max_seconds))
        elif self._intake.paused:
            self._patience.begin(now)
        elif self._partial:
            late = now - self._patience.since > limits.body_seconds
            if not self._patience.moves(now) and late:
                self._fail(request_timed_out("body", limits.body_seconds))
        elif not self._open and now - self._asked > settings.idle_seconds:
            self.close(NORMAL, "nothing was asked for long")
        else:
            self._look_for_life(now)

    def _look_for_life(self, now: float) -> None:
        settings = self._settings
        if self._pinged:
            if now - self._pinged > settings.pong_seconds:
                log.warning(
                    "a client answered no ping for %g s (pong_seconds): WebSocket closed",
                    settings.pong_seconds,
                )
                self.abort()
        elif now - self._heard > settings.ping_seconds:
            self._pinged = now
            self._protocol.send_ping(b"")
            self._flush()
