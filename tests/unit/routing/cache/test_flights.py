"""One request that many wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import Reply
from routing.cache.flights import AHEAD_BYTES, Errand, Flight


class Vendor:
    """Says a piece each time that it is told to."""

    def __init__(self, *, whole: bytes | None = None) -> None:
        self.go = asyncio.Queue[bytes | Exception | None]()
        self.asked = self.said = 0
        self.closed = False
        self._whole = whole

    def say(self, *pieces: bytes | Exception | None) -> None:
        for piece in pieces:
            self.go.put_nowait(piece)

    async def ask(self) -> Reply:
        self.asked += 1
        first = await self.go.get()
        if isinstance(first, Exception):
            raise first
        if self._whole is not None:
            return Reply(self._whole)
        body = self._stream()
        await anext(body)
        return Reply(body, first or b"", render_error=lambda error: error.message.encode())

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b""
            while (piece := await self.go.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                self.said += 1
                yield piece
        finally:
            self.closed = True


class Told:
    """What came of a flight."""

    def __init__(self, vendor: Vendor, most_bytes: int = 1 << 20) -> None:
        self.landed: list[bytes] = []
        self.ended = 0
        self.flight = Flight(vendor.ask, self._landed, self._ended, most_bytes)

    async def _landed(self, reply: Reply, body: bytes) -> None:
        assert reply.closed
        assert reply.is_complete
        self.landed.append(body)

    async def _ended(self, flight: Flight) -> None:
        assert flight.is_over
        self.ended += 1

    async def board(self) -> Reply:
        self.flight.board()
        return await self.flight.passenger()


async def read(reply: Reply) -> bytes:
    if isinstance(reply.body, bytes):
        return reply.body
    pieces = [reply.first]
    try:
        async for piece in reply.body:
            pieces.append(piece)
    finally:
        await reply.aclose()
    return b"".join(pieces)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_all_get_all_of_it_whenever_they_come() -> None:
    vendor = Vendor()
    told = Told(vendor)
    vendor.say(b"a")
    first = asyncio.create_task(read(await told.board()))
    vendor.say(b"b")
    await settled()
    second = asyncio.create_task(read(await told.board()))
    vendor.say(b"c", None)
    assert await first == await second == b"abc"
    assert (told.landed, told.ended, vendor.asked, vendor.closed) == ([b"abc"], 1, 1, True)


async def test_a_whole_reply_is_everybodys() -> None:
    vendor = Vendor(whole=b"whole")
    told = Told(vendor)
    boarding = [asyncio.create_task(told.board()) for _ in range(3)]
    vendor.say(b"")
    assert [await read(await each) for each in boarding] == [b"whole"] * 3
    assert told.landed == [b"whole"]


async def test_it_goes_on_while_somebody_is_left_and_no_longer() -> None:
    vendor = Vendor()
    told = Told(vendor)
    vendor.say(b"a")
    first, second = await told.board(), await told.board()
    await first.aclose()
    assert not vendor.closed
    vendor.say(b"b")
    assert not isinstance(second.body, bytes)
    assert await anext(second.body) == b"b"
    await second.aclose()
    assert vendor.closed
    assert (told.landed, told.ended, told.flight.aboard) == ([], 1, 0)


async def test_who_leaves_before_there_is_anything_ends_it_too() -> None:
    vendor = Vendor()
    told = Told(vendor)
    told.flight.board()
    await settled()
    await told.flight.leave()
    assert (told.ended, told.flight.is_over, vendor.asked) == (1, True, 1)


async def test_an_error_before_there_is_anything_is_raised() -> None:
    vendor = Vendor()
    told = Told(vendor)
    vendor.say(upstream_error("up", "is down"))
    with pytest.raises(APIError, match="is down"):
        await told.board()
    assert told.landed == []


async def test_a_stream_that_breaks_off_breaks_off_for_all() -> None:
    vendor = Vendor()
    told = Told(vendor)
    vendor.say(b"a", upstream_error("up", "broke"))
    replies = [await told.board(), await told.board()]
    for reply in replies:
        with pytest.raises(APIError, match="broke") as failed:
            await read(reply)
        assert reply.render_error is not None
        assert b"broke" in reply.render_error(failed.value)
    assert (told.landed, told.ended, vendor.closed) == ([], 1, True)
    assert told.flight.error is not None


async def test_nothing_is_read_far_ahead_of_the_first_client() -> None:
    vendor = Vendor()
    told = Told(vendor)
    piece = bytes(AHEAD_BYTES // 4)
    vendor.say(b"a", *[piece] * 20, None)
    reply = await told.board()
    await settled()
    assert vendor.said <= 6
    assert len(await read(reply)) == 1 + 20 * len(piece)


async def test_what_is_too_long_is_not_kept() -> None:
    vendor = Vendor()
    told = Told(vendor, most_bytes=10)
    vendor.say(b"a" * 8, b"b" * 8, b"c" * 8, None)
    reply = await told.board()
    assert await read(reply) == b"a" * 8 + b"b" * 8 + b"c" * 8
    assert told.flight.is_full
    assert told.landed == []


async def test_all_on_board_read_all_of_what_is_too_long() -> None:
    vendor = Vendor()
    told = Told(vendor, most_bytes=10)
    pieces = [each * 8 for each in (b"a", b"b", b"c")]
    vendor.say(*pieces, None)
    one, other = await told.board(), await told.board()
    assert await read(one) == b"".join(pieces)
    assert await read(other) == b"".join(pieces)


async def test_who_is_alone_with_what_is_too_long_has_no_memory_of_it_held() -> None:
    vendor = Vendor()
    told = Told(vendor, most_bytes=10)
    vendor.say(*[bytes(8)] * 50, None)
    assert len(await read(await told.board())) == 400
    assert sum(map(len, told.flight._pieces)) < 24


async def test_when_it_is_ended_all_are_told() -> None:
    vendor = Vendor()
    told = Told(vendor)
    vendor.say(b"a")
    reply = await told.board()
    await told.flight.cancel()
    with pytest.raises(APIError):
        await read(reply)
    assert vendor.closed


# One who asks in their own task -------------------------------------------------------------------


async def test_who_is_left_alone_is_given_up_but_not_at_the_end() -> None:
    given_up: list[bool] = []
    for is_over in (False, True):
        errand = Errand()
        assert not errand.stays(lambda: given_up.append(True))
        errand.board()
        errand.board()
        assert errand.stays(lambda: given_up.append(True))
        await errand.leave()
        assert given_up == ([] if not is_over else [True])
        if is_over:
            errand.end()
            await errand.over()
        await errand.leave()
        assert given_up == [True]
