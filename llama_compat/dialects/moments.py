"""Moments as APIs write them."""

from __future__ import annotations

import time


def utc_text(seconds: float) -> str:
    """A moment, in seconds since 1970, as ISO 8601 has it in UTC, to the second:
    `2026-11-24T18:00:00Z`."""
    return f"{_to_the_second(seconds)}Z"


def exact_utc_text(seconds: float) -> str:
    """The same to the microsecond: `2026-11-24T18:00:00.250000Z`."""
    return f"{_to_the_second(seconds)}.{int(seconds % 1 * 1_000_000):06}Z"


def _to_the_second(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
