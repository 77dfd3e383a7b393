"""Requests that no client waits for, be it that the server asks itself: lines of batches, copies,
vectors of texts, verdicts, trials."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from llama_compat.errors import APIError, internal_error
from llama_compat.exchange import Reply
from routing.request import Request

log = logging.getLogger(__name__)

T = TypeVar("T")


@contextmanager
def lasting(
    request: Request, begin: Callable[[Request], None], broken_off: str = ""
) -> Iterator[None]:
    """Begin a request, and end it, however what is done for it in this context ends.

    Args:
        request: it.
        begin: the runtime's.
        broken_off: why, where that is broken off.

    Raises:
        APIError: what it failed with; in place of what should not happen, which the log has then,
            500.
    """
    begin(request)
    try:
        yield
    except APIError as error:
        if request.error is not error:  # else its reply had begun, with a status of its own
            _failed(request, error)
        raise
    except Exception:
        log.exception("request %s failed", request.request_id)
        failure = internal_error()
        _failed(request, failure)
        raise failure from None
    except BaseException:
        request.left(broken_off)
        raise
    finally:
        request.end()


def _failed(request: Request, error: APIError) -> None:
    request.failed(error)
    request.status = request.operation.dialect.status(error)


async def within(seconds: float, answered: Awaitable[T]) -> T:
    """What comes of `answered` in so long a time.

    Raises:
        APIError: 504, nothing did; or what `answered` raises.
    """
    try:
        async with asyncio.timeout(seconds):
            return await answered
    except TimeoutError:
        raise APIError(504, f"Nothing within {seconds:g} s.", code="upstream_timeout") from None


async def read_through(request: Request, reply: Reply) -> bytes:
    """All of what a request was answered, which is closed then.

    Raises:
        APIError: it broke off with that.
    """
    try:
        content = reply.body if isinstance(reply.body, bytes) else await _streamed(reply)
    finally:
        await reply.aclose()
    request.was_read(reply)
    if reply.error is not None:
        raise reply.error
    return content


async def _streamed(reply: Reply) -> bytes:
    assert not isinstance(reply.body, bytes)
    pieces = [reply.first]
    try:
        async for piece in reply.body:
            pieces.append(piece)
        reply.read_to_end = True
    except APIError as error:
        reply.error = error
    return b"".join(pieces)
