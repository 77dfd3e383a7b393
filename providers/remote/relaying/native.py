"""Calls passed on to vendors with an API of their own, and their replies back: what is the same
for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from llama_compat.errors import APIError
from llama_compat.exchange import JSON_HEADERS, Reply
from llama_compat.types import Usage
from providers.remote.upstream.exchanges import UpstreamExchange, UpstreamResponse
from providers.remote.upstream.vendor_errors import relayed_headers


@asynccontextmanager
async def speaking(dialect: str, exchange: UpstreamExchange) -> AsyncIterator[UpstreamResponse]:
    """`exchange`, whose errors are in the language `dialect`."""
    try:
        async with exchange as response:
            yield response
    except APIError as error:
        if error.vendor_body is not None:
            error.vendor_body = (dialect, error.vendor_body[1])
        raise


async def whole_reply(
    exchange: UpstreamExchange, mend: Callable[[bytes], tuple[bytes, Usage | None]]
) -> Reply:
    """The reply of a vendor that answers with one object.

    Args:
        exchange: with the vendor.
        mend: what the client gets of the vendor's answer, and the usage that it tells.

    Raises:
        APIError: whatever went wrong with the vendor.
    """
    async with exchange as response:
        body, usage = mend(await response.read())
        headers = {**relayed_headers(response.headers), **JSON_HEADERS}
    return Reply(body, headers=headers, read_usage=lambda: usage)
