"""A WebSocket over a real socket, frame by frame; the clock is moved by hand."""

from __future__ import annotations

import asyncio
import gc
import os
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest
from websockets.frames import Frame

from llama_compat.connection_errors import too_many_bodies
from llama_compat.distribution.server import WebSocketSettings
from llama_compat.errors import APIError
from routing.asgi import UPGRADE
from routing.http.websocket import FIRST_STEP_BYTES, MAX_EMPTY_FRAMES, MAX_OPEN, WebSocket
from tests.unit.routing.http.serving import Client, Serving, respond, serving, until

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

HANDSHAKE = (
    b"GET /socket HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)

LIMIT = 200_000


def frame(data: bytes = b"", opcode: int = TEXT, *, fin: bool = True) -> bytes:
    """A client's frame, its length as short as it can be."""
    size, mask = len(data), os.urandom(4)
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += struct.pack("!BH", 0x80 | 126, size)
    else:
        head += struct.pack("!BQ", 0x80 | 127, size)
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    return head + mask + masked


class Room:
    """As much as anybody wants, up to `limit`."""

    def __init__(self) -> None:
        self.limit = 1 << 40
        self.size = 0

    def grow_to(self, size: int) -> None:
        if size > self.limit:
            raise too_many_bodies(self.limit)
        self.size = max(size, self.size)

    def shrink_to(self, size: int) -> None:
        self.size = min(size, self.size)


class Peer:
    """One WebSocket, seen from both its ends. `waits` holds the answers back."""

    def __init__(self, client: Client, state: Serving) -> None:
        self.client = client
        self.serving = state
        self.room = Room()
        self.socket: WebSocket | None = None
        self.got: list[bytes] = []
        self.error: APIError | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.answer = b""

    @property
    def server(self) -> WebSocket:
        assert self.socket is not None
        return self.socket

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """The application: what comes is said again, or `answer` instead."""
        try:
            self.socket = scope["extensions"][UPGRADE]("req_1", LIMIT, self.room)
        except APIError as error:
            await respond(send, error.json(), error.status)
            return
        try:
            while (message := await self.server.receive()) is not None:
                self.server.taken(len(message))
                self.got.append(message)
                await self.go_on.wait()
                await self.server.send(self.answer or message)
                self.server.done()
        except APIError as error:
            self.error = error
            self.server.close(1008, "told")

    async def read(self) -> tuple[int, bytes]:
        """The server's next frame: opcode and data."""
        first, size = await self.client.reader.readexactly(2)
        assert not size & 0x80
        if size == 126:
            (size,) = struct.unpack("!H", await self.client.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.client.reader.readexactly(8))
        return first & 0x0F, await self.client.reader.readexactly(size)

    async def read_close(self) -> tuple[int, str]:
        """Code and reason of the close that comes next, and that the connection is closed then."""
        opcode, data = await self.read()
        assert opcode == CLOSE, data
        return struct.unpack("!H", data[:2])[0], data[2:].decode()

    def later(self, seconds: float) -> None:
        """It is so many seconds later."""
        self.server.look_at_clock(monotonic() + seconds)


@asynccontextmanager
async def opened(settings: dict[str, Any] | None = None, **limits: Any) -> AsyncIterator[Peer]:
    peers: list[Peer] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await peers[0].serve(scope, receive, send)

    websockets = WebSocketSettings(**(settings or {}))
    async with serving(application, websockets=websockets, **limits) as state:
        peer = Peer(await state.connect(), state)
        peers.append(peer)
        await peer.client.say(HANDSHAKE)
        head = await peer.client.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
        assert b"x-request-id: req_1" in head
        assert b"extensions" not in head.lower()
        yield peer


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, LIMIT])
async def test_a_message_comes_whole(size: int) -> None:
    message = b"x" * size
    async with opened() as peer:
        await peer.client.say(frame(message))
        assert await peer.read() == (TEXT, message)
        await until(lambda: not peer.room.size)


async def test_a_message_may_come_in_frames_with_others_between_them() -> None:
    async with opened() as peer:
        await peer.client.say(frame(b"one ", fin=False))
        await peer.client.say(frame(b"?", PING) + frame(b"two ", 0, fin=False))
        await peer.client.say(frame(b"three", 0))
        assert await peer.read() == (PONG, b"?")
        assert await peer.read() == (TEXT, b"one two three")


async def test_what_came_with_the_handshake_is_read() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await peer.serve(scope, receive, send)

    async with serving(application, websockets=WebSocketSettings()) as state:
        peer = Peer(await state.connect(), state)
        await peer.client.say(HANDSHAKE + frame(b"early"))
        await peer.client.reader.readuntil(b"\r\n\r\n")
        assert await peer.read() == (TEXT, b"early")


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (b"sec-websocket-version: 13\r\n", b"", 400),
        (b"sec-websocket-version: 13", b"sec-websocket-version: 8", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"short", 400),
        (b"keep-alive, Upgrade", b"keep-alive", 426),
    ],
)
async def test_another_handshake_is_refused(before: bytes, after: bytes, status: int) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        if UPGRADE in scope["extensions"]:
            await peer.serve(scope, receive, send)
        else:
            await respond(send, status=426)

    async with serving(application, websockets=WebSocketSettings()) as state:
        peer = Peer(await state.connect(), state)
        await peer.client.say(HANDSHAKE.replace(before, after))
        assert (await peer.client.answer())[0] == status
        # And the connection is as good as before.
        await peer.client.say(HANDSHAKE)
        assert (await peer.client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")


async def test_behind_another_request_there_is_no_upgrade() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        asked.append(UPGRADE in scope["extensions"])
        await go_on.wait()
        await respond(send)

    asked: list[bool] = []
    go_on = asyncio.Event()
    async with serving(application, websockets=WebSocketSettings()) as state:
        client = await state.connect()
        await client.say(HANDSHAKE.replace(b"upgrade", b"x-upgrade", 2) + HANDSHAKE)
        await until(lambda: asked == [False])
        go_on.set()
        await client.answer()
        await client.answer()
        # By the time that its turn came it was the first.
        assert asked == [False, True]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(b"{}", BINARY), 1003),
        (frame(b"x" * (LIMIT + 1)), 1009),
        (frame(b"x" * LIMIT, fin=False) + frame(b"x", 0), 1009),
        (struct.pack("!BBQ", 0x81, 0xFF, 1 << 62), 1009),
        (frame(b"", 0), 1002),
        (frame(b"a", fin=False) + frame(b"b"), 1002),
        (b"\x81\x01a", 1002),
        (frame(b"x" * 126, PING), 1002),
        (b"\xf1\x80\0\0\0\0", 1002),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", 1002),
    ],
    ids=[
        "binary",
        "too large",
        "too large in two",
        "a claim of 4 EiB",
        "the second half of nothing",
        "half a message and another",
        "not masked",
        "a long ping",
        "compressed",
        "HTTP",
    ],
)
async def test_what_breaks_the_rules_ends_it(sent: bytes, code: int) -> None:
    async with opened() as peer:
        await peer.client.say(sent)
        assert (await peer.read_close())[0] == code
        assert await peer.client.rest() == b""
        peer.client.close()
        await until(lambda: not peer.serving.state.connections)
        assert not peer.got
        assert not peer.room.size


async def test_a_client_that_closes_gets_its_close_back() -> None:
    async with opened() as peer:
        await peer.client.say(frame(struct.pack("!H", 1000) + b"bye", CLOSE))
        assert await peer.read_close() == (1000, "bye")
        assert await peer.client.rest() == b""
        peer.client.close()
        await until(lambda: not peer.serving.state.connections)
        assert peer.error is None


async def test_who_leaves_is_noticed_at_once() -> None:
    left: list[bool] = []
    async with opened() as peer:
        peer.server.watch(lambda: left.append(True))
        peer.go_on.clear()
        await peer.client.say(frame(b"a question"))
        await until(lambda: peer.got == [b"a question"])
        peer.client.close()
        await until(lambda: left == [True])
        peer.server.watch(lambda: left.append(False))
        assert left == [True, False]
        peer.go_on.set()


# What a client can't do ---------------------------------------------------------------------------


async def test_a_flood_of_messages_waits_for_its_turn() -> None:
    async with opened() as peer:
        peer.go_on.clear()
        flood = frame(b"again") * 20_000
        writing = asyncio.create_task(peer.client.say(flood))
        await until(lambda: peer.server._intake.paused)
        held = peer.server._open + len(peer.server._messages)
        assert MAX_OPEN <= held < MAX_OPEN + FIRST_STEP_BYTES // len(frame(b"again")) + 1
        assert len(peer.server._ahead) <= 1 << 18
        assert len(peer.got) == 1
        peer.go_on.set()
        for _ in range(20_000):
            assert await peer.read() == (TEXT, b"again")
        await writing


async def test_a_flood_of_pings_gives_others_their_turn() -> None:
    async with opened() as peer:
        turns: list[int] = []

        async def others() -> None:
            while True:
                turns.append(1)
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        await peer.client.say(frame(b"", PING) * MAX_EMPTY_FRAMES + frame(b"last"))
        while (await peer.read()) != (TEXT, b"last"):
            pass
        other.cancel()
        # 512 bytes are 85 pings.
        assert len(turns) > MAX_EMPTY_FRAMES // 86


@pytest.mark.parametrize("opcode", [PING, PONG])
async def test_a_flood_that_asks_nothing_ends(opcode: int) -> None:
    async with opened() as peer:
        await peer.client.say(frame(b"x", opcode) * (MAX_EMPTY_FRAMES // 2))
        await peer.client.say(frame(b"first"))
        while (await peer.read()) != (TEXT, b"first"):
            pass
        peer.later(0)  # a second has passed
        await peer.client.say(frame(b"x", opcode) * (MAX_EMPTY_FRAMES + 1))
        while (came := await peer.read())[0] == PONG:
            pass
        assert came[0] == CLOSE
        assert came[1].startswith(struct.pack("!H", 1008))


async def test_who_does_not_read_is_not_written_to() -> None:
    async with opened() as peer:
        peer.answer = b"x" * 100_000
        small = frame(b"more")
        transport = peer.client.writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        await peer.client.say(small * 1000)
        stuck = 0
        while stuck < 100:  # the system's buffers take some of it
            before = len(peer.got)
            await asyncio.sleep(0.001)
            is_stuck = peer.server._writer.paused is not None and len(peer.got) == before
            stuck = stuck + 1 if is_stuck else 0
        assert peer.server._intake.paused
        buffered = peer.server._transport.get_write_buffer_size()
        assert buffered < 3 * len(peer.answer) + 65536
        assert len(peer.got) < 1000
        peer.later(0)
        peer.later(100)  # write_seconds: 40
        await until(lambda: not peer.serving.state.connections)
        assert peer.server.gone


async def test_half_a_message_is_not_waited_for() -> None:
    async with opened() as peer:
        await peer.client.say(frame(b"x" * 1000)[:-1])
        await until(lambda: peer.server._partial > 0)
        peer.later(19)
        assert peer.error is None
        peer.later(21)  # body_seconds: 20
        assert await peer.read_close() == (1008, "told")
        assert peer.error is not None
        assert peer.error.status == 408


async def test_half_a_message_that_grows_is_waited_for() -> None:
    async with opened() as peer:
        message = b"x" * 100_000
        whole = frame(message)
        at = 0
        for step in range(4):
            await peer.client.say(whole[at : at + 20_000])
            at += 20_000
            await until(lambda: peer.server._partial >= at - 20)  # noqa: B023
            peer.server._patience.since -= 15 * (step > 0)
            peer.later(10)
        assert peer.error is None
        await peer.client.say(whole[at:])
        assert await peer.read() == (TEXT, message)


async def test_frames_without_anything_in_them_are_no_progress() -> None:
    async with opened() as peer:
        await peer.client.say(frame(b"x", fin=False))
        await until(lambda: peer.server._partial == 1)
        heard = peer.server._heard
        await peer.client.say(frame(b"", 0, fin=False) * 900)
        await until(lambda: peer.server._heard > heard and not peer.server._ahead)
        peer.later(21)
        assert await peer.read_close() == (1008, "told")


async def test_there_has_to_be_room_for_a_message() -> None:
    async with opened() as peer:
        peer.room.limit = 100_000
        await peer.client.say(frame(b"x" * 150_000)[:120_000])
        assert await peer.read_close() == (1008, "told")
        assert peer.error is not None
        assert peer.error.status == 503
        assert not peer.room.size


@pytest.mark.parametrize("fin", [True, False])
async def test_of_what_was_taken_nothing_is_left_with_the_library(fin: bool) -> None:
    """Its parser held the last frame, for which nobody counted, until another came; and after the
    end of the connection until it was collected."""
    async with opened() as peer:
        await peer.client.say(frame(b"x" * 150_000, fin=fin))
        if fin:
            await peer.read()
        else:
            await until(lambda: peer.room.size >= 150_000)
        held = [each for each in gc.get_objects() if isinstance(each, Frame)]
        assert sum(len(each.data) for each in held) < 1000


async def test_a_client_that_answers_pings_stays() -> None:
    async with opened({"ping_seconds": 10, "pong_seconds": 5, "idle_seconds": 60}) as peer:
        peer.later(9)
        peer.later(11)
        assert await peer.read() == (PING, b"")
        await peer.client.say(frame(b"", PONG))
        await until(lambda: not peer.server._pinged)
        peer.later(9)
        assert not peer.server.gone


async def test_a_client_that_answers_no_ping_is_gone() -> None:
    async with opened({"ping_seconds": 10, "pong_seconds": 5, "idle_seconds": 60}) as peer:
        peer.later(11)
        assert await peer.read() == (PING, b"")
        peer.later(15)
        assert not peer.server.gone
        peer.later(17)
        assert peer.server.gone
        await until(lambda: not peer.serving.state.connections)


async def test_where_nothing_is_asked_it_is_closed() -> None:
    async with opened({"idle_seconds": 60, "ping_seconds": 3600}) as peer:
        peer.later(59)
        assert not peer.server.gone
        peer.later(61)
        assert (await peer.read_close())[0] == 1000


async def test_while_something_is_asked_it_is_not_idle() -> None:
    async with opened({"idle_seconds": 60, "ping_seconds": 3600}) as peer:
        assert list(peer.serving.state.idle) == [peer.server]
        peer.go_on.clear()
        await peer.client.say(frame(b"a question"))
        await until(lambda: peer.got == [b"a question"])
        assert not peer.serving.state.idle
        peer.later(61)
        assert not peer.server.gone
        peer.go_on.set()
        assert await peer.read() == (TEXT, b"a question")
        await until(lambda: list(peer.serving.state.idle) == [peer.server])


async def test_after_an_hour_it_ends() -> None:
    async with opened({"idle_seconds": 7200, "ping_seconds": 7200}) as peer:
        peer.later(3599)
        assert peer.error is None
        peer.later(3601)
        assert await peer.read_close() == (1008, "told")
        assert peer.error is not None
        assert peer.error.code == "websocket_connection_limit_reached"


async def test_a_client_that_does_not_agree_to_close_is_cut_off() -> None:
    async with opened() as peer:
        peer.server.close(1000, "enough")
        assert await peer.read_close() == (1000, "enough")
        await peer.client.say(frame(b"but I have more to say"))
        peer.later(4)
        assert peer.serving.state.connections
        peer.later(6)
        await until(lambda: not peer.serving.state.connections)
        assert not peer.got


async def test_a_server_that_ends_takes_no_more_messages() -> None:
    async with opened() as peer:
        peer.go_on.clear()
        await peer.client.say(frame(b"the last one"))
        await until(lambda: peer.got == [b"the last one"])
        peer.server.shutdown()
        await peer.client.say(frame(b"one too many"))
        peer.go_on.set()
        assert await peer.read() == (TEXT, b"the last one")
        await until(lambda: peer.server._open == 0)
        assert await peer.server.receive() is None
        assert peer.got == [b"the last one"]


async def test_it_makes_room_when_there_are_too_many() -> None:
    async with opened() as peer:
        next(iter(peer.serving.state.idle)).abort()
        assert await peer.client.rest() == b""
        assert not peer.serving.state.connections


async def test_two_that_wait_for_a_slow_client_do_not_cancel_each_other() -> None:
    async with opened() as peer:
        big = b"x" * 4_000_000
        await peer.server.send(big)
        assert peer.server._writer.paused is not None
        first, second = (asyncio.create_task(peer.server.send(each)) for each in (b"1", b"2"))
        await asyncio.sleep(0)
        first.cancel()
        reading: Callable[[], Any] = peer.read
        assert await reading() == (TEXT, big)
        await second
        assert await reading() == (TEXT, b"2")
