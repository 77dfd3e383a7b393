"""A vendor's replies in the client's own language on their way to the client.

What a stream's bytes are is for a `RelayedStream` to know, one a wire family; here they are read,
and a stream that breaks off is told from one that has come to its end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from llama_compat.errors import APIError, upstream_error
from llama_compat.types import Usage
from providers.remote.upstream import UpstreamResponse


class RelayedStream(Protocol):
    """Takes one stream apart, and puts together what the client gets of it.

    Attributes:
        begun: whether the client has got anything.
        ended: whether the vendor has said that it was all; what follows is left out.
    """

    begun: bool
    ended: bool

    @property
    def complete(self) -> bool:
        """Whether all that was asked for has come."""
        ...

    @property
    def usage(self) -> Usage | None:
        """What the vendor counted, if it did."""
        ...

    def push(self, chunk: bytes, out: list[bytes]) -> None:
        """Put what the client gets of `chunk` into `out`, which holds what came before an error.

        An empty chunk is the end of the stream.

        Raises:
            APIError: it makes no sense, or the vendor says in it what went wrong.
        """
        ...

    def end(self) -> bytes:
        """What the client is still to be told when the vendor's stream is over."""
        ...

    def whole(self, body: bytes) -> bytes:
        """A whole reply, which ignores that a stream was asked for, as the events of one.

        Raises:
            APIError: 502, it is none.
        """
        ...


async def relay_stream(
    provider: str,
    response: UpstreamResponse,
    stream: RelayedStream,
    *,
    no_stream_begins: Sequence[bytes] = (b"{", b"[", b"<"),
) -> AsyncGenerator[bytes, None]:
    """What the client gets of a streamed reply, as it comes, whole events together.

    Args:
        provider: its id, for messages.
        response: the vendor's answer.
        stream: takes it apart.
        no_stream_begins: what an answer begins with that is no stream: an error, or a reply that
            ignores that a stream was asked for.

    Raises (from the generator):
        APIError: the stream is broken, or the vendor says in it what went wrong.
    """
    chunk = await response.next_chunk()
    if chunk.lstrip()[:1] in no_stream_begins:
        yield stream.whole(chunk + await response.read()) + stream.end()
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
        chunk = await _next_chunk(response, stream)
    if not stream.complete:
        raise _ended_early(provider, begun=stream.begun)
    if left := stream.end():
        yield left
    await response.drain()


async def _next_chunk(response: UpstreamResponse, stream: RelayedStream) -> bytes:
    try:
        return await response.next_chunk()
    except APIError as error:
        if stream.complete and error.status == 502:
            return b""  # all was said before the connection broke
        raise


def _ended_early(provider: str, *, begun: bool) -> APIError:
    what = "before the reply was complete" if begun else "without a single event"
    return upstream_error(provider, f"the stream ended {what}.", code="upstream_stream_ended")
