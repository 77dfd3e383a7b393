"""The errors of the Interactions API: a word and a sentence, whole or as an event.

The words are those of https://ai.google.dev/gemini-api/docs/api-errors, read on 2026-11-22; where
it has none, the HTTP status is the word.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from llama_compat.dialects.gemini_interactions.events import DONE, encode_event
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError
from llama_compat.wire.json_fields import encode_json

DIALECT = "gemini_interactions"

CONTENT_BLOCKED = "content_blocked"

_BY_CODE: Mapping[str, str] = {
    "model_not_found": "model_not_found",
    "unsupported_parameter": "parameter_unknown",
}

_BY_CLASS: Mapping[ErrorClass, str] = {
    ErrorClass.content_filter: CONTENT_BLOCKED,
    ErrorClass.quota: "quota_exceeded",
}

_BY_STATUS: Mapping[int, str] = {
    400: "invalid_request",
    401: "authentication",
    402: "payment_required",
    403: "permission_denied",
    404: "not_found",
    413: "invalid_request",
    416: "out_of_range",
    422: "invalid_request",
    429: "rate_limit_exceeded",
    499: "cancelled",
}


def code_of(error: APIError) -> str:
    """Google's word for an error."""
    known = _BY_CODE.get(error.code or "") or _BY_CLASS.get(error.error_class)
    return known or _BY_STATUS.get(error.status) or _status_word(error.status)


def _status_word(status: int) -> str:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Invalid request" if status < 500 else "Internal server error"
    return phrase.lower().replace(" ", "_").replace("-", "_")


def error_object(error: APIError) -> dict[str, str]:
    """The error as an interaction and an event have it."""
    message, place = error.message, error.param
    # There is no member for the place.
    if place and place not in message:
        message = f"{place}: {message}"
    return {"code": code_of(error), "message": message}


def render_error(error: APIError, request_id: str) -> bytes:
    """The body of an answer that is `error`; Google's own where the vendor is Google."""
    if error.vendor_body is not None and error.vendor_body[0] == DIALECT:
        return error.vendor_body[1]
    return encode_json({"error": error_object(error)})


def render_stream_error(error: APIError, request_id: str = "") -> bytes:
    """`error` in a stream, and the stream's end."""
    return encode_event("error", {"error": error_object(error)}) + DONE
