"""What a client is sent: gathered, and held back while it takes nothing."""

from __future__ import annotations

import asyncio

from routing.http.limits import PROGRESS_BYTES

GATHERED_BYTES = 64 * 1024
"""What is written waits for the end of the loop's turn, up to so much."""


class Writer:
    """Writes to one connection.

    What one turn of the event loop has to say is sent at once: headers and body, and events of a
    stream that come together, are one system call.

    Attributes:
        paused: done when the client has taken enough of what it was sent; None where it is not
            behind.
    """

    __slots__ = (
        "_gathered",
        "_gathered_bytes",
        "_loop",
        "_stalled_since",
        "_taken",
        "_transport",
        "_written",
        "paused",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self.paused: asyncio.Future[None] | None = None
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._written = 0
        self._taken = 0
        self._stalled_since = 0.0

    def begin(self, transport: asyncio.Transport) -> None:
        """There is a connection to write to."""
        self._transport = transport

    def end(self) -> None:
        """There is none any more."""
        self._gathered.clear()
        self.resume()

    def pause(self) -> None:
        """The client takes its answer slower than it comes."""
        if self.paused is None:
            self.paused = self._loop.create_future()

    def resume(self) -> None:
        """The client has taken enough of its answer."""
        if self.paused is not None:
            if not self.paused.done():
                self.paused.set_result(None)
            self.paused = None

    def write(self, data: bytes, *, at_once: bool = False) -> None:
        """Have `data` sent when the event loop comes round, or `at_once` with all before it."""
        if not data:
            return
        if not self._gathered:
            if at_once:
                self._send(data)
                return
            self._loop.call_soon(self.flush)
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if at_once or self._gathered_bytes > GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what was gathered."""
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        self._gathered_bytes = 0
        self._send(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    def _send(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._written += len(data)
            transport.write(data)

    def is_stalled(self, now: float, seconds: float) -> bool:
        """Whether what was written has hardly moved for longer than `seconds`."""
        if self._transport is None:
            return False
        unsent = self._transport.get_write_buffer_size()
        taken = self._written - unsent
        if not unsent or taken - self._taken >= PROGRESS_BYTES:
            self._taken, self._stalled_since = taken, now
            return False
        return now - self._stalled_since > seconds
