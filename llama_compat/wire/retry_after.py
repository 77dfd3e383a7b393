"""When to come back, as headers say it: `retry-after` (RFC 9110, section 10.2.3) and OpenAI's
`retry-after-ms`, which is more exact; and that it is of no use, as OpenAI's SDKs read it."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping

_SHOULD_RETRY = "x-should-retry"

_LONGEST_WAIT = 10.0**9
"""Seconds: thirty years, and more than any vendor means."""


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """In how many seconds to come back; None where nobody said, or nothing that makes sense.

    Args:
        headers: of an answer, their names in lower case.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    said = headers.get("retry-after", "")
    seconds = _number(said)
    return _seconds_until(said) if seconds is None else seconds


def retry_after(seconds: float) -> dict[str, str]:
    """The headers that say to come back in so many seconds, as OpenAI has them."""
    return {
        "retry-after": str(math.ceil(seconds)),
        "retry-after-ms": str(math.ceil(seconds * 1000)),
    }


def retry_never() -> dict[str, str]:
    """The header that says not to come back with this request."""
    return {_SHOULD_RETRY: "false"}


def is_never(headers: Mapping[str, str]) -> bool:
    """Whether an answer with these headers, their names in lower case, says that."""
    return headers.get(_SHOULD_RETRY) == "false"


def _number(text: str | None) -> float | None:
    try:
        return _meant(float(text or ""))
    except ValueError:
        return None


def _seconds_until(date: str) -> float | None:
    try:
        until = email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
    return _meant(max(until - time.time(), 0.0))


def _meant(seconds: float) -> float | None:
    return seconds if 0 <= seconds < _LONGEST_WAIT else None
