"""What a client sends is read with work that grows as it does.

Twice as much of the worst cases, in pieces of several sizes, may be twice the work, and a little.
The work is counted, so that a busy machine does not matter.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from routing.http.connection import Connection
from routing.http.limits import Limits
from routing.http.state import ServerState
from tests.unit.routing.http.serving import LIMITS, respond
from tests.work import CountedCode

pytestmark = pytest.mark.alone

ALLOWED_GROWTH = 2.2
SIZE = 64 * 1024
READ_AHEAD_BYTES = 2048
HEAD_SIZE = 30 * 1024
"""Twice as much is just within the bound on headers; the parser itself copies what has come of a
header with each piece of it, which is why there is that bound."""


class Nowhere(asyncio.Transport):
    """A transport that takes all there is.

    Attributes:
        paused: whether nothing more is to be read for now.
    """

    paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def write_eof(self) -> None: ...

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

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


async def read(said: bytes, step: int) -> None:
    """Read `said` in pieces of `step` bytes, and answer its requests."""
    limits = {**LIMITS, "max_header_bytes": 64 * 1024, "max_headers": 64 * 1024}
    state = ServerState(swallow, Limits(**limits))
    connection, transport = Connection(state), Nowhere()
    connection.connection_made(transport)
    for at in range(0, len(said), step):
        connection.data_received(said[at : at + step])
        await asyncio.sleep(0)
        while transport.paused and state.tasks:  # noqa: ASYNC110 (as below)
            await asyncio.sleep(0)
    while state.tasks and connection._busy:  # noqa: ASYNC110 (the loop has to go round)
        await asyncio.sleep(0)
    connection.connection_lost(None)
    for task in list(state.tasks):
        task.cancel()
    await asyncio.gather(*state.tasks, return_exceptions=True)


@cache
def counted() -> CountedCode:
    return CountedCode(__name__, "tests.unit.routing.http.serving")


STEPS = (64, 512, 1460, 4096, 65536, 262144)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("worst", HEADS.values(), ids=HEADS.keys())
def test_twice_the_head_is_twice_the_work(worst: Callable[[int], bytes], step: int) -> None:
    check_growth(worst, HEAD_SIZE, step)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("worst", WORST.values(), ids=WORST.keys())
def test_twice_as_much_is_twice_the_work(worst: Callable[[int], bytes], step: int) -> None:
    check_growth(worst, SIZE, step)


def check_growth(worst: Callable[[int], bytes], size: int, step: int) -> None:
    with counted().in_place() as work:
        read = importlib.import_module(__name__).read
        # What is read ahead is copied with each piece that follows: there is a bound on it.
        connection: Any = importlib.import_module("routing.http.connection")
        connection.READ_AHEAD_BYTES = READ_AHEAD_BYTES
        # Of the first, what is made once is a part.
        _, small, large = (
            work.of(lambda n=n: asyncio.run(read(worst(n), step))) for n in (1024, size, 2 * size)
        )
    assert large <= ALLOWED_GROWTH * small, f"{small}, and {large} for twice as much"
