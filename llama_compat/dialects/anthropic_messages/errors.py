"""Anthropic's errors (https://platform.claude.com/docs/en/api/errors)."""

from __future__ import annotations

from typing import Any

from llama_compat.dialects.anthropic_messages.events import encode_event
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError, UnsupportedHere
from llama_compat.wire.json_fields import encode_json

DIALECT = "anthropic"

_STATUSES = {
    ErrorClass.quota: 402,
    ErrorClass.rate_limit: 429,
    ErrorClass.timeout: 504,
    ErrorClass.overloaded: 529,
}
"""Classes that this API has a status for, whatever that of the error is."""

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_TOO_LONG = "prompt is too long"
"""By these words clients know that it is time to shorten the conversation."""


_NO_THREADS = "thread_unsupported_request"


def threads_unsupported() -> APIError:
    """400: the conversation is kept nowhere. By this code the SDKs, whose tool runners ask for a
    thread by default, know that they are to send all of it instead
    (anthropic 2.12.0, types/thread_unsupported_request_error.py, 2026-11-23)."""
    return UnsupportedHere(
        400,
        "This model's provider holds no threads. Send the whole conversation, without 'thread'.",
        param="thread",
        code=_NO_THREADS,
    )


def status(error: APIError) -> int:
    """The HTTP status; a vendor's own error in this API's words keeps its own."""
    if _vendor_words(error) is not None:
        return error.status
    return _STATUSES.get(error.error_class, error.status)


def render_error(error: APIError, request_id: str) -> bytes:
    """The body of an answer that is `error`."""
    words = _vendor_words(error)
    if words is not None:
        return words
    shown = status(error)
    kind = _TYPES.get(shown, "invalid_request_error" if shown < 500 else "api_error")
    message = f"{_TOO_LONG}: {error.message}" if _is_about_the_prompt(error) else error.message
    said: dict[str, Any] = {"type": kind, "message": message}
    if error.code == _NO_THREADS:
        said["details"] = {"error_code": _NO_THREADS}
    return encode_json({"type": "error", "error": said, "request_id": request_id})


def _is_about_the_prompt(error: APIError) -> bool:
    if error.error_class is not ErrorClass.context_length or error.param == "max_tokens":
        return False
    return _TOO_LONG not in error.message.lower()


def render_stream_error(error: APIError, request_id: str) -> bytes:
    """`error` as a stream's last event."""
    return encode_event("error", render_error(error, request_id))


def _vendor_words(error: APIError) -> bytes | None:
    if error.vendor_body is None or error.vendor_body[0] != DIALECT:
        return None
    return error.vendor_body[1]
