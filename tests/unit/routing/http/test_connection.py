"""A client's connection: what is read of it, in what order it is answered, and when it ends."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from time import monotonic
from typing import Any

import pytest

from routing.asgi import WATCH
from routing.http import connection as module
from routing.http.peers import PeerState
from routing.http.writer import Writer
from tests.unit.routing.http.serving import Script, respond, serving, until

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


def post(body: bytes, path: bytes = b"/b", more: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path, more, len(body), body)


CHUNKED = (
    b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n5;extension=1\r\ndefgh\r\n0\r\ntrailer: x\r\n\r\n"
)

# --------------------------------------------------------------------------------------------------
# Reading
# --------------------------------------------------------------------------------------------------


async def test_a_request_is_what_was_sent() -> None:
    script = Script()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(b"PUT /a%20b?c=%20d#e HTTP/1.1\r\nX-One: 1\r\nx-two:  2\r\n\r\n")
        status, headers, body = await client.answer()
    assert (status, body) == (200, b"/a b:")
    assert b"connection" not in headers
    ((scope, _),) = script.asked
    assert scope["method"] == "PUT"
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (
        "/a b",
        b"/a%20b",
        b"c=%20d",
    )
    assert scope["headers"] == [(b"x-one", b"1"), (b"x-two", b"2")]
    assert (scope["type"], scope["http_version"], scope["scheme"]) == ("http", "1.1", "http")
    assert scope["client"][0] == "127.0.0.1"
    assert scope["server"] == ("127.0.0.1", server.port)


@pytest.mark.parametrize("seed", range(20))
async def test_requests_are_read_the_same_however_they_are_cut(seed: int) -> None:
    """Requests of all kinds behind one another, in pieces of any length."""
    said = GET + post(b"x" * 5000) + CHUNKED + post(b"") + GET + CHUNKED + post(b"y" * 70_000)
    cut = random.Random(seed)
    script = Script()
    async with serving(script) as server:
        client = await server.connect()

        async def say_all() -> None:
            at = 0
            while at < len(said):
                size = cut.choice([1, 2, 3, 100, 5000, 100_000]) if at > 300 else cut.randint(1, 30)
                await client.say(said[at : at + size])
                at += size
                await asyncio.sleep(0)

        saying = asyncio.create_task(say_all())
        answers = [await client.answer() for _ in range(7)]
        await saying
    expected = [b"/a:", b"/b:" + b"x" * 5000, b"/c:abcdefgh", b"/b:", b"/a:", b"/c:abcdefgh"]
    assert [body for _, _, body in answers] == [*expected, b"/b:" + b"y" * 70_000]


async def test_trailers_are_no_headers() -> None:
    script = Script()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(CHUNKED)
        await client.answer()
    assert script.asked[0][0]["headers"] == [(b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize("body", [b"", b"a body"])
async def test_an_offer_of_another_protocol_is_declined(body: bytes) -> None:
    """As Java's client makes it with every first request; what is behind is read as ever."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n"
    async with serving(Script()) as server:
        client = await server.connect()
        for data in (post(body, more=offer), GET):
            await client.say(data)
        assert (await client.answer())[2] == b"/b:" + body
        assert (await client.answer())[2] == b"/a:"


async def test_a_client_that_waits_for_leave_gets_it() -> None:
    async with serving(Script()) as server:
        client = await server.connect()
        await client.say(post(b"abc", more=b"Expect: 100-continue\r\n")[:-3])
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.say(b"abc")
        assert (await client.answer())[2] == b"/b:abc"


REFUSED = {
    "no http": (400, b"hello\r\n\r\n"),
    "another version": (400, b"GET / HTTP/2.0\r\n\r\n"),
    "no version": (400, b"GET /\r\n\r\n"),
    "two lengths": (400, b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
    "length and chunks": (
        400,
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    "a length of thousands of digits": (
        400,
        b"POST / HTTP/1.1\r\nContent-Length: " + b"0" * 900 + b"1\r\n\r\n",
    ),
    "a path that is no text": (400, b"GET /\xff HTTP/1.1\r\n\r\n"),
    "a chunk that is none": (400, CHUNKED.replace(b"3\r\n", b"x\r\n")),
    "chunks and an upgrade": (
        400,
        CHUNKED.replace(b"/1.1\r\n", b"/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"),
    ),
    "a long value": (431, b"GET / HTTP/1.1\r\nx: " + b"y" * 1024 + b"\r\n\r\n"),
    "a long value without an end": (431, b"GET / HTTP/1.1\r\nx: " + b"y" * 1024),
    "a long target": (431, b"GET /" + b"y" * 1024 + b" HTTP/1.1\r\n\r\n"),
    "long values together": (431, b"GET / HTTP/1.1\r\n" + (b"x: " + b"y" * 200 + b"\r\n") * 6),
    "too many": (431, b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 11 + b"\r\n"),
    "blank lines": (431, b"\r\n" * 600),
    "chunk extensions": (400, CHUNKED.replace(b"extension=1", b"x" * 5000)),
    "trailers": (431, CHUNKED.replace(b"trailer: x\r\n", b"x: y\r\n" * 12)),
}


@pytest.mark.parametrize(("status", "said"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_is_no_request_or_too_much_is_refused_and_the_end(
    status: int, said: bytes
) -> None:
    async with serving(Script()) as server:
        client = await server.connect()
        await client.say(said)
        got, headers, body = await client.answer()
        assert await client.rest() == b""
    assert got == status
    assert headers[b"connection"] == b"close"
    assert "message" in json.loads(body)["error"]


@pytest.mark.parametrize(
    "said",
    [
        b"GET /a HTTP/1.1\r\n" + b"x: y\r\n" * 10 + b"\r\n",
        b"GET /a HTTP/1.1\r\nx: " + b"y" * 1000 + b"\r\n\r\n",
        b"\r\n\r\nGET /a HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_just_not_too_much_is_answered(said: bytes) -> None:
    async with serving(Script()) as server:
        client = await server.connect()
        for _ in range(3):  # nothing adds up from one request to the next
            await client.say(said)
            assert (await client.answer())[2] == b"/a:"


async def test_a_body_in_tiny_chunks_is_a_body() -> None:
    chunks = b"1\r\nx\r\n" * 20_000
    async with serving(Script()) as server:
        client = await server.connect()
        await client.say(CHUNKED[: CHUNKED.index(b"3\r\n")] + chunks + b"0\r\n\r\n")
        assert (await client.answer())[2] == b"/c:" + b"x" * 20_000


# --------------------------------------------------------------------------------------------------
# One at a time
# --------------------------------------------------------------------------------------------------


async def test_requests_wait_for_the_one_before_them_as_bytes() -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(GET * 100)
        await until(lambda: len(script.asked) == 1)
        assert not server.connection._queue
        assert len(server.connection._ahead) - server.connection._ahead_at == 99 * len(GET)
        script.go_on.set()
        for _ in range(100):
            assert (await client.answer())[2] == b"/a:"
    assert len(script.asked) == 100


async def test_no_more_is_read_than_may_wait() -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        client.writer.write(GET * 500_000)
        await until(lambda: server.connection._intake.paused)
        await asyncio.sleep(0.05)
        assert len(server.connection._ahead) < module.READ_AHEAD_BYTES + 512 * 1024
        assert len(script.asked) == 1


async def test_a_client_that_sends_no_more_gets_its_answer() -> None:
    """As scripts that send all they have, close their side, and read: `printf ... | nc -N`."""
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(post(b"all"))
        client.writer.write_eof()
        await until(lambda: bool(script.asked))
        await asyncio.sleep(2 * module.RESET_SECONDS[0])
        server.connection.look_at_clock(monotonic())
        script.go_on.set()
        said = await client.rest()
        assert script.gone == 0
    interim, answer = said[: len(module.CONTINUE)], said[len(module.CONTINUE) :]
    assert interim == module.CONTINUE
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close\r\n" in answer
    assert answer.endswith(b"/b:all")


@pytest.mark.parametrize(
    "said",
    [
        post(b"all")[:-1],
        GET.replace(b"1.1", b"1.0"),  # which knows nothing that comes before an answer
    ],
)
async def test_who_has_not_asked_all_or_can_be_sent_nothing_has_left(said: bytes) -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(said)
        client.writer.write_eof()
        assert await client.rest() == b""
        await until(lambda: script.gone == 1)


async def test_who_has_closed_both_sides_has_left() -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(post(b"all"))
        await until(lambda: bool(script.asked))
        client.close()
        await until(lambda: script.gone == 1)


async def test_who_gets_nothing_of_what_it_is_sent_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(post(b"all"))
        await until(lambda: bool(script.asked))
        connection = server.connection
        monkeypatch.setattr(module, "peer_state", lambda _: PeerState(True, False, True))
        client.writer.write_eof()
        await until(lambda: connection._half_closed)
        connection.look_at_clock(monotonic())
        assert script.gone == 0
        connection._patience.begin(monotonic() - module.BEHIND_SECONDS - 1)
        connection.look_at_clock(monotonic())
        await until(lambda: script.gone == 1)


async def test_who_reads_an_answer_that_has_begun_may_be_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a stream there always is something on its way to a client that is far off."""
    go_on = asyncio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await until(lambda: server.connection._half_closed)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"last"})

    async with serving(stream) as server:
        client = await server.connect()
        await client.say(post(b"all"))
        monkeypatch.setattr(module, "peer_state", lambda _: PeerState(True, False, True))
        client.writer.write_eof()
        await client.reader.readuntil(b"first\r\n")
        connection = server.connection
        connection._patience.begin(monotonic() - module.BEHIND_SECONDS - 1)
        connection.look_at_clock(monotonic())
        go_on.set()
        assert (await client.rest()).endswith(b"last\r\n0\r\n\r\n")


async def test_who_may_be_behind_a_relay_is_asked_once_more() -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(post(b"all"))
        client.writer.write_eof()
        await until(lambda: bool(script.asked) and server.connection._half_closed)
        server.connection._patience.begin(monotonic() - module.AGAIN_SECONDS - 1)
        for _ in range(3):
            server.connection.look_at_clock(monotonic())
        script.go_on.set()
        said = await client.rest()
    assert said.startswith(2 * module.CONTINUE + b"HTTP/1.1 200 OK\r\n")


async def test_a_client_that_leaves_is_seen_behind_what_it_sent() -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(GET * 3)
        await until(lambda: len(script.asked) == 1)
        client.close()
        await until(lambda: script.gone == 1)
        await until(lambda: not server.state.connections)
    assert len(script.asked) == 1


async def test_what_waits_for_long_is_thrown_away_to_see_whether_the_client_is_there() -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        client.writer.write(GET * 100_000)
        await until(lambda: server.connection._intake.paused)
        connection = server.connection
        connection.look_at_clock(connection._patience.since + module.AHEAD_SECONDS - 1)
        assert connection._ahead
        connection.look_at_clock(connection._patience.since + module.AHEAD_SECONDS + 1)
        assert not connection._ahead
        client.close()
        while server.state.connections:
            connection.look_at_clock(connection._patience.since + module.AHEAD_SECONDS + 1)
            await asyncio.sleep(0.01)
        await until(lambda: script.gone == 1)


async def test_an_answer_before_the_body_s_end_ends_the_connection() -> None:
    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, b"no", 413)

    async with serving(refuses) as server:
        client = await server.connect()
        await client.say(post(b"x" * 100)[:-50])
        status, headers, _ = await client.answer()
        assert (status, headers[b"connection"]) == (413, b"close")
        await client.say(b"x" * 50 + GET)  # nobody minds, and nobody answers
        assert await client.rest() == b""


async def test_a_body_that_nobody_asks_for_is_not_read() -> None:
    asked = asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await asked.wait()
        size = 0
        while (message := await receive())["more_body"]:
            size += len(message["body"])
        await respond(send, str(size + len(message["body"])).encode())

    async with serving(waits) as server:
        client = await server.connect()
        client.writer.write(post(b"x" * 20_000_000))
        await until(lambda: server.connection._intake.paused)
        await asyncio.sleep(0.05)
        reading = server.connection._reading
        assert reading is not None
        assert reading.buffered < 64 * 1024 + 512 * 1024
        asked.set()
        assert (await client.answer())[2] == b"20000000"


# --------------------------------------------------------------------------------------------------
# Answers
# --------------------------------------------------------------------------------------------------


async def test_what_one_turn_of_the_loop_says_leaves_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        transport = server.connection._transport

        class Noting:
            def write(self, data: bytes) -> None:
                written.append(len(data))
                transport.write(data)

            def __getattr__(self, name: str) -> Any:
                return getattr(transport, name)

        monkeypatch.setattr(server.connection.writer, "_transport", Noting())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"event", "more_body": True})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"x" * 200_000, "more_body": True})
        assert len(written) == 2  # so much is not gathered
        await send({"type": "http.response.body", "body": b""})

    async with serving(streams) as server:
        client = await server.connect()
        await client.say(GET)
        data = await client.reader.readuntil(b"0\r\n\r\n")
    assert data.count(b"5\r\nevent\r\n") == 3
    assert data.startswith(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nevent")
    assert len(written) == 3


async def test_a_whole_answer_is_one_write_and_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[bytes] = []

    async def answers(scope: Any, receive: Any, send: Any) -> None:
        monkeypatch.setattr(Writer, "_send", lambda writer, data: written.append(data))
        await respond(send, b"whole")
        assert len(written) == 1

    async with serving(answers) as server:
        client = await server.connect()
        await client.say(GET)
        await until(lambda: bool(written))
    assert written == [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole"]


async def test_who_watches_a_client_is_told_once_when_it_leaves() -> None:
    told: list[str] = []
    watching, left = asyncio.Event(), asyncio.Event()

    async def watches(scope: Any, receive: Any, send: Any) -> None:
        watch = scope["extensions"][WATCH]
        watch(lambda: told.append("ended before"))
        watch(None)
        watch(lambda: (told.append("left"), left.set()))
        watching.set()
        await left.wait()
        watch(None)
        watch(lambda: told.append("gone already"))

    async with serving(watches) as server:
        client = await server.connect()
        await client.say(GET)
        await watching.wait()
        assert told == []
        client.writer.transport.abort()
        await until(lambda: len(told) == 2)
    assert told == ["left", "gone already"]


@pytest.mark.parametrize("keep_alive", [True, False])
async def test_an_old_client_gets_a_body_without_chunks(keep_alive: bool) -> None:
    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async with serving(streams) as server:
        client = await server.connect()
        header = b"Connection: keep-alive\r\n" if keep_alive else b""
        await client.say(b"GET / HTTP/1.0\r\n" + header + b"\r\n")
        assert await client.rest() == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nonetwo"


@pytest.mark.parametrize("status", [200, 204, 304])
async def test_an_answer_without_a_body_has_no_chunks(status: int) -> None:
    async def bare(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send(
            {"type": "http.response.body", "body": b"not for HEAD" if status == 200 else b""}
        )

    async with serving(bare) as server:
        client = await server.connect()
        method = b"HEAD" if status == 200 else b"GET"
        await client.say(method + b" / HTTP/1.1\r\n\r\n")
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"chunked" not in head
        await client.say(method + b" / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert b"not for HEAD" not in await client.rest()


async def test_a_client_that_wants_the_end_gets_it() -> None:
    async with serving(Script()) as server:
        client = await server.connect()
        await client.say(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n" + GET)
        _, headers, body = await client.answer()
        assert (headers[b"connection"], body) == (b"close", b"/a:")
        assert await client.rest() == b""


WRONG = [
    [(b"x", b"a\r\nb: c")],
    [(b"x", b"a\nb")],
    [(b"x", b"a\rb")],
    [(b"x", b"a\0b")],
    [(b"x\r\ny", b"a")],
]


@pytest.mark.parametrize("headers", WRONG)
async def test_a_header_can_t_forge_another(headers: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def forges(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async with serving(forges) as server:
        client = await server.connect()
        await client.say(GET)
        status, headers, _ = await client.answer()
        assert (status, headers[b"connection"]) == (500, b"close")
        assert await client.rest() == b""
    assert "GET /a failed" in caplog.text


@pytest.mark.parametrize("length", [4, 6])
async def test_a_body_of_another_length_ends_the_connection(length: int) -> None:
    async def lies(scope: Any, receive: Any, send: Any) -> None:
        header = (b"content-length", str(length).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [header]})
        await send({"type": "http.response.body", "body": b"12345"})

    async with serving(lies) as server:
        client = await server.connect()
        await client.say(GET)
        assert b"12345" not in await client.rest() or length == 6


async def test_an_application_that_fails_half_way_ends_the_connection() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("on purpose")

    async with serving(fails) as server:
        client = await server.connect()
        await client.say(GET)
        assert (await client.rest()).endswith(b"4\r\nhalf\r\n")


async def test_who_answers_waits_for_a_client_that_does_not_read() -> None:
    sent = itertools.count()
    last = 0

    async def floods(scope: Any, receive: Any, send: Any) -> None:
        nonlocal last
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
            last = next(sent)
            await asyncio.sleep(0)

    async with serving(floods) as server:
        client = await server.connect()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await client.say(GET)
        await until(lambda: server.connection.writer.paused is not None)
        before = last
        await asyncio.sleep(0.05)
        assert last == before
        # And is let go when that has gone on for too long.
        connection, now = server.connection, monotonic()
        connection.look_at_clock(now)
        connection.look_at_clock(now + 39)
        assert server.state.connections
        connection.look_at_clock(now + 41)
        assert not server.state.connections
        await until(lambda: connection._answering is not None and connection._answering.gone)


async def test_a_client_that_reads_slowly_is_waited_for() -> None:
    async def answers(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, b"x" * 60_000_000)

    async with serving(answers) as server:
        client = await server.connect()
        await client.say(GET)
        await until(lambda: server.connection._transport.get_write_buffer_size() > 0)
        connection, now = server.connection, monotonic()
        for step in range(10):
            connection.look_at_clock(now + 39 * step)
            unsent = connection._transport.get_write_buffer_size()
            while connection._transport.get_write_buffer_size() > unsent - 20_000:
                await client.reader.readexactly(100_000)
        assert server.state.connections


# --------------------------------------------------------------------------------------------------
# Time
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "answered", "seconds", "status"),
    [
        (b"", 0, 10, None),
        (b"GET / HT", 0, 10, 408),
        (GET, 1, 30, None),
        (GET + b"GET / HT", 1, 10, 408),
        (GET + post(b"x" * 10)[:-5], 1, 20, 408),
        (post(b"x" * 40_000)[:-5], 0, 20, 408),
    ],
)
async def test_nothing_is_waited_for_longer_than_it_may_take(
    said: bytes, answered: int, seconds: float, status: int | None
) -> None:
    async with serving(Script()) as server:
        client = await server.connect()
        await client.say(said)
        for _ in range(answered):
            await client.answer()
        await asyncio.sleep(0.02)
        connection = server.connection
        if status == 408 and seconds == 20:
            connection.look_at_clock(connection._patience.since)  # what has come is progress
        connection.look_at_clock(connection._patience.since + seconds - 0.5)
        assert not connection._transport.is_closing()
        connection.look_at_clock(connection._patience.since + seconds + 0.5)
        if status is None:
            assert await client.rest() == b""
        else:
            assert (await client.answer())[0] == status


async def test_a_request_that_is_answered_has_all_the_time_it_needs() -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(GET)
        await until(lambda: len(script.asked) == 1)
        server.connection.look_at_clock(server.connection._patience.since + 1e6)
        script.go_on.set()
        assert (await client.answer())[2] == b"/a:"


async def test_a_body_that_comes_by_the_byte_is_not_progress() -> None:
    script = Script()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(post(b"x" * 1_000_000)[:-1_000_000])
        await until(lambda: server.connection._reading is not None)
        begun = server.connection._patience.since
        for second in range(1, 22):
            await client.say(b"x" * 500)
            await asyncio.sleep(0.002)
            server.connection.look_at_clock(begun + second)
        assert (await client.answer())[0] == 408
    assert script.late == 1


async def test_a_body_that_makes_progress_is_waited_for() -> None:
    script = Script()
    async with serving(script) as server:
        client = await server.connect()
        await client.say(post(b"x" * 1_000_000)[:-1_000_000])
        await until(lambda: server.connection._reading is not None)
        begun = server.connection._patience.since
        for step in range(1, 51):
            await client.say(b"x" * 20_000)
            await until(lambda: len(script.asked) or server.connection._patience.progress == 20_000)
            server.connection.look_at_clock(begun + 19 * step)
        assert (await client.answer())[0] == 200


async def test_who_is_refused_is_listened_to_for_a_moment_only() -> None:
    async with serving(Script()) as server:
        client = await server.connect()
        await client.say(b"no http\r\n\r\n")
        await client.answer()
        connection = server.connection
        connection.look_at_clock(connection._patience.since + 4)
        assert server.state.connections
        connection.look_at_clock(connection._patience.since + 6)
        assert not server.state.connections


# --------------------------------------------------------------------------------------------------
# The server's end
# --------------------------------------------------------------------------------------------------


async def test_at_the_end_only_what_has_come_whole_is_answered() -> None:
    script = Script()
    script.go_on.clear()
    async with serving(script) as server:
        idle, half, whole = [await server.connect() for _ in range(3)]
        await half.say(post(b"x" * 10)[:-5])
        await whole.say(GET * 2)
        await until(lambda: len(script.asked) == 1 and len(server.state.tasks) == 2)
        server.state.ending = True
        for connection in list(server.state.connections):
            connection.shutdown()
        assert await idle.rest() == b""
        assert await half.rest() == b""
        script.go_on.set()
        assert (await whole.answer())[1][b"connection"] == b"close"
        assert await whole.rest() == b""


async def test_idle_connections_are_known_by_how_long_they_are() -> None:
    script = Script()
    async with serving(script) as server:
        first, second = await server.connect(), await server.connect()
        connections = list(server.state.idle)
        assert len(connections) == 2
        await first.say(GET)
        await first.answer()
        assert list(server.state.idle) == connections[::-1]
        script.go_on.clear()
        await second.say(GET)
        await until(lambda: len(script.asked) == 2)
        assert list(server.state.idle) == connections[:1]
        second.close()
        await until(lambda: len(server.state.connections) == 1)
        assert list(server.state.idle) == connections[:1]


@pytest.mark.parametrize("value", [b"a\r\nx-other: b", b"a\nb", b"a\rb", b"a\0b"])
async def test_no_header_of_an_answer_is_two(value: bytes) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"3"), (b"x-one", value)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"yes"})

    async with serving(answer) as server:
        client = await server.connect()
        await client.say(GET)
        status, headers, _ = await client.answer()
    assert status == 500
    assert not {b"x-one", b"x-other"} & headers.keys()
