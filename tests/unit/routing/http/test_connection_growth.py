"""What a client sends is read in time that grows as it does.

The worst cases are generated, in pieces of a size that hypothesis chooses; twice as much of one may
take two and a half times as long. CPU time is taken, the best of several tries, so that a busy
machine does not matter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routing.http.connection import Connection
from routing.http.limits import Limits
from routing.http.state import ServerState
from tests.unit.routing.http.serving import LIMITS, respond

pytestmark = pytest.mark.alone

ALLOWED_GROWTH = 2.5
TRIES = 24
SHORTEST_SECONDS = 0.005
SIZE = 128 * 1024
HEAD_SIZE = 30 * 1024
"""Twice as much is just within the bound on headers; the parser itself copies what has come of a
header with each piece of it, which is why there is that bound."""


class Nowhere(asyncio.Transport):
    """A transport that takes all there is."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def write_eof(self) -> None: ...

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


async def swallow(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await respond(send)


GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"

HEADS: dict[str, Callable[[int], bytes]] = {
    "one header's value": lambda size: b"GET / HTTP/1.1\r\nx: " + b"y" * size,
    "one header's name": lambda size: b"GET / HTTP/1.1\r\n" + b"x" * size,
    "the target": lambda size: b"GET /" + b"x" * size,
    "many headers": lambda size: b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * (size // 6),
    "the same length again": lambda size: (
        b"GET / HTTP/1.1\r\n" + b"transfer-encoding: chunked\r\n" * (size // 28)
    ),
    "blank lines": lambda size: b"\r\n" * (size // 2),
    "nearly ends of a head": lambda size: b"GET / HTTP/1.1\r\nx: " + b"y\r\n z" * (size // 5),
}

WORST: dict[str, Callable[[int], bytes]] = {
    "requests": lambda size: GET * (size // len(GET)),
    "a body": lambda size: b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size,
    "chunks of one byte": lambda size: CHUNKED + b"1\r\nx\r\n" * (size // 6),
    "chunks of one byte behind a large one": lambda size: (
        CHUNKED + b"20000\r\n" + b"x" * 0x20000 + b"\r\n" + b"1\r\nx\r\n" * (size // 6)
    ),
    "chunks that are requests": lambda size: CHUNKED + b"0\r\n\r\n" + GET * (size // len(GET)),
    "extensions": lambda size: CHUNKED + b"1;" + b"x" * size,
    "trailers": lambda size: CHUNKED + b"0\r\n" + b"x: y\r\n" * (size // 6),
}


async def seconds(said: bytes, step: int) -> float:
    """The CPU time that reading `said` in pieces of `step` bytes takes, its requests answered."""
    limits = {**LIMITS, "max_header_bytes": 64 * 1024, "max_headers": 64 * 1024}
    state = ServerState(swallow, Limits(**limits))
    connection = Connection(state)
    connection.connection_made(Nowhere())
    begun = time.process_time()
    for at in range(0, len(said), step):
        connection.data_received(said[at : at + step])
        await asyncio.sleep(0)
    while state.tasks and connection._busy:  # noqa: ASYNC110 (the loop has to go round)
        await asyncio.sleep(0)
    taken = time.process_time() - begun
    connection.connection_lost(None)
    for task in list(state.tasks):
        task.cancel()
    await asyncio.gather(*state.tasks, return_exceptions=True)
    return taken


STEPS = st.sampled_from([64, 512, 1460, 4096, 65536, 262144])
few = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("worst", HEADS.values(), ids=HEADS.keys())
@few
@given(step=STEPS)
def test_twice_the_head_takes_twice_as_long(worst: Callable[[int], bytes], step: int) -> None:
    check_growth(worst, HEAD_SIZE, step)


@pytest.mark.parametrize("worst", WORST.values(), ids=WORST.keys())
@few
@given(step=STEPS)
def test_twice_as_much_takes_twice_as_long(worst: Callable[[int], bytes], step: int) -> None:
    check_growth(worst, SIZE, step)


def check_growth(worst: Callable[[int], bytes], size: int, step: int) -> None:
    small = large = float("inf")
    for _ in range(TRIES):
        small = min(small, asyncio.run(seconds(worst(size), step)))
        large = min(large, asyncio.run(seconds(worst(2 * size), step)))
        if large <= ALLOWED_GROWTH * max(small, SHORTEST_SECONDS):
            return
    pytest.fail(f"{small * 1000:.1f} ms, and {large * 1000:.1f} ms for twice as much")
