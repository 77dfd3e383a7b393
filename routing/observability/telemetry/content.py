"""What was asked and what was said, in the shape that OpenTelemetry has for messages.

The roles and parts are those of https://opentelemetry.io/docs/specs/semconv/gen-ai/: what is no
text is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from llama_compat.wire.json_fields import encode_json, unicode_from_raw
from routing.observability.records.bodies import joined_events

_SYSTEM = ("instructions", "system", "systemInstruction")
_ASKED = ("messages", "contents", "input", "prompt")

_SAID = frozenset({"content", "text", "response", "delta"})
"""Members of replies and of events that are what the model said."""


def input_messages(fields: Mapping[str, Raw]) -> str:
    """The messages of a request, as JSON."""
    messages = []
    for name in (*_SYSTEM, *_ASKED):
        if name in fields:
            role = "system" if name in _SYSTEM else "user"
            messages += _messages(unicode_from_raw(fields[name]), role)
    return _json(messages)


def output_messages(reply: bytes, finish_reason: str, *, streamed: bool) -> str:
    """What a reply says, as JSON.

    Args:
        reply: its bytes, or the beginning of them.
        finish_reason: why it ended.
        streamed: whether it is a stream of events.
    """
    try:
        said = joined_events(reply) if streamed else {"": msgspec.json.decode(reply)}
    except (ValueError, RecursionError):
        said = {}
    texts = [each for path, value in said.items() for each in _texts(value, path)]
    parts = [{"type": "text", "content": text} for text in texts if text]
    return _json([{"role": "assistant", "parts": parts, "finish_reason": finish_reason}])


def _messages(value: Any, role: str) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [_message(role, [value])]
    if isinstance(value, dict):
        return [_message(value.get("role", role), _contents(value))]
    if isinstance(value, list):
        return [each for item in value for each in _messages(item, role)]
    return []


def _message(role: Any, texts: list[str]) -> dict[str, Any]:
    return {"role": str(role), "parts": [{"type": "text", "content": text} for text in texts]}


def _contents(message: dict[str, Any]) -> list[str]:
    content = next((message[name] for name in ("content", "parts", "text") if name in message), "")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]


def _texts(value: Any, path: str = "") -> list[str]:
    """The texts in a reply: strings under the members that are what the model said."""
    if isinstance(value, dict):
        return [each for name, inner in value.items() for each in _texts(inner, name)]
    if isinstance(value, list):
        return [each for inner in value for each in _texts(inner, path)]
    return [value] if isinstance(value, str) and path.rpartition(".")[2] in _SAID else []


def _json(value: Any) -> str:
    return encode_json(value).decode()
