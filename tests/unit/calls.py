"""Calls as the router makes them, for tests that ask a provider without one."""

from __future__ import annotations

import json
from typing import Any

from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.operations import CHAT
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
    asked = {name: from_raw(fields[name]) for name in ("model", "stream") if name in fields}
    stream = bool(asked.get("stream"))
    return Call(operation, fields, asked["model"], stream, request_id=request_id)
