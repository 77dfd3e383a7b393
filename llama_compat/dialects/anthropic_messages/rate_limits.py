"""Anthropic's headers about limits (https://platform.claude.com/docs/en/api/rate-limits)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llama_compat.dialects.moments import utc_text
from llama_compat.dialects.rate_limits import RateLimit


def rate_limit_headers(limits: Sequence[RateLimit]) -> Mapping[bytes, bytes]:
    """`anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}`, the reset in RFC 3339."""
    headers = {}
    for each in limits:
        prefix = f"anthropic-ratelimit-{each.resource}".encode()
        headers[prefix + b"-limit"] = b"%d" % each.limit
        headers[prefix + b"-remaining"] = b"%d" % each.remaining
        headers[prefix + b"-reset"] = utc_text(each.reset_at).encode()
    return headers
