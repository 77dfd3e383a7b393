"""Requests that come again byte for byte: which are answered without being read, and which not."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pytest

from routing.asgi import REPEAT, RawHeaders
from routing.http import repeats as module
from routing.http.connection import Connection
from routing.http.repeats import Repeat, Repeats
from tests.unit.routing.http.serving import Client, serving, until

BODY = b'{"a": 1}'
ASKED = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


async def answer_of(client: Client) -> tuple[int, dict[bytes, bytes], bytes]:
    """As `Client.answer`, in chunks too."""
    status, headers, body = await client.answer()
    if headers.get(b"transfer-encoding") == b"chunked":
        chunks = await client.reader.readuntil(b"0\r\n\r\n")
        body = b"".join(chunks.split(b"\r\n")[1::2])
    return status, headers, body


def has_begun(connection: Connection) -> bool:
    """Whether something has come of a request that is not whole."""
    return bool(connection._ahead) or not connection._reader.is_between


class Counting:
    """An application that counts what it is asked, and offers to answer that again.

    Attributes:
        asked: how many requests it got.
        repeated: how many were answered without it.
        agrees: whether they may be.
        pieces: of its answers; with more than one they have no length.
        status: of them.
        fails: whether to fail when it is asked to agree.
    """

    varying: Set[bytes] = frozenset({b"age", b"x-request-id"})

    def __init__(self) -> None:
        self.asked = self.repeated = 0
        self.agrees, self.fails = True, False
        self.pieces = [b"yes"]
        self.status = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        while (await receive()).get("more_body"):
            pass
        scope["extensions"][REPEAT](self)
        headers = [(b"age", b"7"), (b"x-one", b"1"), (b"x-request-id", b"%d" % self.asked)]
        if len(self.pieces) == 1:
            headers.append((b"content-length", b"%d" % len(self.pieces[0])))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def again(self) -> RawHeaders | None:
        if self.fails:
            raise RuntimeError("it can't")
        if not self.agrees:
            return None
        self.repeated += 1
        return [(b"age", b"9"), (b"x-request-id", b"again")]


@pytest.mark.parametrize("pieces", [[b"yes"], [b"y", b"es", b"!"]], ids=["whole", "in chunks"])
async def test_the_same_bytes_are_answered_alike_on_every_connection(pieces: list[bytes]) -> None:
    application = Counting()
    application.pieces = pieces
    async with serving(application) as server:
        first = await server.connect()
        await first.say(ASKED)
        before = await answer_of(first)
        for client in (first, await server.connect(), first):
            await client.say(ASKED)
            status, headers, body = await answer_of(client)
            assert (status, body) == (200, b"".join(pieces))
            assert (headers[b"age"], headers[b"x-request-id"]) == (b"9", b"again")
            assert headers.keys() == before[1].keys()
            assert headers[b"x-one"] == b"1"
    assert (before[1][b"age"], before[1][b"x-request-id"]) == (b"7", b"1")
    assert (application.asked, application.repeated) == (1, 3)


async def test_other_bytes_are_read() -> None:
    application = Counting()
    async with serving(application) as server:
        client = await server.connect()
        for asked in (ASKED, ASKED.replace(b"Host", b"host"), ASKED.replace(b"1}", b"2}")):
            await client.say(asked)
            await client.answer()
    assert (application.asked, application.repeated) == (3, 0)


async def test_who_does_not_agree_is_asked_and_may_offer_it_anew() -> None:
    application = Counting()
    async with serving(application) as server:
        client = await server.connect()
        for agrees in (True, False, True):
            application.agrees = agrees
            await client.say(ASKED)
            await client.answer()
    assert (application.asked, application.repeated) == (2, 1)


async def test_one_that_fails_is_read() -> None:
    application = Counting()
    application.fails = True
    async with serving(application) as server:
        client = await server.connect()
        for _ in range(2):
            await client.say(ASKED)
            assert (await client.answer())[0] == 200
    assert (application.asked, application.repeated) == (2, 0)


@pytest.mark.parametrize(
    "said",
    [
        [ASKED[:20], ASKED[20:]],
        [ASKED[:-3], ASKED[-3:]],
        [ASKED + ASKED],
        [ASKED + ASKED[:9], ASKED[9:]],
    ],
    ids=["head in pieces", "body in pieces", "two at a time", "one and a part"],
)
async def test_what_does_not_come_alone_and_whole_is_read(said: list[bytes]) -> None:
    application = Counting()
    async with serving(application) as server:
        client = await server.connect()
        answers = b"".join(said).count(b"POST")
        for _ in range(2):
            for piece in said[:-1]:
                await client.say(piece)
                await until(lambda: has_begun(server.connection))
            await client.say(said[-1])
            for _ in range(answers):
                assert (await client.answer())[0] == 200
    assert (application.asked, application.repeated) == (2 * answers, 0)


@pytest.mark.parametrize("line", [b"Connection: close", b"Expect: 100-continue"])
async def test_what_is_more_than_a_request_is_read(line: bytes) -> None:
    application = Counting()
    asked = ASKED.replace(b"Host: x", b"Host: x\r\n" + line)
    async with serving(application) as server:
        for _ in range(2):
            client = await server.connect()
            await client.say(asked)
            assert (await client.answer())[0] in (100, 200)
            server.clients.remove(client)
            client.close()
            await until(lambda: not server.state.connections)
    assert (application.asked, application.repeated) == (2, 0)


async def test_an_answer_that_is_no_success_is_given_once() -> None:
    application = Counting()
    application.status = 404
    async with serving(application) as server:
        client = await server.connect()
        for _ in range(2):
            await client.say(ASKED)
            assert (await client.answer())[0] == 404
    assert (application.asked, application.repeated) == (2, 0)


async def test_a_long_answer_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routing.http.exchange.MAX_ANSWER_BYTES", 2)
    application = Counting()
    async with serving(application) as server:
        client = await server.connect()
        for _ in range(2):
            await client.say(ASKED)
            await client.answer()
    assert application.repeated == 0


async def test_a_connection_that_is_answered_so_is_the_newest_of_the_idle() -> None:
    application = Counting()
    async with serving(application) as server:
        first = await server.connect()
        await first.say(ASKED)
        await first.answer()
        second = await server.connect()
        await second.say(ASKED)
        await second.answer()
        newest = list(server.state.idle)[-1]
        await first.say(ASKED)
        await first.answer()
        assert list(server.state.idle)[-1] is not newest
    assert application.asked == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_BYTES", 10 * module.REPEAT_BYTES)
    known, repeat = Repeats(), Repeat(Counting(), b"head", b"body")
    for number in range(1000):
        known.keep(b"%d" % number, repeat)
        assert known.find(b"0") is repeat  # it is asked for again and again
    assert len(known._newer) + len(known._older) < 30
    assert known.find(b"500") is None
    known.forget(b"0")
    assert known.find(b"0") is None
