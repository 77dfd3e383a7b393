"""Records for tests."""

from __future__ import annotations

from typing import Any

from routing.observability.records.record import Record

NOON = 20_000 * 86400 + 43200.0
"""In seconds since 1970: noon of a day."""


def record(**members: Any) -> Record:
    """A record of a request that went well, but for `members`."""
    usual: dict[str, Any] = {
        "time": NOON,
        "request_id": "req",
        "key": "key-1",
        "api": "openai",
        "operation": "chat",
        "route": "m",
        "model": "m",
        "served": "gpt",
        "provider": "up",
        "target": "up/gpt",
        "attempts": 1,
        "status": 200,
        "finish_reason": "stop",
        "input_tokens": 100,
        "output_tokens": 10,
        "duration": 0.25,
        "cost": 1000,
    }
    return Record(**usual | members)
