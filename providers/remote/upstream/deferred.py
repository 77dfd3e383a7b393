"""Requests that are made and not sent: what a vendor would be asked, for whoever hands it over in
another way, and what it said there, read as the answer to a request is.

So a line of a vendor's batch is written and read by the code that any request goes through. Which
requests these are is the context's, as `trace_headers` are: nothing between has to know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import NoReturn, Protocol

from msgspec import Struct

from llama_compat.errors import APIError
from providers.remote.http1.headers import HeaderBlock, Headers


class Unsent(Struct, frozen=True):
    """A request that was not sent.

    Attributes:
        path: from the vendor's base URL on.
        headers: by name, in lower case.
        body: what would have been sent.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes


class NotSent(APIError):
    """Raised in the place of an answer where a request was only wanted to be seen.

    Attributes:
        unsent: the request.
    """

    was_sent = False

    def __init__(self, unsent: Unsent) -> None:
        super().__init__(503, "This request was made to be handed over, and not sent.")
        self.unsent = unsent


class Deferred(Protocol):
    """What becomes of requests that are not sent.

    Attributes:
        upstream: whose requests; all others are sent.
    """

    upstream: object

    def answer(self, path: str, headers: HeaderBlock, body: bytes) -> StoredAnswer:
        """The answer to a request.

        Raises:
            APIError: there is none.
        """
        ...


DEFERRED: ContextVar[Deferred | None] = ContextVar("deferred", default=None)
"""What becomes of the requests in this context; None where they are sent."""


class Capture:
    """Has a request seen and not answered.

    Args:
        upstream: whose.
    """

    def __init__(self, upstream: object) -> None:
        self.upstream = upstream

    def answer(self, path: str, headers: HeaderBlock, body: bytes) -> NoReturn:
        """Show the request.

        Raises:
            NotSent: with it.
        """
        raise NotSent(Unsent(path, _named(headers), bytes(body)))


class Replay:
    """Answers one request with what was said elsewhere.

    Args:
        upstream: whose.
        status: HTTP status.
        body: what was said.
    """

    def __init__(self, upstream: object, status: int, body: bytes) -> None:
        self.upstream = upstream
        self._answer: StoredAnswer | None = StoredAnswer(status, body)

    def answer(self, path: str, headers: HeaderBlock, body: bytes) -> StoredAnswer:
        """The answer, once.

        Raises:
            APIError: 500, there was more than one request, which nobody has asked.
        """
        answer, self._answer = self._answer, None
        if answer is None:
            raise APIError(500, "A line of a batch came to more than one request to the vendor.")
        return answer


class StoredAnswer:
    """As `http1.Response`, of what is there already.

    Args:
        status: HTTP status.
        body: all of it.
    """

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers: Mapping[str, str] = Headers({"content-type": "application/json"})
        self._body = body

    async def next_chunk(self) -> bytes:
        """The body; empty once it was given."""
        body, self._body = self._body, b""
        return body

    async def read(self, limit: int | None = None) -> bytes:
        """The same; it was within its bounds when it came."""
        return await self.next_chunk()

    def discard(self) -> None:
        """Nobody wants it."""

    def close(self) -> None:
        """There is nothing to be closed."""


def _named(headers: HeaderBlock) -> Mapping[str, str]:
    lines = headers.decode("latin-1").split("\r\n")
    return {
        name.lower(): value
        for name, found, value in (each.partition(": ") for each in lines)
        if found
    }
