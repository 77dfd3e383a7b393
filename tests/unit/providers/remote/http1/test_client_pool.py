"""The pool: which connections are used again, how many there are, and who waits."""

from __future__ import annotations

import asyncio

import pytest

from providers.remote import http1
from providers.remote.http1 import connection as connection_module
from tests.unit.providers.remote.http1.raw_server import (
    CHUNKED,
    NO_HEADERS,
    OK,
    Peer,
    Server,
    answers,
    ask,
    client_with,
    serving,
    until,
)


async def test_a_connection_is_used_again() -> None:
    async with serving(answers) as server, client_with() as client:
        for _ in range(5):
            assert await ask(client, server, b"hello") == b"hello"
        assert server.connections == 1
        assert client.counts == (0, 1, 0)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + OK,
        OK + b"x",
    ],
)
async def test_a_connection_is_not_used_again_after(answer: bytes) -> None:
    async def once(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)
        await peer.left()

    async with serving(once) as server, client_with() as client:
        for number in range(1, 4):
            assert await ask(client, server) == b"ok"
            await server.all_left()
            assert (server.connections, client.counts.idle) == (number, 0)


async def test_the_connection_that_was_used_last_is_used_next() -> None:
    numbers = []

    async def tell(peer: Peer) -> None:
        while True:
            await peer.request()
            numbers.append(peer.number)
            await peer.send(OK)

    async with serving(tell) as server, client_with() as client:
        await asyncio.gather(*(ask(client, server) for _ in range(3)))
        last = numbers[-1]
        numbers.clear()
        await ask(client, server)
        await ask(client, server)
        assert numbers == [last, last]


async def test_idle_connections_are_closed_after_a_while() -> None:
    async with serving(answers) as server, client_with(idle_seconds=0.05) as client:
        await ask(client, server)
        await server.all_left()
        assert client.counts == (0, 0, 0)
        assert await ask(client, server) == b"ok"


async def test_there_are_never_more_connections_than_allowed() -> None:
    most = 0

    async def count(peer: Peer) -> None:
        nonlocal most
        most = max(most, server.open)
        await answers(peer)

    async with serving(count) as server, client_with(max_connections=3) as client:
        asked = [ask(client, server, b"%d" % number) for number in range(50)]
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(50)]
        assert most <= 3


async def test_who_waits_first_is_served_first() -> None:
    order = []

    async with serving(answers) as server, client_with(max_connections=1) as client:

        async def one(number: int) -> None:
            await ask(client, server, b"x")
            order.append(number)

        await asyncio.gather(*(one(number) for number in range(10)))
    assert order == list(range(10))


async def test_who_gives_up_waiting_holds_nobody_up() -> None:
    go_on = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.request()
        await go_on.wait()
        await peer.send(OK)
        await answers(peer)

    async with serving(slow) as server, client_with(max_connections=1) as client:
        tasks = [asyncio.create_task(ask(client, server)) for _ in range(5)]
        await until(lambda: client.counts.waiting == 4)
        tasks[1].cancel()
        tasks[3].cancel()
        await until(lambda: client.counts.waiting == 2)
        go_on.set()
        said = await asyncio.gather(*tasks, return_exceptions=True)
        assert [each for each in said if each == b"ok"] == [b"ok"] * 3
        assert client.counts == (0, 1, 0)


async def test_the_wait_for_a_connection_counts_for_the_total() -> None:
    async def hold(peer: Peer) -> None:
        await peer.request()
        await peer.left()

    timeouts = http1.Timeouts(total=0.1)
    async with serving(hold) as server, client_with(timeouts, max_connections=1) as client:
        said = await asyncio.gather(
            *(ask(client, server) for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in said] == [http1.TotalTimeout] * 3
        await until(lambda: client.counts == (0, 0, 0))


async def test_an_idle_connection_makes_room_for_one_to_another_server() -> None:
    async with (
        serving(answers) as one,
        serving(answers) as other,
        client_with(max_connections=1) as client,
    ):
        for server in (one, other, one):
            assert await ask(client, server) == b"ok"
            assert sum(client.counts) == 1
        assert (one.connections, other.connections) == (2, 1)


# Closed while idle --------------------------------------------------------------------------------


class ClosesWhenReused:
    """The first connections end under their second request, which is read, so that nobody can know
    before.

    Attributes:
        read: the bodies of the requests that were read.
    """

    def __init__(self, how: str, idle: int) -> None:
        self.read: list[bytes] = []
        self._how = how
        self._idle = idle

    async def __call__(self, peer: Peer) -> None:
        await self._request(peer)
        await asyncio.sleep(0.02)
        await peer.send(OK)
        while peer.number > self._idle:
            await self._request(peer)
            await peer.send(OK)
        await self._request(peer)
        if self._how == "resets":
            peer.reset()

    async def _request(self, peer: Peer) -> None:
        self.read.append((await peer.request())[1])


closing = pytest.mark.parametrize("how", ["closes", "resets"])
idling = pytest.mark.parametrize("idle", [1, 5])


@closing
@idling
@pytest.mark.parametrize(("body", "idempotent"), [(None, False), (b"x", True)])
async def test_what_may_be_done_twice_is_sent_again_where_a_connection_closes_under_it(
    how: str, idle: int, body: bytes | None, idempotent: bool
) -> None:
    script = ClosesWhenReused(how, idle)
    async with serving(script) as server, client_with() as client:
        await asyncio.gather(*(ask(client, server) for _ in range(idle)))
        assert client.counts.idle == idle
        assert await ask(client, server, body, idempotent=idempotent) == b"ok"
        assert server.connections == idle + 1


@closing
@idling
async def test_what_may_have_been_read_is_not_sent_twice(how: str, idle: int) -> None:
    """As it was found: a POST was done twice, and nobody was told."""
    script = ClosesWhenReused(how, idle)
    async with serving(script) as server, client_with() as client:
        await asyncio.gather(*(ask(client, server) for _ in range(idle)))
        with pytest.raises(http1.StaleError):
            await ask(client, server, b"x")
        assert script.read.count(b"x") == 1
        # Who sends it again all the same meets none of the others that were closed as well.
        assert await ask(client, server, b"x") == b"ok"
        assert server.connections == idle + 1
        assert script.read.count(b"x") == 2


async def test_a_connection_that_closed_before_is_not_even_tried() -> None:
    requests = 0

    async def once(peer: Peer) -> None:
        nonlocal requests
        await peer.request()
        requests += 1
        await peer.send(OK)

    async with serving(once) as server, client_with() as client:
        for number in range(1, 5):
            assert await ask(client, server) == b"ok"
            assert (server.connections, requests) == (number, number)
            await server.all_left()


async def test_a_new_connection_that_closes_is_an_error_at_once() -> None:
    async def drop(peer: Peer) -> None:
        await peer.request()

    async with serving(drop) as server, client_with() as client:
        with pytest.raises(http1.DisconnectedError):
            await ask(client, server)
        assert server.connections == 1


async def test_a_request_is_not_sent_a_third_time() -> None:
    async def drop(peer: Peer) -> None:
        await peer.request()
        if peer.number == 1:
            await peer.send(OK)
            await peer.request()

    async with serving(drop) as server, client_with() as client:
        await ask(client, server)
        with pytest.raises(http1.DisconnectedError):
            await ask(client, server)
        assert server.connections == 2


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", OK[:-1]])
async def test_a_request_whose_answer_began_is_not_sent_again(begun: bytes) -> None:
    requests = 0

    async def breaks(peer: Peer) -> None:
        nonlocal requests
        for answer in (OK, begun):
            await peer.request()
            requests += 1
            await peer.send(answer)

    async with serving(breaks) as server, client_with() as client:
        await ask(client, server)
        with pytest.raises(http1.DisconnectedError):
            await ask(client, server)
        assert (requests, server.connections) == (2, 1)


async def test_a_request_that_was_worked_on_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("providers.remote.http1.client.STALE_WITHIN_SECONDS", 0.02)

    async def works_and_dies(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        await asyncio.sleep(0.05)

    async with serving(works_and_dies) as server, client_with() as client:
        await ask(client, server)
        with pytest.raises(http1.DisconnectedError) as error:
            await ask(client, server)
        assert not isinstance(error.value, http1.StaleError)
        assert server.connections == 1


# Unasked ------------------------------------------------------------------------------------------


async def test_what_a_server_sends_unasked_answers_nobody() -> None:
    said = asyncio.Event()

    async def says_more(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await asyncio.sleep(0.005)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad")
        said.set()
        await peer.left()

    async with serving(says_more) as server, client_with() as client:
        for _ in range(3):
            said.clear()
            assert await ask(client, server) == b"ok"
            await said.wait()


async def test_what_was_sent_unasked_counts_before_the_loop_has_seen_it() -> None:
    """It lies in the socket when the next request is about to go out."""
    more = asyncio.Event()

    async def says_more(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await more.wait()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad")
        await peer.left()

    async with serving(says_more) as server, client_with() as client:
        assert await ask(client, server) == b"ok"
        (idle,) = next(iter(client._idle.values()))
        assert idle._transport is not None
        idle._transport.pause_reading()
        assert idle.is_usable()
        more.set()
        await until(lambda: not idle.is_usable())
        more.clear()
        assert await ask(client, server) == b"ok"
        assert server.connections == 2


async def test_a_server_that_speaks_first_does_not_speak_http() -> None:
    async def greet(peer: Peer) -> None:
        await peer.send(b"220 ready\r\n")
        await peer.left()

    async with serving(greet) as server, client_with() as client:
        for _ in range(3):
            with pytest.raises(http1.ProtocolError):
                await ask(client, server)


# Discarding ---------------------------------------------------------------------------------------


async def discard(client: http1.Client, server: Server) -> None:
    """Read the first bytes and leave the rest, without waiting."""
    response = await client.send("GET", server.route, "/", NO_HEADERS)
    assert await response.next_chunk() == b"hello"
    response.discard()
    response.close()
    assert await response.next_chunk() == b""


async def test_a_connection_whose_answer_soon_ends_is_used_again() -> None:
    async def soon(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(CHUNKED + b"5\r\nhello\r\n")
            await asyncio.sleep(0.01)
            await peer.send(b"5\r\nworld\r\n0\r\n\r\n")

    async with serving(soon) as server, client_with() as client:
        for _ in range(3):
            await discard(client, server)
            assert client.counts == (1, 0, 0)
            await until(lambda: client.counts == (0, 1, 0))
        assert server.connections == 1


async def test_a_connection_whose_answer_does_not_end_is_closed() -> None:
    async def never(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"5\r\nhello\r\n")
        await peer.left()

    async with serving(never) as server, client_with() as client:
        await discard(client, server)
        await server.all_left()
        await until(lambda: client.counts == (0, 0, 0))


async def test_a_connection_whose_answer_goes_on_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "DISCARD_SECONDS", 60)

    async def much(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"5\r\nhello\r\n")
        await asyncio.sleep(0.01)
        while True:
            await peer.send(b"5\r\nworld\r\n" * 100)

    async with serving(much) as server, client_with() as client:
        await discard(client, server)
        await server.all_left()


async def test_the_next_request_takes_the_connection_that_is_free_first() -> None:
    """A new one is on its way when an answer that is being discarded ends."""

    async def soon(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"5\r\nhello\r\n")
        await asyncio.sleep(0.01)
        await peer.send(b"0\r\n\r\n")
        await answers(peer)

    async with serving(soon) as server, client_with() as client:
        dial = client._dialer.dial

        async def slow_dial(*args: object) -> object:
            await asyncio.sleep(0.5)
            return await dial(*args)  # type: ignore[arg-type]

        await discard(client, server)
        client._dialer.dial = slow_dial  # type: ignore[assignment, method-assign]
        assert await ask(client, server) == b"ok"
        assert server.connections == 1
        await until(lambda: not client._ending)


# Closing ------------------------------------------------------------------------------------------


async def test_closing_ends_what_runs() -> None:
    async def hold(peer: Peer) -> None:
        await peer.request()
        if peer.number == 1:
            await peer.send(CHUNKED)
        await peer.left()

    async with serving(hold) as server, client_with(max_connections=2) as client:
        tasks = [asyncio.create_task(ask(client, server)) for _ in range(3)]
        await until(lambda: server.connections == 2 and client.counts.waiting == 1)
        await client.close()
        said = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in said] == [http1.ClosedError] * 3
        with pytest.raises(http1.ClosedError):
            await ask(client, server)
        await server.all_left()


async def test_who_leaves_as_the_answer_comes_takes_nobody_s_connection_along() -> None:
    asked = asyncio.Event()

    async def once_not(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await answers(peer)

    async with serving(once_not) as server, client_with() as client:
        leaving = asyncio.create_task(ask(client, server))
        await asked.wait()
        (connection,) = client._open
        staying = asyncio.create_task(ask(client, server, b"hello"))
        leaving.cancel()
        connection.data_received(OK)  # before either of them goes on
        assert await staying == b"hello"
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert server.connections == 1


async def test_who_leaves_with_a_new_connection_leaves_the_others_theirs() -> None:
    others: list[asyncio.Task[bytes]] = []

    async with serving(answers) as server, client_with() as client:
        leaving = asyncio.create_task(ask(client, server))
        offer = client._offer

        def offer_late(connection: connection_module.HTTPConnection, *, was_idle: bool) -> None:
            client._offer = offer  # type: ignore[method-assign]
            others.extend(asyncio.create_task(ask(client, server, b"hello")) for _ in range(2))
            offer(connection, was_idle=was_idle)
            leaving.cancel()

        client._offer = offer_late  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await leaving
        async with asyncio.timeout(20):
            assert await asyncio.gather(*others) == [b"hello", b"hello"]
