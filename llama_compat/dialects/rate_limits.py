"""What is left of a limit, and OpenAI's headers that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
        headers[limit] = b"%d" % each.limit
        headers[remaining] = b"%d" % each.remaining
        headers[reset] = duration(each.reset).encode()
    return headers


def duration(seconds: float) -> str:
    """Seconds as OpenAI writes them: `6m0s`, `1.5s`, `120ms`."""
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"
