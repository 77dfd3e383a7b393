"""What is left of a limit, and OpenAI's headers that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct


class RateLimit(Struct, frozen=True):
    """One limit a minute, as it stands.

    Attributes:
        resource: what is limited: `requests` or `tokens`.
        limit: how many a minute.
        remaining: how many are left now.
        reset: seconds until all are there again.
        reset_at: the same moment, in seconds since 1970.
    """

    resource: str
    limit: int
    remaining: int
    reset: float
    reset_at: float


_NAMES = {
    resource: tuple(
        f"x-ratelimit-{what}-{resource}".encode() for what in ("limit", "remaining", "reset")
    )
    for resource in ("requests", "tokens")
}


def openai_headers(limits: Sequence[RateLimit]) -> Mapping[bytes, bytes]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`
    (https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers)."""
    headers = {}
    for each in limits:
        limit, remaining, reset = _NAMES[each.resource]
        headers[limit] = _digits(each.limit)
        headers[remaining] = str(each.remaining).encode()
        headers[reset] = duration(round(each.reset * 1000))
    return headers


@lru_cache(maxsize=1024)
def _digits(limit: int) -> bytes:
    return str(limit).encode()


@lru_cache(maxsize=4096)
def duration(milliseconds: int) -> bytes:
    """A time as OpenAI writes it: `6m0s`, `1.5s`, `120ms`."""
    if milliseconds < 1000:
        return b"%dms" % milliseconds
    minutes, rest = divmod(milliseconds, 60_000)
    seconds = f"{rest / 1000:g}s"
    return (f"{minutes}m{seconds}" if minutes else seconds).encode()
