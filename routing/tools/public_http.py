"""HTTP by httpx2 to the public internet alone: what the MCP SDK connects with to servers that a
request names."""

from __future__ import annotations

import asyncio

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
