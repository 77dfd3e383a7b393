"""The client: a pool of connections, and the requests that take them."""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from collections import OrderedDict
from functools import lru_cache, partial
from typing import Literal, NamedTuple, TypeVar

from providers.remote.http1.connection import HTTPConnection
from providers.remote.http1.dialing import AddressCheck, Dialer
from providers.remote.http1.errors import (
    ClosedError,
    DisconnectedError,
    InvalidURLError,
    StaleError,
    TotalTimeout,
)
from providers.remote.http1.headers import HeaderBlock
from providers.remote.http1.response import Response
from providers.remote.http1.timeouts import Timeouts
from providers.remote.http1.urls import NetworkRoute

Result = TypeVar("Result")

STALE_WITHIN_SECONDS = 1.0
"""A connection that was closed while idle shows it within a round trip. One that breaks later broke
while the server worked on the request."""

IDLE_SECONDS = 30.0
"""Idle connections are closed before servers and load balancers tend to close them."""

_TARGET = re.compile(r"/[\x21-\x7e]*")


class PoolCounts(NamedTuple):
    """How many connections there are now, and requests that wait for one.

    Attributes:
        leased: with an exchange, or on the way to one.
        idle: without.
        waiting: requests that wait because of `max_connections`.
    """

    leased: int
    idle: int
    waiting: int


class Client:
    """Sends requests over pooled connections.

    Args:
        timeouts: for every request.
        tls: for https; what the system trusts by default.
        max_connections: open at a time, 0 for any number; further requests wait, the first one
            first.
        idle_seconds: how long a connection is kept that nobody uses.
        check_address: asked before a socket is connected, with the IP address; may raise OSError.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        tls: ssl.SSLContext | None = None,
        max_connections: int = 0,
        idle_seconds: float = IDLE_SECONDS,
        check_address: AddressCheck | None = None,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._limit = max_connections or math.inf
        self._idle_seconds = idle_seconds
        self._dialer = Dialer(tls, check_address, self._timeouts.connect)
        self._open: set[HTTPConnection] = set()
        self._leased = 0
        self._queue: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._idle: dict[str, dict[HTTPConnection, None]] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self._some_gone = asyncio.Event()

    @property
    def counts(self) -> PoolCounts:
        """How many connections there are now."""
        idle = sum(map(len, self._idle.values()))
        return PoolCounts(self._leased, idle, len(self._queue))

    async def send(
        self,
        method: Literal["GET", "POST", "DELETE"],
        route: NetworkRoute,
        target: str,
        headers: HeaderBlock,
        body: bytes | memoryview | None = None,
        *,
        idempotent: bool = False,
    ) -> Response:
        """Send a request; its answer, once the head is there, which has to be read, discarded or
        closed.

        A connection that the server is known to have closed in the meantime is not used. If one
        turns out to be closed as the request is written, the server may have read it: only what is
        idempotent is then sent a second time (RFC 9110, section 9.2.2), on a new connection.

        Args:
            target: path and query, in ASCII and escaped where that is needed.
            headers: besides `host` and `content-length`.
            idempotent: whether a POST may be done twice, and is not paid; a GET may always be.

        Raises:
            StaleError: a request that must not be done twice may have been read, or not.
            HTTPError: there is no answer.
        """
        head = _beginning(method, route, target) + headers
        head += b"\r\n" if body is None else b"content-length: %d\r\n\r\n" % len(body)
        time = asyncio.get_running_loop().time
        total = self._timeouts.total
        deadline = math.inf if total is None else time() + total
        leased = self._lease_idle(route.key)
        if leased is None:
            connection, was_idle = await self._lease(route, deadline)
        else:
            connection, was_idle = leased, True
        began = time()
        try:
            return await connection.exchange(head, body or b"", deadline)
        except DisconnectedError as error:
            if error.begun or not was_idle or time() - began >= STALE_WITHIN_SECONDS:
                raise
            self._drop_idle(route.key)
            if not idempotent and method != "GET":
                raise StaleError(str(error)) from error
        connection, _ = await self._lease(route, deadline)
        return await connection.exchange(head, body or b"", deadline)

    async def close(self) -> None:
        """Close every connection; requests that still run fail."""
        self._closed = True
        error = ClosedError("the client was closed")
        for turn in self._queue:
            _fail(turn, error)
        for wanted in self._wanted.values():
            for waiter in wanted.waiters:
                _fail(waiter, error)
            self._ending.update(wanted.dialing)
        ending = tuple(self._ending)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._dialer.close()
        for connection in list(self._open):
            connection.abort(error)
        while self._open:
            self._some_gone.clear()
            await self._some_gone.wait()

    # Connections that are there -------------------------------------------------------------------

    def _lease_idle(self, key: str) -> HTTPConnection | None:
        """An idle connection for one exchange, if there is one and nobody has to wait for it."""
        if self._closed or self._leased >= self._limit:
            return None
        connection = self._take_idle(key)
        if connection is not None:
            self._leased += 1
            connection.leased = True
        return connection

    async def _lease(self, route: NetworkRoute, deadline: float) -> tuple[HTTPConnection, bool]:
        """A connection for one exchange, and whether it had another before.

        The lease ends with the exchange or the connection, whatever comes first.
        """
        if self._closed:
            raise ClosedError("the client was closed")
        if self._leased < self._limit:
            self._leased += 1
        else:
            await self._turn(deadline)
        try:
            connection = self._take_idle(route.key)
            was_idle = connection is not None
            while connection is None:
                connection, was_idle = await self._wait_for_connection(route, deadline)
                if was_idle and not connection.is_usable():
                    connection.abort()
                    connection = None
                elif connection.failure is not None:
                    raise connection.failure
        except BaseException:
            self._end_lease()
            raise
        connection.leased = True
        return connection, was_idle

    async def _turn(self, deadline: float) -> None:
        """Wait for somebody else's lease to end, which is one's own then."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = None
        try:
            await self._until(turn, deadline)
        except BaseException:
            self._queue.pop(turn, None)
            if _has_result(turn):
                self._end_lease()
            raise

    def _end_lease(self) -> None:
        while self._queue:
            turn, _ = self._queue.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                return
        self._leased -= 1

    def _take_idle(self, key: str) -> HTTPConnection | None:
        """The idle connection that was used last, if there is one."""
        while idle := self._idle.get(key):
            connection, _ = idle.popitem()
            if not idle:
                del self._idle[key]
            if connection.is_usable():
                return connection
            connection.abort()
        return None

    def _drop_idle(self, key: str) -> None:
        """One was closed while it was idle, and the others have been idle for longer: the next
        request, perhaps the same once more, is not to meet that again."""
        for connection in self._idle.pop(key, ()):
            connection.abort()

    def connection_idle(self, connection: HTTPConnection) -> None:
        """A connection's exchange is over."""
        leased, connection.leased = connection.leased, False
        self._offer(connection, was_idle=True)
        if leased:
            self._end_lease()

    def connection_closed(self, connection: HTTPConnection) -> None:
        """A connection is gone."""
        self._open.discard(connection)
        idle = self._idle.get(connection.key)
        if idle is not None:
            idle.pop(connection, None)
            if not idle:
                del self._idle[connection.key]
        if connection.leased:
            connection.leased = False
            self._end_lease()
        self._some_gone.set()

    def _offer(self, connection: HTTPConnection, *, was_idle: bool) -> None:
        """Give a connection to the first who waits for one like it, or keep it."""
        wanted = self._wanted.get(connection.key)
        while wanted is not None and wanted.waiters:
            waiter, _ = wanted.waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_result((connection, was_idle))
                self._trim(connection.key, wanted)
                return
        if self._closed or len(self._open) > self._limit:
            connection.abort()
        else:
            self._idle.setdefault(connection.key, {})[connection] = None

    # New connections ------------------------------------------------------------------------------

    async def _wait_for_connection(
        self, route: NetworkRoute, deadline: float
    ) -> tuple[HTTPConnection, bool]:
        """A new connection, or one that others have done with, whichever is there first."""
        wanted = self._wanted.get(route.key)
        if wanted is None:
            wanted = self._wanted[route.key] = _Wanted(OrderedDict(), [])
        waiter: asyncio.Future[tuple[HTTPConnection, bool]]
        waiter = asyncio.get_running_loop().create_future()
        wanted.waiters[waiter] = None
        if len(wanted.dialing) < len(wanted.waiters):
            self._make_room()
            task = asyncio.create_task(
                self._dial(route, wanted), name=f"connection to {route.origin}"
            )
            task.add_done_callback(self._ending.discard)
            wanted.dialing.append(task)
        try:
            return await self._until(waiter, deadline)
        except BaseException:
            wanted.waiters.pop(waiter, None)
            if _has_result(waiter):
                self._offer(waiter.result()[0], was_idle=True)
            self._trim(route.key, wanted)
            raise

    async def _dial(self, route: NetworkRoute, wanted: _Wanted) -> None:
        task = asyncio.current_task()
        assert task is not None
        failure: Exception
        try:
            connection = await self._dialer.dial(route, partial(self._connection, route))
        except Exception as error:
            failure = error
        else:
            wanted.dialing.remove(task)
            if connection.failure is None:
                self._open.add(connection)
            self._offer(connection, was_idle=False)
            return
        wanted.dialing.remove(task)
        if wanted.waiters:
            _fail(wanted.waiters.popitem(last=False)[0], failure)
        self._trim(route.key, wanted)

    def _connection(self, route: NetworkRoute) -> HTTPConnection:
        return HTTPConnection(route.key, self, self._timeouts, self._idle_seconds)

    def _make_room(self) -> None:
        """Another connection is to be opened: close an idle one if there would be too many."""
        dialing = sum(len(wanted.dialing) for wanted in self._wanted.values())
        if self._idle and len(self._open) + dialing >= self._limit:
            idle = next(iter(self._idle.values()))
            next(iter(idle)).abort()

    def _trim(self, key: str, wanted: _Wanted) -> None:
        """Give up the newest of the connections on their way that nobody waits for any more."""
        while len(wanted.dialing) > len(wanted.waiters):
            task = wanted.dialing.pop()
            self._ending.add(task)
            task.cancel()
        # Others may want connections of the same key since these had theirs.
        if not wanted.waiters and self._wanted.get(key) is wanted:
            del self._wanted[key]

    async def _until(self, future: asyncio.Future[Result], deadline: float) -> Result:
        if deadline == math.inf:
            return await future
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            assert self._timeouts.total is not None
            raise TotalTimeout(self._timeouts.total) from None


class _Wanted(NamedTuple):
    """What is wanted on one route: as many connections on their way as requests that wait."""

    waiters: OrderedDict[asyncio.Future[tuple[HTTPConnection, bool]], None]
    dialing: list[asyncio.Task[None]]


@lru_cache(maxsize=256)
def _beginning(method: str, route: NetworkRoute, target: str) -> bytes:
    """The request line and the headers that go with the route.

    Raises:
        InvalidURLError: `target` is none.
    """
    if not _TARGET.fullmatch(target):
        raise InvalidURLError(f"{target[:100]!r} is no path")
    return b"%b %b%b%b" % (method.encode(), route.before, target.encode(), route.after)


def _has_result(future: asyncio.Future[Result]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _fail(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
