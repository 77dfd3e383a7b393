"""An answer whose head is there, and whose body is read as it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from providers.remote.http1.decoding import STEP_BYTES, ContentDecoder, decoder_for
from providers.remote.http1.errors import AnswerTooLargeError, HTTPError
from providers.remote.http1.headers import Headers
from providers.remote.http1.parser import ResponseParser

if TYPE_CHECKING:
    from providers.remote.http1.connection import HTTPConnection


class Response:
    """An answer. It has to be read to its end, discarded or closed.

    Attributes:
        status: HTTP status.
        headers: by name, in any case.
        discarding: whether nobody wants the rest.
    """

    __slots__ = (
        "_coding",
        "_connection",
        "_decoder",
        "_discarded",
        "_ended",
        "_error",
        "_held",
        "_parts",
        "_waiter",
        "discarding",
        "headers",
        "status",
    )

    def __init__(self, connection: HTTPConnection, parser: ResponseParser) -> None:
        self.status = parser.status
        self.headers = Headers(parser.headers)
        self.discarding = False
        self._parts = parser.body
        self._held = self._discarded = 0
        self._connection: HTTPConnection | None = connection
        self._ended = False
        self._error: HTTPError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._coding = parser.headers.get("content-encoding")
        self._decoder: ContentDecoder | None = None

    # For whoever asked ----------------------------------------------------------------------------

    async def next_chunk(self) -> bytes:
        """What has arrived of the body since the last call, decompressed, at least a byte; empty at
        its end.

        Raises:
            HTTPError: it broke off.
        """
        if self._coding is None:
            return await self._next_part()
        if self._decoder is None:
            self._decoder = decoder_for(self._coding)
        while not (chunk := self._decoder.take()):
            part = await self._next_part()
            if not part:
                self._decoder.end()
                break
            self._decoder.feed(part)
        if len(chunk) == STEP_BYTES:
            await asyncio.sleep(0)  # a little that came may be very much: others have their turn
        return chunk

    async def read(self, limit: int | None = None) -> bytes:
        """What is left of the body.

        Args:
            limit: the bytes that it may have, decompressed.

        Raises:
            AnswerTooLargeError: it has more; the connection is closed.
            HTTPError: it broke off.
        """
        parts: list[bytes] = []
        if self._ended and self._error is None and self._coding is None:
            # All of it came with the head, as most whole replies do.
            parts, self._held = self._parts[:], 0
            self._parts.clear()
            if limit is not None and sum(map(len, parts)) > limit:
                raise AnswerTooLargeError(limit)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        size = 0
        while chunk := await self.next_chunk():
            size += len(chunk)
            if limit is not None and size > limit:
                self.close()
                raise AnswerTooLargeError(limit)
            parts.append(chunk)
            if self._ended and self._error is None and self._coding is None and not self._parts:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def discard(self) -> None:
        """Leave the rest to the connection, which can be used again if the end is near."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self.discarding = True
            self._parts.clear()
            connection.discard()

    def close(self) -> None:
        """Close the connection, unless the answer has come to its end or was discarded."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # For the connection ---------------------------------------------------------------------------

    def take_in(self, size: int) -> int:
        """So many bytes have arrived, and what they hold of the body was parsed; how many wait to
        be read now."""
        self._held += size
        if self._parts:
            self._wake()
        return self._held

    def discard_more(self, size: int, limit: int) -> bool:
        """As `take_in`, of what nobody wants: whether there may be more."""
        self._parts.clear()
        self._discarded += size
        return self._discarded <= limit

    def end(self, error: HTTPError | None) -> None:
        """Nothing further comes."""
        self._connection = None
        self._ended = True
        self._error = error
        self._wake()

    # ----------------------------------------------------------------------------------------------

    async def _next_part(self) -> bytes:
        parts = self._parts
        while not parts:
            if self._error is not None:
                raise self._error
            if self._ended or self._connection is None:
                return b""
            await self._arrival()
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._held = 0
        if self._connection is not None:
            self._connection.resume()
        return data

    async def _arrival(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("two read the same answer")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
