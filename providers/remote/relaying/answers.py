"""What a vendor answers with that was asked for a stream: one, or a whole reply, or an error.

It is decided here for every wire, relayed or translated, by what the answer begins with; what a
whole reply is, and whether it is an error, is for the wire to say (`whole_replies`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from providers.remote.upstream.exchanges import UpstreamResponse

NO_EVENTS = (b"{", b"[", b"<")
"""What an answer begins with that is no stream of server-sent events: an error, or a reply that
ignores that a stream was asked for."""

NO_LINES = (b"[", b"<")
"""The same of a stream of JSON objects, each of which has an end of its own."""

BLANK = b"\xef\xbb\xbf \t\r\n"
"""A byte order mark, and what may keep a connection alive before an answer of JSON."""

MAX_BLANK_BYTES = 1 << 20
"""More of it is no answer of JSON, and is read as the events that it is not."""


class Opening(NamedTuple):
    """How an answer begins.

    Attributes:
        first: of a stream, the first bytes that say anything; empty if it has none.
        whole: the body of an answer that is no stream; None for one that is.
    """

    first: bytes
    whole: bytes | None = None


async def opening(response: UpstreamResponse, no_stream_begins: Sequence[bytes]) -> Opening:
    """Wait for an answer to say something, and for all of it if that is no stream.

    Args:
        response: the vendor's answer, of which nothing has been read.
        no_stream_begins: what it begins with if it is no stream: `NO_EVENTS` or `NO_LINES`.

    Raises:
        APIError: as `UpstreamResponse.next_chunk` and `UpstreamResponse.read`.
    """
    first = await _first_chunk(response)
    if first.lstrip()[:1] in no_stream_begins:
        return Opening(b"", first + await response.read())
    return Opening(first)


async def _first_chunk(response: UpstreamResponse) -> bytes:
    skipped = 0
    while chunk := await response.next_chunk():
        said = chunk.lstrip(BLANK)
        if said or skipped > MAX_BLANK_BYTES:
            return said or chunk
        skipped += len(chunk)
    return chunk
