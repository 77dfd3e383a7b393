"""Google's errors (https://cloud.google.com/apis/design/errors)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llama_compat.dialects.gemini.seals import FAMILY
from llama_compat.errors import APIError
from llama_compat.wire.json_fields import encode_json

_WORDS: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    424: "INTERNAL",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    498: "UNAVAILABLE",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
"""google.rpc.Code for HTTP statuses; for others that of their hundred."""

_TYPES = "type.googleapis.com/google.rpc."


def render_error(error: APIError, request_id: str) -> bytes:
    """The body of an answer that is `error`; Google's own where the vendor is Google."""
    if error.vendor_body is not None and error.vendor_body[0] == FAMILY:
        return error.vendor_body[1]
    said: dict[str, Any] = {
        "code": error.status,
        "message": error.message,
        "status": _word(error.status),
    }
    if details := _details(error):
        said["details"] = details
    return encode_json({"error": said})


def _word(status: int) -> str:
    return _WORDS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")


def _details(error: APIError) -> list[dict[str, Any]]:
    details: list[dict[str, Any]] = []
    if error.code:
        reason = error.code.upper()
        details.append({"@type": f"{_TYPES}ErrorInfo", "reason": reason, "domain": "llama_compat"})
    if error.param:
        violation = {"field": error.param, "description": error.message}
        details.append({"@type": f"{_TYPES}BadRequest", "fieldViolations": [violation]})
    if error.retry_after is not None:
        delay = f"{math.ceil(error.retry_after)}s"
        details.append({"@type": f"{_TYPES}RetryInfo", "retryDelay": delay})
    return details
