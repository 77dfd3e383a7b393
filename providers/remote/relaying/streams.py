"""A vendor's replies in the client's own language on their way to the client.

What a stream's bytes are is for a `RelayedStream` to know, one a wire family; here they are read,
and a stream that breaks off is told from one that has come to its end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol, runtime_checkable

from msgspec import structs

from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import Reply, until_content
from llama_compat.types import Units, Usage
from providers.remote.relaying.answers import NO_EVENTS, opening
from providers.remote.upstream.exchanges import UpstreamExchange, UpstreamResponse
from providers.remote.upstream.vendor_errors import relayed_headers


class RelayedStream(ABC):
    """Takes one stream apart, and puts together what the client gets of it.

    Args:
        provider: its id, for messages.

    Attributes:
        begun: whether the client has got anything.
        spoken: whether the model has said anything in what was put together so far, or has come to
            its end: an empty first chunk and the like are nothing yet.
        ended: whether the vendor has said that it was all; what follows is left out.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._usage: Usage | None = None
        self.begun = False
        self.spoken = False
        self.ended = False

    @property
    def complete(self) -> bool:
        """Whether all that was asked for has come: it has once the vendor has said so, unless the
        wire tells it otherwise."""
        return self.ended

    @property
    def usage(self) -> Usage | None:
        """What the vendor counted last, if it counted."""
        return self._usage

    @abstractmethod
    def push(self, chunk: bytes, out: list[bytes]) -> None:
        """Put what the client gets of `chunk` into `out`, which holds what came before an error.

        An empty chunk is the end of the stream.

        Raises:
            APIError: it makes no sense, or the vendor says in it what went wrong.
        """

    def end(self) -> bytes:
        """What the client is still to be told when the vendor's stream is over: nothing, where the
        vendor has the last word."""
        return b""

    @abstractmethod
    def whole(self, body: bytes) -> bytes:
        """A whole reply, which ignores that a stream was asked for, as the events of one.

        Raises:
            APIError: 502, it is none.
        """


async def stream_reply(
    provider: str,
    exchange: UpstreamExchange,
    stream: RelayedStream,
    *,
    reply_headers: Callable[[Mapping[str, str]], dict[str, str]] = relayed_headers,
    no_stream_begins: Sequence[bytes] = NO_EVENTS,
    render_error: Callable[[APIError], bytes] | None = None,
    at_end: Callable[[], None] = lambda: None,
) -> Reply:
    """The reply of a vendor that streams; the model has said something.

    Args:
        provider: its id, for messages.
        exchange: with the vendor.
        stream: takes it apart.
        reply_headers: those that the client gets, of the vendor's.
        no_stream_begins: as for `opening`.
        render_error: tells of an error in the stream that has begun, as in `Reply`.
        at_end: called when all of a stream that went well has come.

    Raises:
        APIError: whatever went wrong before that.
    """
    headers: dict[str, str] = {}

    async def events() -> AsyncGenerator[bytes, None]:
        async with exchange as response:
            headers.update(reply_headers(response.headers))
            relayed = relay_stream(provider, response, stream, no_stream_begins=no_stream_begins)
            async with aclosing(relayed) as pieces:
                async for piece in pieces:
                    yield piece
        at_end()

    body = events()
    first = await until_content(body, lambda: stream.spoken)
    return Reply(
        body,
        first,
        headers=headers,
        read_usage=lambda: stream.usage,
        render_error=render_error,
    )


async def relay_stream(
    provider: str,
    response: UpstreamResponse,
    stream: RelayedStream,
    *,
    no_stream_begins: Sequence[bytes] = NO_EVENTS,
) -> AsyncGenerator[bytes, None]:
    """What the client gets of a streamed reply, as it comes, whole events together.

    Args:
        provider: its id, for messages.
        response: the vendor's answer.
        stream: takes it apart.
        no_stream_begins: as for `opening`.

    Raises (from the generator):
        APIError: the stream is broken, or the vendor says in it what went wrong.
    """
    chunk, whole = await opening(response, no_stream_begins)
    if whole is not None:
        yield stream.whole(whole) + stream.end()
        return
    while True:
        out: list[bytes] = []
        try:
            stream.push(chunk, out)
        finally:
            # What came before an error is the client's all the same.
            if out:
                yield b"".join(out)
        if stream.ended or not chunk:
            break
        chunk = await next_chunk(response, stream)
    if not stream.complete:
        raise ended_early(provider, begun=stream.begun)
    if left := stream.end():
        yield left
    await response.drain()


def with_searches(usage: Usage | None, searches: int) -> Usage | None:
    """What a vendor has counted so far, and so many searches where it has not said how many it will
    be paid for: each is as it is made, however the stream ends."""
    if not searches or (usage is not None and usage.units is not None):
        return usage
    return structs.replace(usage or Usage(), units=Units(searches=searches))


@runtime_checkable
class Completable(Protocol):
    """What takes a stream apart."""

    @property
    def complete(self) -> bool:
        """Whether all that was asked for has come."""
        ...


async def next_chunk(response: UpstreamResponse, stream: Completable) -> bytes:
    """What has arrived since; empty at the end, which a break is too once `stream` is complete.

    Raises:
        APIError: as `UpstreamResponse.next_chunk`.
    """
    try:
        return await response.next_chunk()
    except APIError as error:
        if stream.complete and error.status == 502:
            return b""  # all was said before the connection broke
        raise


def ended_early(provider: str, *, begun: bool) -> APIError:
    """502: the vendor ended a stream in order, but too soon."""
    what = "before the reply was complete" if begun else "without a single event"
    return upstream_error(provider, f"the stream ended {what}.", code="upstream_stream_ended")
