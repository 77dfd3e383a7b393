"""Calls as the router makes them, for tests that ask a provider without one."""

from __future__ import annotations

import json
from typing import Any

from llama_compat.dialects.base import Asked, Operation
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Target
from llama_compat.wire.json_fields import from_raw, parse_fields

OWN = Target("own")
"""What the provider's model is called in these tests."""


def call_of(
    body: dict[str, Any] | bytes, operation: Operation = CHAT, *, request_id: str = "req_1"
) -> Call:
    """The call that `body` makes; its model is `public` unless it says otherwise."""
    raw = body if isinstance(body, bytes) else json.dumps({"model": "public", **body}).encode()
    fields = parse_fields(raw)
    model = from_raw(fields["model"])
    try:
        asked = operation.look(fields, {"model": model})
    except APIError:
        # Providers are asked here with less than the router lets through.
        stream = "stream" in fields and from_raw(fields["stream"]) is True
        asked = Asked(model, stream)
    return Call(
        operation, fields, asked.model, asked.stream, request_id=request_id, extent=asked.extent
    )
