"""A remote provider's connections to its vendor, and the exchanges on them.

What goes wrong is an `APIError` here already, so that the wire families on top of it are about
their wire alone.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from types import TracebackType
from typing import Any, Literal

from llama_compat.errors import APIError
from providers.base import ProviderStartError
from providers.remote import http1
from providers.remote.config import RemoteConfig
from providers.remote.upstream.connection_errors import reading_error, sending_error
from providers.remote.upstream.credentials import RequestCredentials
from providers.remote.upstream.deferred import DEFERRED, StoredAnswer
from providers.remote.upstream.redaction import Secrets, StreamCover
from providers.remote.upstream.trace_headers import OUTGOING
from providers.remote.upstream.vendor_errors import vendor_error

log = logging.getLogger(__name__)

ERROR_BODY_BYTES = 1 << 20
"""Of the body of an error, no more than about this is read."""

SLICE_BYTES = 1 << 16
"""Events of so many bytes are dealt with in one go: some hundreds, or some ten milliseconds if each
of them has to be mended."""

MAX_BASES_KEPT = 128
"""Of so many base URLs it is remembered what they come to; a provider has one, or one a worker."""


Method = Literal["GET", "POST", "DELETE"]


class UpstreamResponse:
    """An answer whose status and headers are there, and whose body comes as it is read.

    What the vendor must not give away is redacted in all of it.

    Attributes:
        status: HTTP status.
        headers: by name, in any case.
    """

    __slots__ = ("_cover", "_max_bytes", "_provider", "_response", "_rest", "headers", "status")

    def __init__(
        self,
        provider: str,
        response: http1.Response | StoredAnswer,
        max_bytes: int,
        secrets: Secrets,
    ) -> None:
        self._provider = provider
        self._response = response
        self._max_bytes = max_bytes
        self._cover = StreamCover(secrets) if secrets else None
        self._rest = b""
        self.status = response.status
        self.headers = secrets.cover_headers(response.headers)

    async def read(self, max_bytes: int | None = None) -> bytes:
        """The whole body, or what is left of it.

        Args:
            max_bytes: what it may come to, if less than a reply may.

        Raises:
            APIError: 502, it broke off or is too large; 504, it took too long.
        """
        try:
            body = await self._response.read(min(max_bytes or self._max_bytes, self._max_bytes))
        except http1.HTTPError as error:
            raise reading_error(self._provider, error) from error
        rest, self._rest = self._rest, b""
        return rest + (body if self._cover is None else self._cover.end(body))

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives.

        Raises (from the generator):
            APIError: as `next_chunk`.
        """
        while chunk := await self.next_chunk():
            yield chunk

    async def next_chunk(self) -> bytes:
        """What has arrived of the body since the last call, at least a byte; empty at its end.

        Of much that has arrived it is a slice at a time, and others have their turn in between.

        Raises:
            APIError: 502, it broke off; 504, it took too long.
        """
        chunk = self._rest
        if chunk:
            await asyncio.sleep(0)
        else:
            chunk = await self._arrived()
        if len(chunk) <= SLICE_BYTES:
            self._rest = b""
            return chunk
        self._rest = chunk[SLICE_BYTES:]
        return chunk[:SLICE_BYTES]

    async def _arrived(self) -> bytes:
        cover = self._cover
        while True:
            try:
                chunk = await self._response.next_chunk()
            except http1.HTTPError as error:
                raise reading_error(self._provider, error) from error
            if cover is None:
                return chunk
            if not chunk:
                return cover.end()
            if covered := cover.push(chunk):
                return covered

    async def drain(self) -> None:
        """What follows is of no interest. It is not waited for: the pool reads on to the end, if
        that is near, so that the connection can be used again."""
        self._response.discard()

    def close(self) -> None:
        """Close the connection, unless the answer has come to its end or was drained."""
        self._response.close()


class Upstream:
    """A provider's connections to its vendor.

    Args:
        provider: its id, for messages.
        config: where the vendor is, and how long to wait for it.
        headers: sent with each request: the key, and what else the vendor wants.
        credentials: what authorizes each request by itself, where no key does.
    """

    def __init__(
        self,
        provider: str,
        config: RemoteConfig,
        headers: Mapping[str, str],
        credentials: RequestCredentials[Any] | None = None,
    ) -> None:
        self._provider = provider
        self._config = config
        own = {name: value.get_secret_value() for name, value in config.headers.items()}
        self._headers = _merged(
            {
                "user-agent": http1.USER_AGENT,
                "accept": "*/*",
                "accept-encoding": "identity",
                "content-type": "application/json",
            },
            headers,
            own,
        )
        self._header_block = http1.encode_headers(self._headers)
        self._credentials = credentials
        self._known_keys: tuple[str, ...] = ()
        self._own_headers = own
        self._secrets = self._secrets_with(())
        self._base = lru_cache(MAX_BASES_KEPT)(self._look_at_base)
        self._client: http1.Client | None = None

    @property
    def connections(self) -> http1.PoolCounts:
        """How many there are now."""
        return self._client.counts if self._client is not None else http1.PoolCounts(0, 0, 0)

    async def start(self) -> None:
        """Make the pool; connections are opened when they are needed.

        Raises:
            ProviderStartError: the CA file can't be used.
        """
        self._client = http1.Client(
            timeouts=self._config.timeouts,
            tls=_tls_context(self._provider, self._config),
            max_connections=self._config.max_connections,
        )
        if self._credentials is not None:
            self._credentials.start()

    async def stop(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        if self._credentials is not None:
            await self._credentials.stop()

    def post(
        self,
        path: str,
        body: bytes | memoryview,
        *,
        request_id: str = "",
        base_url: str | None = None,
        headers: Mapping[str, str] = {},
        idempotent: bool = False,
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        """Send JSON, or what `headers` say that it is; the context is the answer, and leaving it
        early closes the connection.

        Nothing of the answer repeats the key; no `APIError` that leaves the context repeats that or
        a configured header.

        Args:
            path: from the base URL on, with a query if there is one.
            body: what to send; a view of a file that is mapped into memory is read as it goes.
            request_id: sent as `x-request-id`, if there is one.
            base_url: in place of the configured one.
            headers: more of them, over those of every request.
            idempotent: whether it may be done twice, and is not paid.

        Raises (on entering):
            StaleConnection: 502, a kept connection was closed; nobody knows whether it was read.
            APIError: no connection (502), no answer in time (504), or an answer that is an error;
                the vendor's own 401 and 403 are 502 `upstream_authentication`.
        """
        block, outgoing = self._encoded(headers, request_id), OUTGOING.get()
        if outgoing is not None and "traceparent" not in self._headers:
            block = http1.HeaderBlock(block + outgoing)
        return _Exchange(self, "POST", base_url, path, block, body, idempotent)

    def get(
        self, path: str, *, headers: Mapping[str, str] = {}, base_url: str | None = None
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        """Ask for `path`, with further `headers`; otherwise as `post`."""
        return _Exchange(self, "GET", base_url, path, self._encoded(headers), None)

    def delete(
        self, path: str, *, base_url: str | None = None
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        """Have what is at `path` deleted; otherwise as `post`."""
        return _Exchange(self, "DELETE", base_url, path, self._encoded({}), None)

    async def send(
        self,
        method: Method,
        base_url: str | None,
        path: str,
        headers: http1.HeaderBlock,
        body: bytes | memoryview | None,
        idempotent: bool,
    ) -> UpstreamResponse:
        """Send a request; its answer, whatever the status.

        Raises:
            APIError: there is none.
        """
        deferred = DEFERRED.get()
        if deferred is not None and deferred.upstream is self:
            said = deferred.answer(path, headers, bytes(body or b""))
            return self._response(said)
        if self._client is None:
            raise RuntimeError(f"provider '{self._provider}' is not started")
        base_url = base_url or self._config.base_url
        try:
            route, prefix = self._base(base_url)
            if self._credentials is not None:
                headers = await self._authorized(
                    self._credentials, method, f"{route.origin}{prefix}{path}", headers, body
                )
            response = await self._client.send(
                method, route, prefix + path, headers, body, idempotent=idempotent
            )
        except http1.HTTPError as error:
            raise sending_error(self._provider, error, base_url) from error
        return self._response(response)

    def _response(self, response: http1.Response | StoredAnswer) -> UpstreamResponse:
        return UpstreamResponse(
            self._provider, response, self._config.max_reply_bytes, self._secrets
        )

    async def vendor_error(self, response: UpstreamResponse) -> APIError:
        """What an answer says whose status is 300 or more."""
        body = bytearray()
        try:
            while len(body) < ERROR_BODY_BYTES and (chunk := await response.next_chunk()):
                body += chunk
        except APIError:
            log.debug("provider %s: the body of an error broke off", self._provider)
        error = vendor_error(self._provider, response.status, response.headers, bytes(body))
        if self._credentials is not None and error.code == "upstream_authentication":
            self._credentials.refused(error, response.status)
        return error

    def cover_secrets(self, error: APIError) -> None:
        """Take what the vendor must not know of the template out of `error`."""
        self._secrets.cover_error(error)

    async def _authorized(
        self,
        credentials: RequestCredentials[Any],
        method: Method,
        url: str,
        headers: http1.HeaderBlock,
        body: bytes | memoryview | None,
    ) -> http1.HeaderBlock:
        """The headers of a request, with those that authorize it."""
        signed = None if body is None else bytes(body)
        lines = await credentials.authorize(method, url, self._headers["content-type"], signed)
        if credentials.secrets is not self._known_keys:
            self._known_keys = credentials.secrets
            self._secrets = self._secrets_with(self._known_keys)
        return http1.HeaderBlock(headers + lines)

    def _secrets_with(self, keys: tuple[str, ...]) -> Secrets:
        key = self._config.api_key
        return Secrets(None if key is None else key.get_secret_value(), self._own_headers, keys)

    def _encoded(self, headers: Mapping[str, str], request_id: str = "") -> http1.HeaderBlock:
        """Every request's headers and those of one, which count where both name the same."""
        block = self._header_block
        if request_id and not headers and "x-request-id" not in self._headers:
            return http1.HeaderBlock(block + http1.encode_header("x-request-id", request_id))
        if request_id:
            headers = {**headers, "x-request-id": request_id}
        if any(name.lower() in self._headers for name in headers):
            return http1.encode_headers(_merged(self._headers, headers))
        return http1.HeaderBlock(block + http1.encode_headers(headers))

    def _look_at_base(self, base_url: str) -> tuple[http1.NetworkRoute, str]:
        url = http1.parse_url(base_url)
        proxy = _proxy_for(url.origin, self._config)
        return http1.NetworkRoute(url.origin, proxy), url.target.rstrip("/")


UpstreamExchange = AbstractAsyncContextManager[UpstreamResponse]
"""A request and its answer, entered when it is sent."""


class Below:
    """An upstream whose paths begin further down: one wire of a server that has several.

    Args:
        upstream: the server's.
        root: where the wire's paths begin.
    """

    def __init__(self, upstream: Upstream, root: str) -> None:
        self._upstream = upstream
        self._root = root

    def post(
        self, path: str, body: bytes, *, request_id: str = "", headers: Mapping[str, str] = {}
    ) -> UpstreamExchange:
        """As `Upstream.post`, of the path `path` in it."""
        return self._upstream.post(self._root + path, body, request_id=request_id, headers=headers)


class _Exchange(AbstractAsyncContextManager[UpstreamResponse]):
    """One request, and its answer for as long as the context lasts."""

    __slots__ = ("_request", "_response", "_upstream")

    def __init__(
        self,
        upstream: Upstream,
        method: Method,
        base_url: str | None,
        path: str,
        headers: http1.HeaderBlock,
        body: bytes | memoryview | None,
        idempotent: bool = False,
    ) -> None:
        self._upstream = upstream
        self._request = (method, base_url, path, headers, body, idempotent)
        self._response: UpstreamResponse | None = None

    async def __aenter__(self) -> UpstreamResponse:
        try:
            response = self._response = await self._upstream.send(*self._request)
            if response.status < 300:
                return response
            try:
                raise await self._upstream.vendor_error(response)
            finally:
                response.close()
        except APIError as error:
            self._upstream.cover_secrets(error)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._response is not None
        self._response.close()
        if isinstance(error, APIError):
            # Whatever was made of the answer by whoever read it.
            self._upstream.cover_secrets(error)


def _merged(*headers: Mapping[str, str]) -> dict[str, str]:
    """All headers, names in lower case; a later one takes an earlier one's place."""
    return {name.lower(): value for each in headers for name, value in each.items()}


def _tls_context(provider: str, config: RemoteConfig) -> ssl.SSLContext | None:
    if config.ca_file is None:
        # To read the system's certificates takes a twentieth of a second: who may never need them
        # gets them when he does.
        is_plain = config.proxy is None and config.base_url.startswith("http:")
        return None if is_plain else http1.default_tls_context()
    context = http1.new_tls_context()
    try:
        context.load_verify_locations(config.ca_file)
    except OSError as error:
        raise ProviderStartError(
            f"Provider '{provider}': `ca_file` {config.ca_file} can't be used"
            f" ({(error.strerror or str(error)).lower()}). It has to be a file of PEM certificates."
        ) from None
    return context


def _proxy_for(origin: http1.Origin, config: RemoteConfig) -> http1.URL | None:
    if config.proxy is not None:
        return http1.parse_url(config.proxy.get_secret_value())
    proxies = urllib.request.getproxies()
    proxy = proxies.get(origin.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(f"{origin.host}:{origin.port}"):
        return None
    try:
        return http1.parse_url(proxy if "://" in proxy else f"http://{proxy}")
    except http1.InvalidURLError as error:
        reason = OSError(f"the URL that the environment has for it is not valid ({error})")
        raise http1.ProxyError(reason) from None
