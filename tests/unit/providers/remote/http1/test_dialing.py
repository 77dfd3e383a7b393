"""How a server is reached: names, addresses, TLS, proxies."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Any

import pytest

from providers.remote import http1
from tests.unit.providers.remote.http1.raw_server import (
    NO_HEADERS,
    OK,
    Peer,
    answers,
    ask,
    client_tls,
    client_with,
    server_tls,
    serving,
    until,
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def get(client: http1.Client, url: str, proxy: str | None = None) -> bytes:
    parsed = http1.parse_url(url)
    route = http1.NetworkRoute(parsed.origin, http1.parse_url(proxy) if proxy else None)
    response = await client.send("GET", route, parsed.target, NO_HEADERS)
    try:
        return await response.read()
    finally:
        response.close()


class Names:
    """In the place of the loop's `getaddrinfo`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self.asked = 0
        self._addresses = addresses
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(type(loop), "getaddrinfo", self._look_up, raising=True) if isinstance(
            loop, asyncio.BaseEventLoop
        ) else pytest.skip("uvloop's methods can't be replaced")

    async def _look_up(self, host: str, port: int, **options: Any) -> list[Any]:
        self.asked += 1
        await asyncio.sleep(0.01)
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM, 6, "", (address, port),
            )
            for address in self._addresses
        ]  # fmt: skip


# Names and addresses ------------------------------------------------------------------------------


async def test_a_name_is_looked_up() -> None:
    async with serving(answers) as server, client_with() as client:
        assert await get(client, f"http://localhost:{server.port}/") == b"ok"


async def test_a_name_that_nobody_knows() -> None:
    async with client_with() as client:
        with pytest.raises(http1.UnknownHostError):
            await get(client, "http://no-such-host.invalid/")


async def test_a_name_is_looked_up_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, "127.0.0.1")
    async with serving(answers) as server, client_with() as client:
        url = f"http://vendor.example:{server.port}/"
        await asyncio.gather(*(get(client, url) for _ in range(5)))
        assert server.connections == 5
        assert names.asked == 1


async def test_who_gives_up_a_look_up_does_not_end_it_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Names(monkeypatch, "127.0.0.1")
    async with serving(answers) as server, client_with() as client:
        url = f"http://vendor.example:{server.port}/"
        first, second = (asyncio.create_task(get(client, url)) for _ in range(2))
        await asyncio.sleep(0.002)
        first.cancel()
        assert await second == b"ok"


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1", "127.0.0.2"),
        ("127.0.0.2", "127.0.0.1"),  # refuses
        ("192.0.2.1", "127.0.0.1"),  # is silent, or can't be reached
        ("::1", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.3", "127.0.0.1"),
    ],
)
async def test_the_next_address_is_tried(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    Names(monkeypatch, *addresses)
    async with serving(answers) as server, client_with() as client:
        assert await get(client, f"http://vendor.example:{server.port}/") == b"ok"


async def test_where_no_address_takes_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, "127.0.0.2", "127.0.0.3")
    async with client_with() as client:
        with pytest.raises(http1.ConnectError) as raised:
            await get(client, f"http://vendor.example:{free_port()}/")
        assert raised.value.reason.errno == errno.ECONNREFUSED


async def test_a_connection_that_takes_too_long() -> None:
    # Nobody takes what waits in the full queue of a listener.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        held = [socket.socket() for _ in range(4)]
        for each in held:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        async with client_with(http1.Timeouts(connect=0.1)) as client:
            with pytest.raises(http1.ConnectTimeout) as raised:
                await get(client, f"http://127.0.0.1:{port}/")
            assert raised.value.seconds == 0.1
            await until(lambda: client.counts == (0, 0, 0))
            task = asyncio.create_task(get(client, f"http://127.0.0.1:{port}/"))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: client.counts == (0, 0, 0) and not client._ending)
        for each in held:
            each.close()


async def test_addresses_are_checked_before_they_are_connected_to() -> None:
    checked = []

    def refuse(address: str) -> None:
        checked.append(address)
        raise PermissionError(errno.EACCES, f"{address} is not for you")

    async with serving(answers) as server, client_with(check_address=refuse) as client:
        for host in ("127.0.0.1", "localhost", "127.1", "[::1]"):
            with pytest.raises(http1.ConnectError) as raised:
                await get(client, f"http://{host}:{server.port}/")
            assert "is not for you" in str(raised.value.reason)
        assert server.connections == 0
    assert set(checked) <= {"127.0.0.1", "::1"}
    assert len(checked) >= 4


async def test_one_failure_is_not_everybodys() -> None:
    async with client_with() as client:
        url = f"http://127.0.0.1:{free_port()}/"
        said = await asyncio.gather(*(get(client, url) for _ in range(5)), return_exceptions=True)
        assert [type(each) for each in said] == [http1.ConnectError] * 5
        assert client.counts == (0, 0, 0)


# TLS ----------------------------------------------------------------------------------------------


async def test_https() -> None:
    body = bytes(range(256)) * 10_000
    async with serving(answers, server_tls()) as server, client_with(tls=client_tls()) as client:
        for _ in range(3):
            assert await ask(client, server, body) == body
        assert server.connections == 1


async def test_a_certificate_that_is_not_trusted() -> None:
    async with serving(answers, server_tls()) as server, client_with() as client:
        with pytest.raises(http1.CertificateError) as raised:
            await ask(client, server)
        assert isinstance(raised.value.reason, ssl.SSLCertVerificationError)


async def test_a_certificate_for_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, "127.0.0.1")
    async with serving(answers, server_tls()) as server, client_with(tls=client_tls()) as client:
        with pytest.raises(http1.CertificateError):
            await get(client, f"https://vendor.example:{server.port}/")


async def test_a_server_without_tls() -> None:
    async def plain(peer: Peer) -> None:
        await peer.reader.read(10)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(plain) as server, client_with(tls=client_tls()) as client:
        with pytest.raises(http1.TLSError):
            await get(client, f"https://127.0.0.1:{server.port}/")
        await server.all_left()


async def test_a_handshake_that_is_cut() -> None:
    async def cut(peer: Peer) -> None:
        await peer.reader.read(10)

    async with serving(cut) as server, client_with(tls=client_tls()) as client:
        with pytest.raises(http1.TLSError):
            await get(client, f"https://127.0.0.1:{server.port}/")


async def test_a_handshake_that_takes_too_long() -> None:
    async def hold(peer: Peer) -> None:
        await peer.left()

    timeouts = http1.Timeouts(connect=0.2)
    async with serving(hold) as server, client_with(timeouts, tls=client_tls()) as client:
        with pytest.raises(http1.HTTPError) as raised:
            await get(client, f"https://127.0.0.1:{server.port}/")
        assert isinstance(raised.value, http1.ConnectTimeout | http1.TLSError)
        await server.all_left()


# Proxies ------------------------------------------------------------------------------------------


class Proxy:
    """Forwards what is for http servers, and makes tunnels.

    Attributes:
        heads: the requests that came to it.
    """

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def serve(self, peer: Peer) -> None:
        while True:
            head, _ = await peer.request()
            self.heads.append(head)
            if not head.startswith(b"CONNECT "):
                await peer.send(OK)
                continue
            host, _, port = head.split(b" ")[1].rpartition(b":")
            reader, writer = await asyncio.open_connection(host.decode(), int(port))
            await peer.send(b"HTTP/1.1 200 Connected\r\nx: y\r\n\r\n")
            await asyncio.gather(pump(peer.reader, writer), pump(reader, peer.writer))
            return


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@pytest.mark.parametrize("secure", [False, True])
async def test_a_proxy_forwards(secure: bool) -> None:
    proxy = Proxy()
    async with (
        serving(proxy.serve, server_tls() if secure else None) as server,
        client_with(tls=client_tls()) as client,
    ):
        url = server.url.replace("://", "://me:pass@")
        assert await get(client, "http://vendor.invalid/x?y", url) == b"ok"
        assert await get(client, "http://other.invalid:81/z", url) == b"ok"
        assert server.connections == 1
    assert proxy.heads[0].startswith(
        b"GET http://vendor.invalid/x?y HTTP/1.1\r\nhost: vendor.invalid\r\n"
    )
    assert proxy.heads[1].startswith(b"GET http://other.invalid:81/z HTTP/1.1\r\n")
    assert all(b"proxy-authorization: Basic bWU6cGFzcw==\r\n" in head for head in proxy.heads)


@pytest.mark.parametrize("secure", [False, True])
async def test_a_proxy_makes_a_tunnel(secure: bool) -> None:
    proxy, seen = Proxy(), []

    async def record(peer: Peer) -> None:
        while True:
            head, _ = await peer.request()
            seen.append(head)
            await peer.send(OK)

    async with (
        serving(record, server_tls()) as vendor,
        serving(proxy.serve, server_tls() if secure else None) as server,
        client_with(tls=client_tls()) as client,
    ):
        url = server.url.replace("://", "://me:pass@")
        for _ in range(3):
            assert await get(client, f"{vendor.url}/x", url) == b"ok"
        assert (server.connections, vendor.connections) == (1, 1)
    (head,) = proxy.heads
    assert head.startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n" % vendor.port)
    assert b"proxy-authorization: Basic bWU6cGFzcw==\r\n" in head
    assert seen[0].startswith(b"GET /x HTTP/1.1\r\n")
    assert b"proxy-authorization" not in seen[0], "the proxy's password is not the vendor's to see"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n", http1.ProxyRefusedError),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 5\r\n\r\nhello", http1.ProxyRefusedError),
        (b"SSH-2.0\r\n", http1.ProxyError),
        (b"HTTP/1.1 200 OK\r\n\r\nand more", http1.ProxyError),
        (b"HTTP/1.1 100 Go\r\n\r\n" * 9999, http1.ProxyError),
        (b"", http1.ProxyError),
        (b"HTTP/1.1 200 OK\r\n\r\n", http1.TLSError),
    ],
)
async def test_a_proxy_that_makes_none(answer: bytes, expected: type[http1.HTTPError]) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)

    async with serving(refuse) as server, client_with(tls=client_tls()) as client:
        with pytest.raises(http1.HTTPError) as raised:
            await get(client, "https://vendor.invalid/", server.url)
        assert type(raised.value) is expected
        if isinstance(raised.value, http1.ProxyRefusedError):
            assert raised.value.status in (407, 502)
        await server.all_left()


async def test_a_proxy_that_says_nothing() -> None:
    async def hold(peer: Peer) -> None:
        await peer.left()

    timeouts = http1.Timeouts(connect=0.1)
    async with serving(hold) as server, client_with(timeouts, tls=client_tls()) as client:
        with pytest.raises(http1.ConnectTimeout):
            await get(client, "https://vendor.invalid/", server.url)
        await server.all_left()


@pytest.mark.parametrize("url", ["http://vendor.invalid/", "https://vendor.invalid/"])
async def test_a_proxy_that_is_not_there(url: str) -> None:
    async with client_with() as client:
        for proxy in (f"http://127.0.0.1:{free_port()}", "http://no-such-proxy.invalid:3128"):
            with pytest.raises(http1.ProxyError):
                await get(client, url, proxy)


async def test_behind_a_tunnel_the_certificate_counts_too() -> None:
    proxy = Proxy()
    async with (
        serving(answers, server_tls()) as vendor,
        serving(proxy.serve) as server,
        client_with() as client,
    ):
        with pytest.raises(http1.CertificateError):
            await get(client, vendor.url, server.url)
