"""A vendor in a process of its own, that fails as it is told.

    python -m tests.integration.chaos.upstream NAME PORT FOLDER

The file NAME.mode in FOLDER names a function of `MODES`, which answers each request from then on.
NAME.log keeps what became of them, whatever becomes of the process: lines of a time (of the
machine's monotonic clock, so that they can be compared), a request's id, and what happened: it
`came`, and somebody still waits who `asked`, the first of the `content` was sent, all was `done`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.integration.scripted_upstream import BEHAVIOURS, Exchange, ScriptedUpstream
from tests.integration.upstream_behaviours import chunk, completion, usage_chunk

SLOW_SECONDS = 0.4

FROZEN_SECONDS = 0.5
"""A moment that takes so long was none."""

BETWEEN_EVENTS_SECONDS = 0.01
"""So that something can happen in the middle of a stream."""


class Vendor:
    """One of the vendors.

    Args:
        name: which one; it is the first word of all that it says.
        folder: where it looks for its mode, and keeps its log.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.pieces = [f"{name}:", " a", " b", " c", " d", " e"]
        self._mode = folder / f"{name}.mode"
        self._log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def answer(self, exchange: Exchange) -> None:
        """Answer in the mode that counts now."""
        self.note(exchange, "came")
        # Who has left while this process was frozen is not heard any more.
        frozen = True
        while frozen:
            begun = time.monotonic()
            await exchange.pause()
            frozen = time.monotonic() - begun > FROZEN_SECONDS
        self.note(exchange, "asked")
        await MODES[self._mode.read_text()](self, exchange)

    def note(self, exchange: Exchange, what: str) -> None:
        """Keep what happened to a request."""
        request_id = exchange.request.header("x-request-id")
        os.write(self._log, f"{time.monotonic_ns()} {request_id} {what}\n".encode())


Mode = Callable[[Vendor, Exchange], Awaitable[None]]


async def healthy(vendor: Vendor, exchange: Exchange) -> None:
    """All is well."""
    if exchange.wants_stream:
        await exchange.start_stream()
        await exchange.event(chunk({"role": "assistant", "content": ""}))
        vendor.note(exchange, "content")
        for piece in vendor.pieces:
            await exchange.event(chunk({"content": piece}))
            await asyncio.sleep(BETWEEN_EVENTS_SECONDS)
        await exchange.event(chunk({}, "stop"))
        if exchange.wants_usage:
            await exchange.event(usage_chunk())
        await exchange.done()
    else:
        vendor.note(exchange, "content")
        await exchange.json(completion({"content": "".join(vendor.pieces)}))
    vendor.note(exchange, "done")


async def slow(vendor: Vendor, exchange: Exchange) -> None:
    """It takes its time."""
    await asyncio.sleep(SLOW_SECONDS)
    await healthy(vendor, exchange)


async def resetting(vendor: Vendor, exchange: Exchange) -> None:
    """The connection is reset instead of an answer."""
    exchange.cut()


async def too_many(vendor: Vendor, exchange: Exchange) -> None:
    """429, and when to come back."""
    error = {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded"}
    await exchange.json({"error": error}, status=429, headers=[("Retry-After", "1")])


async def server_error(vendor: Vendor, exchange: Exchange) -> None:
    """500."""
    await exchange.json({"error": {"message": "Oops.", "type": "server_error"}}, status=500)


async def html_error(vendor: Vendor, exchange: Exchange) -> None:
    """A proxy's page that says 502."""
    page = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    await exchange.reply(page, status=502, content_type="text/html")


async def html_page(vendor: Vendor, exchange: Exchange) -> None:
    """A page where an answer should be, with a status that says that all is well."""
    await exchange.reply(b"<html><body>Log in, please.</body></html>", content_type="text/html")


async def dying_before_content(vendor: Vendor, exchange: Exchange) -> None:
    """A stream that is reset when it has begun and said nothing; half a reply."""
    if exchange.wants_stream:
        await exchange.start_stream()
        await exchange.event(chunk({"role": "assistant", "content": ""}))
    else:
        await exchange.head(200, [("Content-Type", "application/json"), ("Content-Length", "999")])
        await exchange.raw(b'{"id": "up-1", "choices": [{"index": 0, "message": {"content": "x')
    exchange.cut()


async def dying_after_content(vendor: Vendor, exchange: Exchange) -> None:
    """A stream that is reset in the middle of what it says."""
    if not exchange.wants_stream:
        await dying_before_content(vendor, exchange)
        return
    await exchange.start_stream()
    await exchange.event(chunk({"role": "assistant", "content": ""}))
    vendor.note(exchange, "content")
    for piece in vendor.pieces[:3]:
        await exchange.event(chunk({"content": piece}))
    # What is on its way should arrive before the reset, which overtakes it otherwise.
    await asyncio.sleep(5 * BETWEEN_EVENTS_SECONDS)
    exchange.cut()


MODES: dict[str, Mode] = {
    mode.__name__: mode
    for mode in (
        healthy,
        slow,
        resetting,
        too_many,
        server_error,
        html_error,
        html_page,
        dying_before_content,
        dying_after_content,
    )
}


def main(name: str, port: int, folder: Path) -> None:
    """Serve until SIGTERM."""
    BEHAVIOURS["model"] = Vendor(name, folder).answer
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with ScriptedUpstream(port=port):
        (folder / f"{name}.ready").touch()
        stop.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
