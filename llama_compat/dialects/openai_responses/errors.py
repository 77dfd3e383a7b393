"""The Responses API's errors: as a body, as an event, and as the error of a failed response."""

from __future__ import annotations

import os
import time
from typing import Any

from llama_compat.dialects.openai_responses.output.events import EventWriter
from llama_compat.dialects.openai_responses.output.response_object import repeated, response_object
from llama_compat.error_classes import OPENAI_CODES, ErrorClass
from llama_compat.errors import APIError
from llama_compat.wire import sse

CODES = {
    **OPENAI_CODES,
    ErrorClass.content_filter: "invalid_prompt",
    ErrorClass.bad_request: "invalid_prompt",
    ErrorClass.overloaded: "server_is_overloaded",
}
"""The `code` of a failed response, by which clients decide what to do; of all others it is
`server_error`."""


def response_error(error: APIError) -> dict[str, Any]:
    """The `error` of a failed response."""
    return {"code": CODES.get(error.error_class, "server_error"), "message": error.message}


def error_event(error: APIError) -> dict[str, Any]:
    """The members of the event `error`: flat, as OpenAI's SDK has them, and nested, as the
    specification of Open Responses does; with the status, as over a WebSocket."""
    nested = error.body()["error"]
    return {
        "status": error.status,
        "code": nested["code"],
        "message": nested["message"],
        "param": nested["param"],
        "error": nested,
    }


def render_error(error: APIError, request_id: str) -> bytes:
    """The body of an answer that is `error`."""
    return error.json()


def render_stream_error(error: APIError, request_id: str) -> bytes:
    """`error` in a stream that has told of no response yet, and the stream's end."""
    failed = response_object(
        repeated({}),
        response_id=f"resp_{os.urandom(12).hex()}",
        created=int(time.time()),
        model="",
        status="failed",
        error=response_error(error),
    )
    writer = EventWriter()
    return (
        writer.event("error", error_event(error))
        + writer.event("response.failed", {"response": failed})
        + sse.DONE
    )
