"""Thousands of requests to a server that does anything, by clients that leave at any moment."""

from __future__ import annotations

import asyncio
import random

import pytest

from providers.remote import http1
from tests.unit.providers.remote.http1.raw_server import (
    CHUNKED,
    NO_HEADERS,
    OK,
    Peer,
    Server,
    client_tls,
    client_with,
    server_tls,
    serving,
    until,
)

pytestmark = pytest.mark.alone

REQUESTS = 1000
CLIENTS = 40


def framed(body: bytes, chance: random.Random) -> tuple[bytes, bool]:
    """An answer with `body`, and whether the connection has to be closed after it."""
    match chance.randrange(4):
        case 0:
            return b"HTTP/1.1 200 OK\r\n\r\n" + body, True
        case 1:
            middle = len(body) // 2
            parts = [part for part in (body[:middle], body[middle:]) if part]
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
            return b"HTTP/1.1 100 Go\r\n\r\n" + CHUNKED + chunks + b"0\r\n\r\n", False
        case 2:
            head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            return head % len(body) + body, True
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body), False


async def does_anything(peer: Peer) -> None:
    chance = random.Random(peer.number)
    while True:
        _, body = await peer.request()
        answer, closes = framed(body, chance)
        cut = chance.randrange(len(answer))
        match chance.randrange(20):
            case 0:
                return
            case 1:
                peer.reset()
            case 2:
                await peer.send(answer[:cut])
                return
            case 3:
                await peer.send(b"nonsense\r\n\r\n")
            case 4:
                await peer.left()
            case 5:
                await peer.send(answer if closes else answer + OK)
            case 6:
                await peer.send(answer)
                return
            case 7 | 8 | 9:
                await peer.send(answer[:cut])
                await asyncio.sleep(chance.random() / 200)
                await peer.send(answer[cut:])
            case _:
                await peer.send(answer)
        if closes:
            return


async def ask_anyhow(client: http1.Client, server: Server, number: int) -> bool:
    """Ask with a body of its own; whether it was answered. No answer may be another's."""
    chance = random.Random(number)
    body = b"%d:" % number + b"x" * chance.choice((0, 10, 1000, 200_000))
    try:
        async with asyncio.timeout(chance.random() / 50 if chance.random() < 0.1 else 5):
            response = await client.send("POST", server.route, "/", NO_HEADERS, body)
            try:
                if chance.random() < 0.1:
                    first = await response.next_chunk()
                    assert body.startswith(first)
                    if chance.random() < 0.5:
                        response.discard()
                    return False
                answer = await response.read()
                # Without a length or chunks nobody can tell that an answer was cut.
                unframed = not {"content-length", "transfer-encoding"} & set(response.headers)
                whole = answer == body
                assert whole or (unframed and body.startswith(answer)), answer[:100]
                return whole
            finally:
                response.close()
    except (http1.HTTPError, TimeoutError):
        return False


@pytest.mark.parametrize("limit", [0, 7])
@pytest.mark.parametrize("tls", [False, True])
async def test_nothing_is_left_over(limit: int, tls: bool) -> None:
    numbers = iter(range(REQUESTS))
    answered = 0

    async def keep_asking(client: http1.Client, server: Server) -> None:
        nonlocal answered
        for number in numbers:
            if await ask_anyhow(client, server, number):
                answered += 1

    timeouts = http1.Timeouts(first_byte=0.5, between_bytes=0.5, total=3)
    settings = {"max_connections": limit, "tls": client_tls() if tls else None}
    async with (
        serving(does_anything, server_tls() if tls else None) as server,
        client_with(timeouts, **settings) as client,
    ):
        await asyncio.gather(*(keep_asking(client, server) for _ in range(CLIENTS)))
        assert answered > REQUESTS / 4
        await until(lambda: client.counts.leased == 0)
        assert client.counts.waiting == 0
        assert not client._wanted
        if limit:
            assert client.counts.idle <= limit
        await client.close()
        await server.all_left()
        assert not client._open
