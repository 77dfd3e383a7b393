"""Moments as APIs write them."""

from __future__ import annotations

import time


def utc_text(seconds: float) -> str:
    """A moment, in seconds since 1970, as ISO 8601 has it in UTC, to the second:
    `2026-11-24T18:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
