"""One exchange: whatever the server does, it ends in an answer or an error, and nothing is left."""

from __future__ import annotations

import asyncio
import gzip
from functools import partial

import pytest

from providers.remote import http1
from providers.remote.http1.connection import READ_BUFFER_BYTES, WRITE_BYTES
from tests.unit.providers.remote.http1.raw_server import (
    CHUNKED,
    NO_HEADERS,
    OK,
    Peer,
    answers,
    ask,
    client_with,
    serving,
    until,
)

LARGE = bytes(range(256)) * 40_000
"""More than sockets and buffers hold."""


async def test_a_request_goes_out_as_it_should() -> None:
    seen = []

    async def record(peer: Peer) -> None:
        seen.append(await peer.request())
        await peer.send(OK)
        seen.append(await peer.request())
        await peer.send(OK)

    async with serving(record) as server, client_with() as client:
        headers = http1.encode_headers({"a": "b"})
        for method, body in (("POST", b"{}"), ("GET", None)):
            response = await client.send(method, server.route, "/v1/x?y=z", headers, body)  # type: ignore[arg-type]
            assert await response.read() == b"ok"
            response.close()
    host = f"host: 127.0.0.1:{server.port}\r\na: b\r\n".encode()
    assert seen == [
        (b"POST /v1/x?y=z HTTP/1.1\r\n" + host + b"content-length: 2\r\n\r\n", b"{}"),
        (b"GET /v1/x?y=z HTTP/1.1\r\n" + host + b"\r\n", b""),
    ]


@pytest.mark.parametrize("target", ["", "x", "/a b", "/a\r\nb: c", "/\u00e4", "//\x00"])
async def test_a_target_can_not_hold_a_request(target: str) -> None:
    async with serving(answers) as server, client_with() as client:
        with pytest.raises(http1.InvalidURLError):
            await ask(client, server, target=target)
        assert server.connections == 0


# Faults -------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[bytes, str, type[http1.HTTPError]]] = {
    # Name: what is sent, how the connection ends, what is raised.
    "nothing, closed": (b"", "close", http1.DisconnectedError),
    "nothing, reset": (b"", "reset", http1.DisconnectedError),
    "half a head, closed": (OK[:20], "close", http1.DisconnectedError),
    "half a head, reset": (OK[:20], "reset", http1.DisconnectedError),
    "half a body, closed": (OK[:-1], "close", http1.DisconnectedError),
    "half a body, reset": (OK[:-1], "reset", http1.DisconnectedError),
    "half a chunk, closed": (CHUNKED + b"5\r\nhel", "close", http1.DisconnectedError),
    "no last chunk, closed": (CHUNKED + b"2\r\nhi\r\n", "close", http1.DisconnectedError),
    "until the end, reset": (b"HTTP/1.1 200 OK\r\n\r\nhi", "reset", http1.DisconnectedError),
    "only an interim answer": (b"HTTP/1.1 100 Go\r\n\r\n", "close", http1.DisconnectedError),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", "hold", http1.ProtocolError),
    "endless interim answers": (b"HTTP/1.1 100 Go\r\n\r\n" * 9999, "hold", http1.ProtocolError),
    "endless blank lines": (b"\r\n" * 99_999, "hold", http1.ProtocolError),
    "endless header": (b"HTTP/1.1 200 OK\r\na: " + b"b" * 199_999, "hold", http1.ProtocolError),
    "a chunk size of nonsense": (CHUNKED + b"zz\r\n", "hold", http1.ProtocolError),
    "compressed nonsense": (
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok", "hold",
        http1.ContentEncodingError,
    ),
    "compressed, but how": (
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nok", "hold",
        http1.ContentEncodingError,
    ),
    "silence": (b"", "hold", http1.SilenceTimeout),
    "half a head and silence": (OK[:20], "hold", http1.SilenceTimeout),
    "a head and silence": (OK[:-2], "hold", http1.SilenceTimeout),
    "half a body and silence": (OK[:-1], "hold", http1.SilenceTimeout),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_what_goes_wrong_is_told(name: str, in_pieces: bool) -> None:
    data, ending, expected = FAULTS[name]

    async def fail(peer: Peer) -> None:
        await peer.request()
        if in_pieces:
            for at in range(min(len(data), 60)):
                await peer.send(data[at : at + 1])
                await asyncio.sleep(0)
            await peer.send(data[60:])
        else:
            await peer.send(data)
        if ending == "hold":
            await peer.left()
        elif ending == "reset":
            await asyncio.sleep(0.01)
            peer.reset()

    # What the server does is not to be taken for silence on a machine that is busy.
    seconds = 0.1 if expected is http1.SilenceTimeout else 30
    timeouts = http1.Timeouts(first_byte=seconds, between_bytes=seconds)
    async with serving(fail) as server, client_with(timeouts) as client:
        with pytest.raises(http1.HTTPError) as raised:
            await ask(client, server)
        assert type(raised.value) is expected
        assert server.connections == 1
        await until(lambda: client.counts == (0, 0, 0) or expected is http1.ContentEncodingError)


async def test_what_came_before_a_fault_is_there() -> None:
    async def cut(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"5\r\nhello\r\n")

    async with serving(cut) as server, client_with() as client:
        response = await client.send("GET", server.route, "/", NO_HEADERS)
        await server.all_left()
        await asyncio.sleep(0.01)
        assert await response.next_chunk() == b"hello"
        for _ in range(2):
            with pytest.raises(http1.DisconnectedError):
                await response.next_chunk()


# Time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["head", "body"])
async def test_the_whole_may_take_no_longer_than_the_total(where: str) -> None:
    async def trickle(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED[:-2] if where == "head" else CHUNKED)
        while True:
            await peer.send(b"x-a: b\r\n" if where == "head" else b"1\r\na\r\n")
            await asyncio.sleep(0.005)

    timeouts = http1.Timeouts(first_byte=5, between_bytes=5, total=0.1)
    async with serving(trickle) as server, client_with(timeouts) as client:
        with pytest.raises(http1.TotalTimeout) as raised:
            await ask(client, server)
        assert raised.value.seconds == 0.1


async def test_silence_is_what_the_server_does_and_not_the_reader() -> None:
    async def flood(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(LARGE) + LARGE)
        await peer.left()

    timeouts = http1.Timeouts(first_byte=0.05, between_bytes=0.05)
    async with serving(flood) as server, client_with(timeouts) as client:
        response = await client.send("GET", server.route, "/", NO_HEADERS)
        await asyncio.sleep(0.2)
        assert await response.read() == LARGE


async def test_the_limits_are_the_phases_own() -> None:
    async def steady(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(0.06)
        await peer.send(CHUNKED)
        await asyncio.sleep(0.06)
        await peer.send(b"2\r\nhi\r\n")
        await asyncio.sleep(0.06)

    timeouts = http1.Timeouts(first_byte=1, between_bytes=0.03)
    async with serving(steady) as server, client_with(timeouts) as client:
        response = await client.send("GET", server.route, "/", NO_HEADERS)
        assert await response.next_chunk() == b"hi"
        with pytest.raises(http1.SilenceTimeout) as raised:
            await response.next_chunk()
        assert raised.value.seconds == 0.03


# Bodies -------------------------------------------------------------------------------------------


async def test_large_bodies_both_ways() -> None:
    async with serving(answers) as server, client_with() as client:
        for _ in range(2):
            assert await ask(client, server, LARGE) == LARGE
        assert server.connections == 1


async def test_a_request_that_is_not_taken_is_given_up() -> None:
    async def deaf(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(5)

    async with serving(deaf) as server, client_with(http1.Timeouts(first_byte=0.1)) as client:
        with pytest.raises(http1.SilenceTimeout):
            await ask(client, server, LARGE * 3)


@pytest.mark.parametrize("status", [200, 413])
async def test_an_answer_may_come_before_the_request_is_taken(status: int) -> None:
    rest = asyncio.Event()
    took = []

    async def early(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 %d Early\r\ncontent-length: 4\r\n\r\nno" % status)
        await rest.wait()
        if status == 200:
            took.append(await peer.reader.readexactly(len(LARGE)))
        await peer.send(b"pe")
        await peer.left()

    async with serving(early) as server, client_with() as client:
        response = await client.send("POST", server.route, "/", NO_HEADERS, LARGE)
        assert response.status == status
        assert await response.next_chunk() == b"no"
        rest.set()
        assert await response.read() == b"pe"
        if status == 200:
            assert took == [LARGE]
            assert client.counts.idle == 1
        else:
            await server.all_left()
            assert client.counts == (0, 0, 0)


async def test_a_slow_reader_slows_the_server_down() -> None:
    sent = 0

    async def flood(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(CHUNKED)
        while sent < 100 * READ_BUFFER_BYTES:
            await peer.send(b"%x\r\n%b\r\n" % (WRITE_BYTES, bytes(WRITE_BYTES)))
            sent += WRITE_BYTES
        await peer.send(b"0\r\n\r\n")
        await peer.left()

    async with serving(flood) as server, client_with() as client:
        response = await client.send("GET", server.route, "/", NO_HEADERS)
        before = -1
        while before < sent:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 100 * READ_BUFFER_BYTES / 2
        largest = received = 0
        while chunk := await response.next_chunk():
            largest, received = max(largest, len(chunk)), received + len(chunk)
        assert received == sent
        assert largest <= 3 * READ_BUFFER_BYTES


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_a_whole_answer_has_a_limit(framing: str) -> None:
    heads = {
        "length": b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n",
        "chunked": CHUNKED,
        "close": b"HTTP/1.1 200 OK\r\n\r\n",
    }

    async def endless(peer: Peer) -> None:
        await peer.request()
        await peer.send(heads[framing])
        piece = bytes(1000)
        while True:
            await peer.send(b"3e8\r\n%b\r\n" % piece if framing == "chunked" else piece)

    async with serving(endless) as server, client_with() as client:
        response = await client.send("GET", server.route, "/", NO_HEADERS)
        with pytest.raises(http1.AnswerTooLargeError):
            await response.read(100_000)
        await server.all_left()


async def test_an_answer_that_came_with_its_head_has_the_limit_too() -> None:
    async def at_once(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabcde")

    async with serving(at_once) as server, client_with() as client:
        for limit, whole in ((4, None), (5, b"abcde"), (None, b"abcde")):
            response = await client.send("GET", server.route, "/", NO_HEADERS)
            # All of it has come: nothing is waited for any more.
            await until(partial(getattr, response, "_ended"))
            if whole is None:
                with pytest.raises(http1.AnswerTooLargeError):
                    await response.read(limit)
            else:
                assert await response.read(limit) == whole
        # What was too large had been read to its end: the connection serves on.
        assert server.connections == 1


async def test_a_limit_is_for_what_comes_out_of_compression() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(bomb)

    async def explode(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(head + bomb)

    async with serving(explode) as server, client_with() as client:
        response = await client.send("GET", server.route, "/", NO_HEADERS)
        with pytest.raises(http1.AnswerTooLargeError):
            await response.read(1_000_000)
        response = await client.send("GET", server.route, "/", NO_HEADERS)
        assert len(await response.read(50_000_000)) == 50_000_000


async def test_an_answer_of_just_the_limit_is_read() -> None:
    async with serving(answers) as server, client_with() as client:
        response = await client.send("POST", server.route, "/", NO_HEADERS, bytes(1000))
        assert await response.read(1000) == bytes(1000)


async def test_two_can_not_read_one_answer() -> None:
    async def hold(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        await peer.left()

    async with serving(hold) as server, client_with() as client:
        response = await client.send("GET", server.route, "/", NO_HEADERS)
        first = asyncio.create_task(response.next_chunk())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError):
            await response.next_chunk()
        first.cancel()
        response.close()


# Cancelling ---------------------------------------------------------------------------------------

CANCELLED_WHILE = {
    "the head is awaited": b"",
    "half a head is there": OK[:20],
    "the body is awaited": OK[:-2],
    "the body is read": OK[:-1],
}


@pytest.mark.parametrize("where", CANCELLED_WHILE)
async def test_who_goes_away_closes_the_connection(where: str) -> None:
    asked = asyncio.Event()

    async def hold(peer: Peer) -> None:
        await peer.request()
        await peer.send(CANCELLED_WHILE[where])
        asked.set()
        await peer.left()

    async with serving(hold) as server, client_with() as client:
        task = asyncio.create_task(ask(client, server))
        await asked.wait()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.all_left()
        await until(lambda: client.counts == (0, 0, 0))


async def test_who_goes_away_while_writing_closes_the_connection() -> None:
    asked = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        asked.set()
        await asyncio.sleep(0.05)
        await peer.left()

    async with serving(slow) as server, client_with() as client:
        task = asyncio.create_task(ask(client, server, LARGE))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.all_left()


async def test_who_goes_away_just_as_the_answer_comes_disturbs_nobody() -> None:
    async with serving(answers) as server, client_with(max_connections=1) as client:
        for turns in range(12):
            task = asyncio.create_task(ask(client, server, b"one"))
            other = asyncio.create_task(ask(client, server, b"two"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            assert await other == b"two"
            await asyncio.gather(task, return_exceptions=True)
        await until(lambda: client.counts.leased == 0)
