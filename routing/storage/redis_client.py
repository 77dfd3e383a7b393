"""A Redis that is asked: the one way to it, for limits, replies and what gateways share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from providers.base import ProviderStartError

if TYPE_CHECKING:
    from redis.asyncio import Redis


def redis_client(
    url: str,
    answer_seconds: float,
    *,
    purpose: str,
    setting: str,
    connect_seconds: float | None = None,
    decode_responses: bool = False,
) -> Redis:
    """A client, which connects when it is first asked.

    Args:
        url: `redis://`, `rediss://` or `unix://`; it may hold a password, and is never repeated.
        answer_seconds: how long an answer may take.
        purpose: what its package is needed for, such as `for a cache in Redis`.
        setting: what names the URL, and the verb, such as '`server.fleet.store` is'.
        connect_seconds: how long connecting may take; None for as long as an answer.
        decode_responses: whether answers are text, not bytes.

    Raises:
        ProviderStartError: its package is missing, or the URL is none.
    """
    try:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
        from redis.exceptions import ConnectionError as NoConnection
    except ImportError:
        raise ProviderStartError(
            f"redis is needed {purpose}: pip install 'llama-compat[redis]'"
        ) from None
    try:
        return Redis.from_url(
            url,
            socket_timeout=answer_seconds,
            socket_connect_timeout=answer_seconds if connect_seconds is None else connect_seconds,
            # Once more on a new connection, as an idle one may have been closed.
            retry=Retry(NoBackoff(), 1, (NoConnection,)),
            decode_responses=decode_responses,
        )
    except ValueError:
        raise ProviderStartError(
            f"{setting} no URL of a Redis: write redis://HOST:PORT/DATABASE"
        ) from None
