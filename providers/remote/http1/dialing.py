"""Opens connections: the name's addresses, a socket to one of them, a proxy's tunnel, TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

from providers.remote.http1.connection import HTTPConnection
from providers.remote.http1.errors import (
    CertificateError,
    ConnectError,
    ConnectTimeout,
    ProtocolError,
    ProxyError,
    ProxyRefusedError,
    TLSError,
    UnknownHostError,
)
from providers.remote.http1.parser import ResponseParser
from providers.remote.http1.urls import NetworkRoute, Origin

NEXT_ADDRESS_SECONDS = 0.25
"""How long one address may take before the next is tried beside it (RFC 8305)."""

NAMES_KEPT_SECONDS = 10.0
MAX_NAMES_KEPT = 256
"""How long and how many names' addresses are remembered."""

KEEPALIVE_SECONDS = 60
"""After so much silence TCP asks whether the other side is there: a model may think for minutes,
and what stands in between forgets connections that are silent."""

AddressCheck = Callable[[str], None]
"""Called with the IP address that is about to be connected to; raises OSError to refuse it."""

SocketAddress = tuple[socket.AddressFamily, Any]
"""A family, and what `connect` takes."""


@cache
def default_tls_context() -> ssl.SSLContext:
    """Trusts what the system trusts; one for the whole process."""
    return new_tls_context()


def new_tls_context() -> ssl.SSLContext:
    """One that trusts what the system trusts, to be told to trust more."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialer:
    """Opens connections.

    Args:
        tls: for https servers and proxies.
        check_address: asked before each socket is connected.
        seconds: how long a connection may take, TLS and all.
    """

    def __init__(
        self, tls: ssl.SSLContext | None, check_address: AddressCheck | None, seconds: float
    ) -> None:
        self._tls = tls
        self._seconds = seconds
        self._check_address = check_address
        self._names = _Names()

    async def dial(self, route: NetworkRoute, make: Callable[[], HTTPConnection]) -> HTTPConnection:
        """A connection of the given make on `route`.

        Raises:
            ConnectError: there is none.
            ConnectTimeout: there is none in time.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await self._dial(route, make)
        except TimeoutError:
            raise ConnectTimeout(self._seconds) from None

    async def close(self) -> None:
        """End all look-ups."""
        await self._names.close()

    async def _dial(
        self, route: NetworkRoute, make: Callable[[], HTTPConnection]
    ) -> HTTPConnection:
        if route.proxy is None:
            opened = await self._open(route.origin)
        else:
            try:
                opened = await self._open(route.proxy.origin)
            except UnknownHostError as error:
                raise ProxyError(OSError("its host name is not known")) from error
            except ConnectError as error:
                raise ProxyError(error.reason) from error
        loop = asyncio.get_running_loop()
        if route.proxy is None and route.origin.scheme == "http":
            _, connection = await loop.create_connection(make, sock=opened)
            return connection
        # TLS is begun on a transport that is there already: a handshake that is cancelled may
        # leave the one behind that asyncio has made for it.
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=opened)
        try:
            return await self._secure(transport, route, make())
        except BaseException:
            transport.abort()
            raise

    async def _open(self, origin: Origin) -> socket.socket:
        addresses = await self._names.addresses(origin.host, origin.port)
        try:
            return await _first_to_connect(addresses, self._check_address)
        except OSError as error:
            raise ConnectError(error) from error

    async def _secure(
        self, transport: asyncio.Transport, route: NetworkRoute, connection: HTTPConnection
    ) -> HTTPConnection:
        """Begin TLS with the proxy, ask it to connect, begin TLS with the server; what applies."""
        if route.proxy is not None and route.proxy.origin.scheme == "https":
            try:
                transport = await self._start_tls(transport, asyncio.Protocol(), route.proxy.origin)
            except TLSError as error:
                raise ProxyError(error.reason) from error
        if route.is_tunnel:
            tunnel = _Tunnel(route)
            transport.set_protocol(tunnel)
            tunnel.connection_made(transport)
            await tunnel.opened
        if route.origin.scheme == "https":
            transport = await self._start_tls(transport, connection, route.origin)
        else:
            transport.set_protocol(connection)
        connection.connection_made(transport)
        return connection

    async def _start_tls(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol, origin: Origin
    ) -> asyncio.Transport:
        """Begin TLS on `transport`; the transport that is to be used instead.

        Raises:
            TLSError: the handshake failed.
        """
        if self._tls is None:
            self._tls = await asyncio.to_thread(default_tls_context)
        try:
            inner = await asyncio.get_running_loop().start_tls(
                transport,
                protocol,
                self._tls,
                server_hostname=origin.host,
                ssl_handshake_timeout=self._seconds,
            )
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(error) from error
        except TimeoutError:
            raise
        except OSError as error:
            raise TLSError(error) from error
        if inner is None:
            raise TLSError(ConnectionResetError())
        return inner


# Names --------------------------------------------------------------------------------------------


class _Names:
    """The addresses of host names, remembered for a while; nobody looks up what is looked up."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[float, list[SocketAddress]]] = {}
        self._asked: dict[tuple[str, int], asyncio.Task[list[SocketAddress]]] = {}

    async def addresses(self, host: str, port: int) -> list[SocketAddress]:
        """Where `host` is, the preferred first.

        Raises:
            UnknownHostError: it has no address.
        """
        if (numeric := _numeric(host, port)) is not None:
            return [numeric]
        known = self._known.get((host, port))
        if known is not None and known[0] > asyncio.get_running_loop().time():
            return known[1]
        asked = self._asked.get((host, port))
        if asked is None:
            asked = asyncio.create_task(self._look_up(host, port), name=f"addresses of {host}")
            asked.add_done_callback(_look_at)
            self._asked[host, port] = asked
        return await asyncio.shield(asked)

    async def close(self) -> None:
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_up(self, host: str, port: int) -> list[SocketAddress]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        except (socket.gaierror, UnicodeError) as error:
            reason = error if isinstance(error, OSError) else OSError(str(error))
            raise UnknownHostError(reason) from error
        finally:
            del self._asked[host, port]
        addresses = _alternating([(family, address) for family, _, _, _, address in found])
        while len(self._known) >= MAX_NAMES_KEPT:
            del self._known[next(iter(self._known))]
        self._known[host, port] = (loop.time() + NAMES_KEPT_SECONDS, addresses)
        return addresses


def _look_at(task: asyncio.Task[list[SocketAddress]]) -> None:
    # Whoever waited for it may have gone away, and asyncio complains of errors that nobody saw.
    if not task.cancelled():
        task.exception()


def _numeric(host: str, port: int) -> SocketAddress | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return (socket.AF_INET, (host, port))
    return None if "%" in host else (socket.AF_INET6, (host, port, 0, 0))


def _alternating(addresses: Sequence[SocketAddress]) -> list[SocketAddress]:
    """One family and the other in turn, beginning with the preferred one's."""
    first = [each for each in addresses if each[0] == addresses[0][0]]
    other = [each for each in addresses if each[0] != addresses[0][0]]
    ordered = []
    for index in range(max(len(first), len(other))):
        ordered += first[index : index + 1] + other[index : index + 1]
    return ordered


# Sockets ------------------------------------------------------------------------------------------


async def _first_to_connect(
    addresses: Sequence[SocketAddress], check: AddressCheck | None
) -> socket.socket:
    """A socket connected to the first of `addresses` that takes it.

    Raises:
        OSError: none did; what the first one said.
    """
    if len(addresses) == 1:
        return await _connect_socket(addresses[0], check)
    left = list(reversed(addresses))
    trying: list[asyncio.Task[socket.socket]] = []
    try:
        while True:
            if left:
                trying.append(asyncio.create_task(_connect_socket(left.pop(), check)))
            waiting = [task for task in trying if not task.done()]
            await asyncio.wait(
                waiting,
                timeout=NEXT_ADDRESS_SECONDS if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            connected = [task for task in trying if task.done() and not task.exception()]
            if connected:
                trying.remove(connected[0])
                return connected[0].result()
            if not left and all(task.done() for task in trying):
                return trying[0].result()
    finally:
        for task in trying:
            task.cancel()
        for result in await asyncio.gather(*trying, return_exceptions=True):
            if isinstance(result, socket.socket):
                result.close()


async def _connect_socket(address: SocketAddress, check: AddressCheck | None) -> socket.socket:
    family, where = address
    if check is not None:
        check(where[0])
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        await asyncio.get_running_loop().sock_connect(opened, where)
    except BaseException:
        opened.close()
        raise
    return opened


# Proxies ------------------------------------------------------------------------------------------


class _Tunnel(asyncio.Protocol):
    """Asks a proxy to connect; `opened` is done when it has."""

    def __init__(self, route: NetworkRoute) -> None:
        self._route = route
        self._parser = ResponseParser()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        host, port = self._route.origin.host, self._route.origin.port
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        head = f"CONNECT {where} HTTP/1.1\r\nhost: {where}\r\n".encode()
        cast(asyncio.Transport, transport).write(head + self._route.proxy_authorization + b"\r\n")

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        try:
            parser.feed(data)
        except ProtocolError as error:
            self._fail(ProxyError(OSError(f"it did not answer in HTTP ({error})")))
            return
        if not parser.has_head:
            return
        if not 200 <= parser.status < 300:
            self._fail(ProxyRefusedError(parser.status))
        elif parser.body:
            self._fail(ProxyError(OSError("it sent something of its own through the tunnel")))
        elif not self.opened.done():
            self.opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ProxyError(OSError("it closed the connection")))

    def _fail(self, error: ProxyError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
