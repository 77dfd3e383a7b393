"""The HTTP client of a remote provider: one connection pool, and the exchanges on it.

What goes wrong is an `APIError` here already, so that the wire families on top of it are about
their wire alone.
"""

from __future__ import annotations

import asyncio
import io
import logging
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from multidict import CIMultiDict
from yarl import URL

from llama_compat import __version__
from llama_compat.errors import APIError
from providers.base import ProviderStartError
from providers.remote.config import RemoteConfig, Timeouts
from providers.remote.connection_errors import ConnectionProblem, reading_error, sending_error
from providers.remote.upstream_errors import cover_secrets, vendor_error

log = logging.getLogger(__name__)

READ_BUFFER_BYTES = 1 << 18
"""What is read ahead of a slow client before the connection is no longer read from."""

MAX_HEADER_BYTES = 1 << 16

IDLE_CONNECTION_SECONDS = 30
"""Idle connections are closed before vendors and load balancers tend to close them."""

RETRY_WITHIN_SECONDS = 1.0
"""A connection that was closed while idle shows it within a round trip. One that breaks later broke
while the vendor worked on the request, which must not be done (and paid) twice."""

ERROR_BODY_BYTES = 1 << 20
"""Of the body of an error, no more than about this is read."""

DRAIN_SECONDS = 0.1
"""How long an answer that is over may take to end, so that its connection can be used again."""


class UpstreamResponse:
    """An answer whose status and headers are there, and whose body comes as it is read.

    Attributes:
        status: HTTP status.
        headers: by name, in any case.
    """

    __slots__ = ("_awaits_first_byte", "_content", "_provider", "_response", "_timeouts", "headers")

    def __init__(self, provider: str, response: aiohttp.ClientResponse, timeouts: Timeouts) -> None:
        self._provider = provider
        self._response = response
        self._content = response.content
        self._timeouts = timeouts
        self._awaits_first_byte = True
        self.headers: Mapping[str, str] = response.headers

    @property
    def status(self) -> int:
        return self._response.status

    async def read(self) -> bytes:
        """The whole body.

        Raises:
            APIError: 502, it broke off; 504, it took too long.
        """
        parts = []
        while chunk := await self.next_chunk():
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives.

        Raises (from the generator):
            APIError: as `read`.
        """
        while chunk := await self.next_chunk():
            yield chunk

    async def next_chunk(self) -> bytes:
        """What has arrived of the body since the last call, at least a byte; empty at its end.

        Raises:
            APIError: as `read`.
        """
        try:
            chunk = await self._content.readany()
        except ConnectionProblem as error:
            raise reading_error(self._provider, error, self._timeouts) from error
        if self._awaits_first_byte:
            self._awaits_first_byte = False
            self._limit_silence()
        return chunk

    def _limit_silence(self) -> None:
        # aiohttp has one limit for reading, which was `first_byte` so far.
        connection = self._response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = self._timeouts.between_bytes
            connection.protocol.start_timeout()

    async def drain(self) -> None:
        """Read on to the end, if that is near: what follows is of no interest, but a connection
        that was read to the end can be used again."""
        if self._content.at_eof():
            return
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while await self._content.readany():
                    pass
        except ConnectionProblem:
            log.debug("an answer of provider %s did not end after its last event", self._provider)

    def close(self) -> None:
        """Close the connection, unless the answer has come to its end and given it back."""
        self._response.close()


class Upstream:
    """A provider's connections to its vendor.

    Args:
        provider: its id, for messages.
        config: where the vendor is, and how long to wait for it.
        headers: sent with each request: the key, and what else the vendor wants.
    """

    def __init__(self, provider: str, config: RemoteConfig, headers: Mapping[str, str]) -> None:
        self._provider = provider
        self._config = config
        self._headers: CIMultiDict[str] = CIMultiDict(
            {
                "user-agent": f"llama-compat/{__version__}",
                "accept": "*/*",
                "accept-encoding": "identity",
                "content-type": "application/json",
            }
        )
        self._headers.update(headers)
        own = {name: value.get_secret_value() for name, value in config.headers.items()}
        self._headers.update(own)
        self._secrets = _secrets(config)
        self._targets: dict[tuple[str | None, str], tuple[URL, URL | None]] = {}
        self._pool: aiohttp.ClientSession | None = None
        self._unpooled: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Make the pool; connections are opened when they are needed.

        Raises:
            ProviderStartError: the CA file can't be used.
        """
        tls = _tls_context(self._provider, self._config)
        self._pool = self._session(
            _Pool(
                ssl=tls,
                limit=self._config.max_connections,
                keepalive_timeout=IDLE_CONNECTION_SECONDS,
            )
        )
        self._unpooled = self._session(
            aiohttp.TCPConnector(ssl=tls, limit=self._config.max_connections, force_close=True)
        )

    async def stop(self) -> None:
        """Close every connection."""
        sessions, self._pool, self._unpooled = (self._pool, self._unpooled), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    def post(
        self,
        path: str,
        body: bytes,
        *,
        request_id: str = "",
        base_url: str | None = None,
        headers: Mapping[str, str] = {},
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        """Send JSON; the context is the answer, and leaving it early closes the connection.

        No `APIError` that leaves the context repeats the key or a configured header.

        Args:
            path: from the base URL on, with a query if there is one.
            body: what to send.
            request_id: sent as `x-request-id`, if there is one.
            base_url: in place of the configured one.
            headers: more of them, over those of every request.

        Raises (on entering):
            APIError: no connection (502), no answer in time (504), or an answer that is an error;
                the vendor's own 401 and 403 are 502 `upstream_authentication`.
        """
        if request_id:
            headers = {**headers, "x-request-id": request_id}
        return self._exchange("POST", path, body, headers, base_url)

    def get(
        self, path: str, *, headers: Mapping[str, str] = {}
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        """Ask for `path`, with further `headers`; otherwise as `post`."""
        return self._exchange("GET", path, None, headers, None)

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        base_url: str | None,
    ) -> AsyncIterator[UpstreamResponse]:
        url, proxy = self._target(base_url, path)
        try:
            answer = await self._send(method, url, proxy, body, headers)
        except ConnectionProblem as error:
            raise sending_error(self._provider, error, url, self._config.timeouts) from error
        try:
            response = UpstreamResponse(self._provider, answer, self._config.timeouts)
            if answer.status >= 300:
                raise await self._vendor_error(response)
            yield response
        except APIError as error:
            # Whatever is made of the answer, here or by whoever reads it.
            cover_secrets(error, self._secrets)
            raise
        finally:
            answer.close()

    async def _send(
        self,
        method: str,
        url: URL,
        proxy: URL | None,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        if self._pool is None or self._unpooled is None:
            raise RuntimeError(f"provider '{self._provider}' is not started")
        clock = asyncio.get_running_loop().time
        began = clock()
        _opened_connection.set(False)
        try:
            return await self._pool.request(
                method,
                url,
                data=_payload(body),
                headers=headers,
                proxy=proxy,
                allow_redirects=False,
            )
        except (
            aiohttp.ServerDisconnectedError,
            aiohttp.ClientOSError,
            aiohttp.ClientConnectionResetError,
        ) as error:
            was_idle = not _opened_connection.get() and clock() - began < RETRY_WITHIN_SECONDS
            if not was_idle or _began_to_answer(error):
                raise
        # Others of the pool may have been closed along with this one.
        return await self._unpooled.request(
            method, url, data=_payload(body), headers=headers, proxy=proxy, allow_redirects=False
        )

    async def _vendor_error(self, response: UpstreamResponse) -> APIError:
        body = bytearray()
        try:
            while len(body) < ERROR_BODY_BYTES and (chunk := await response.next_chunk()):
                body += chunk
        except APIError:
            log.debug("provider %s: the body of an error broke off", self._provider)
        return vendor_error(self._provider, response.status, response.headers, bytes(body))

    def _target(self, base_url: str | None, path: str) -> tuple[URL, URL | None]:
        target = self._targets.get((base_url, path))
        if target is None:
            url = URL((base_url or self._config.base_url).rstrip("/") + path, encoded=True)
            target = self._targets[base_url, path] = (url, _proxy_for(url, self._config))
        return target

    def _session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        timeouts = self._config.timeouts
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=timeouts.total,
                sock_connect=timeouts.connect,
                sock_read=timeouts.first_byte,
            ),
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )


_opened_connection: ContextVar[bool] = ContextVar("opened_connection")
"""Whether the request that runs in this context is the first one on its connection."""


class _Pool(aiohttp.TCPConnector):
    # aiohttp's tracing tells this too, and makes every request a tenth more expensive.
    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 (aiohttp's own name)
    ) -> ResponseHandler:
        _opened_connection.set(True)
        return await super()._create_connection(req, traces, timeout)

    # aiohttp would take what a vendor has sent since its last answer for the answer to the next
    # request, which may be another client's.
    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        idle = self._conns.get(key)
        while idle and idle[0][0].should_close:
            idle.popleft()[0].close()
        return await super()._get(key, traces)


def _began_to_answer(error: Exception) -> bool:
    # The message of a ServerDisconnectedError is the part of an answer that had come, if any.
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """`body` in the way that aiohttp likes it: large ones as a file, written in pieces."""
    if body is not None and len(body) > aiohttp.payload.TOO_LARGE_BYTES_BODY:
        return io.BytesIO(body)
    return body


def _secrets(config: RemoteConfig) -> tuple[str, ...]:
    hidden = (config.api_key, *config.headers.values())
    texts = [each.get_secret_value().strip() for each in hidden if each is not None]
    # Short values are words such as `true`, whose replacement would only spoil a message.
    return tuple(text for text in texts if len(text) >= 8)


def _tls_context(provider: str, config: RemoteConfig) -> ssl.SSLContext | bool:
    if config.ca_file is None:
        return True
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(config.ca_file)
    except OSError as error:
        raise ProviderStartError(
            f"Provider '{provider}': `ca_file` {config.ca_file} can't be used"
            f" ({(error.strerror or str(error)).lower()}). It has to be a file of PEM certificates."
        ) from None
    return context


def _proxy_for(url: URL, config: RemoteConfig) -> URL | None:
    # Looked up here and once, because aiohttp's own `trust_env` asks a thread for every request.
    if config.proxy is not None:
        return URL(config.proxy.get_secret_value())
    assert url.host is not None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(f"{url.host}:{url.port}"):
        return None
    return URL(proxy if "://" in proxy else f"http://{proxy}")
