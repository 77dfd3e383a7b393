"""The headers of a request, as they are kept where bodies are: by name, of few their values too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

COVERED = "[covered]"
"""In the place of a value that is not known to be harmless: it may be a key, whatever its name."""

MOST_CHARACTERS = 500
"""Of a name or a value; what is longer is cut off."""

MOST_HEADERS = 100

_HARMLESS = re.compile(
    r"accept|accept-(?:charset|encoding|language)|anthropic-(?:beta|version)|connection"
    r"|content-(?:encoding|length|type)|date|dnt|expect|forwarded|host|idempotency-key|openai-beta"
    r"|openai-(?:organization|project|version)|origin|priority|range|sec-(?:ch|fetch)-[a-z-]+|te|traceparent"
    r"|tracestate|transfer-encoding|upgrade|user-agent|via|x-amzn-trace-id|x-app"
    r"|x-client-request-id|x-forwarded-(?:for|host|port|prefix|proto|server)|x-goog-api-client|x-llama-compat-[a-z-]+|x-real-ip"
    r"|x-request-id|x-stainless-[a-z-]+|x-title"
)
"""Those whose values are kept: what the client is, what it wants, and by which way it came."""


def kept_headers(
    headers: Iterable[tuple[bytes, bytes]], redacted: Callable[[bytes], bytes] = bytes
) -> str:
    """JSON: a list of names and values, in the order in which they came.

    Args:
        headers: with names in lower case.
        redacted: takes out what the template wants no one to keep.
    """
    kept = []
    for name, value in list(headers)[:MOST_HEADERS]:
        known = name.decode("latin-1")
        is_harmless = _HARMLESS.fullmatch(known) is not None
        text = redacted(value).decode("latin-1") if is_harmless else COVERED
        kept.append((known[:MOST_CHARACTERS], text[:MOST_CHARACTERS]))
    return msgspec.json.encode(kept).decode()


def read_headers(text: str) -> list[tuple[str, str]]:
    """What `kept_headers` has written; nothing where there was nothing."""
    return msgspec.json.decode(text, type=list[tuple[str, str]]) if text else []
