"""Ollama's errors: an object with one text."""

from __future__ import annotations

from llama_compat.errors import APIError
from llama_compat.wire.json_fields import encode_json

NAME = "ollama"


def render_error(error: APIError, request_id: str) -> bytes:
    """The body of an answer that is `error`; Ollama's own where the vendor is one."""
    if error.vendor_body is not None and error.vendor_body[0] == NAME:
        return error.vendor_body[1]
    return encode_json({"error": error.message})


def render_stream_error(error: APIError, request_id: str) -> bytes:
    """`error` as a stream's last line."""
    return render_error(error, request_id).replace(b"\n", b" ").strip() + b"\n"
