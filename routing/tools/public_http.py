"""HTTP by httpx2, as the MCP SDK connects with it: answers of a bounded size, and for servers that
a request names, from the public internet alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2

from providers.remote.upstream.public_web import is_public


class PublicTransport(httpx2.AsyncBaseTransport):
    """Sends requests to hosts whose addresses are public.

    A name is looked up here, and the address that was checked is the one that is connected to: a
    name that means another address a moment later changes nothing.
    """

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            ConnectError: its host has no public address.
        """
        host, port = request.url.host, request.url.port
        known = port or (443 if request.url.scheme == "https" else 80)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, known, type=1)
        except OSError:
            raise httpx2.ConnectError("The host is not known.") from None
        addresses = [str(each[4][0]) for each in found]
        if not addresses or not all(is_public(each) for each in addresses):
            raise httpx2.ConnectError("The host is not on the public internet.")
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=addresses[0])
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Sends requests, and reads no more of an answer than a bound: the SDK reads JSON as a whole.

    Args:
        inner: sends them.
        most: bytes of one answer.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, most: int) -> None:
        self._inner = inner
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            RemoteProtocolError: the answer is compressed, which was not asked for: how large it is
                could not be told.
        """
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("The answer is compressed.")
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(stream, self._most)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    """An answer's bytes up to a bound.

    Args:
        inner: they.
        most: how many.

    Raises (from the iterator):
        StreamError: there are more. The SDK fails the call alone then.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._left -= len(piece)
            if self._left < 0:
                raise httpx2.StreamError("The answer is too large.")
            yield piece

    async def aclose(self) -> None:
        """Close the connection that it comes by."""
        await self._inner.aclose()
