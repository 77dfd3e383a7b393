"""Calls passed on to vendors with an API of their own, and their replies back: what is the same
for all of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

from llama_compat.errors import APIError
from llama_compat.exchange import Reply
from llama_compat.types import Usage
from providers.remote.relay import RelayedStream, relay_stream
from providers.remote.upstream import UpstreamResponse
from providers.remote.upstream_errors import relayed_headers

Exchange = AbstractAsyncContextManager[UpstreamResponse]

_JSON_HEADERS = {"content-type": "application/json"}


@asynccontextmanager
async def speaking(dialect: str, exchange: Exchange) -> AsyncIterator[UpstreamResponse]:
    """`exchange`, whose errors are in the language `dialect`."""
    try:
        async with exchange as response:
            yield response
    except APIError as error:
        if error.vendor_body is not None:
            error.vendor_body = (dialect, error.vendor_body[1])
        raise


async def whole_reply(
    exchange: Exchange, mend: Callable[[bytes], tuple[bytes, Usage | None]]
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
        headers = {**relayed_headers(response.headers), **_JSON_HEADERS}
    return Reply(body, headers=headers, read_usage=lambda: usage)


async def stream_reply(
    provider: str,
    exchange: Exchange,
    stream: RelayedStream,
    *,
    no_stream_begins: Sequence[bytes],
    render_error: Callable[[APIError], bytes],
) -> Reply:
    """The reply of a vendor that streams.

    Args:
        provider: its id, for messages.
        exchange: with the vendor.
        stream: takes it apart.
        no_stream_begins: as for `relay_stream`.
        render_error: tells of an error in the stream that has begun.

    Raises:
        APIError: whatever went wrong before the stream began.
    """
    headers: dict[str, str] = {}

    async def events() -> AsyncGenerator[bytes, None]:
        async with exchange as response:
            headers.update(relayed_headers(response.headers))
            relayed = relay_stream(provider, response, stream, no_stream_begins=no_stream_begins)
            async with aclosing(relayed) as pieces:
                async for piece in pieces:
                    yield piece

    body = events()
    first = await anext(body)
    return Reply(
        body,
        first,
        headers=headers,
        read_usage=lambda: stream.usage,
        render_error=render_error,
    )
