"""OpenAI's errors (https://platform.openai.com/docs/guides/error-codes)."""

from __future__ import annotations

from llama_compat.errors import APIError
from llama_compat.wire import sse


def render_error(error: APIError, request_id: str) -> bytes:
    """The body of an answer that is `error`."""
    return error.json()


def render_stream_error(error: APIError, request_id: str) -> bytes:
    """`error` as a stream's last event, and the stream's end."""
    return sse.encode_data(error.json()) + sse.DONE
