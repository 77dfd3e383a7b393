"""HTTP by httpx2, as the MCP SDK connects with it: answers of a bounded size, and for servers that
a request names, from the public internet alone."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import httpx2

from providers.remote.upstream.public_web import is_public
from routing.tools.mcp.answers import AnswerBound, TooMuchSaid


class PublicTransport(httpx2.AsyncBaseTransport):
    """Sends requests to hosts whose addresses are public.

    A name is looked up here, and the address that was checked is the one that is connected to: a
    name that means another address a moment later changes nothing.

    Args:
        tls: for https.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=tls)

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
    """Sends requests, and reads no more of an answer than there may be.

    Args:
        inner: sends them.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

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
        has_events = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _BoundedStream(stream, has_events=has_events)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of an answer of which there are not too many.

    Args:
        inner: they.
        has_events: whether they are events.

    Raises (from the iterator):
        StreamError, SSEError: there are; the SDK fails the call alone then, and says why, with one
            for JSON and the other for events.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, *, has_events: bool) -> None:
        self._inner = inner
        self._has_events = has_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        bound = AnswerBound()
        try:
            async for piece in self._inner:
                await bound.take(piece)
                yield piece
            await bound.end()
        except TooMuchSaid as fault:
            error = httpx2.SSEError if self._has_events else httpx2.StreamError
            raise error(str(fault)) from None

    async def aclose(self) -> None:
        """Close the connection that it comes by."""
        await self._inner.aclose()
