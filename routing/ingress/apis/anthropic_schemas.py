"""What `/docs` says of the bodies of Anthropic's calls: what most clients use, and no more.

All of it: https://platform.claude.com/docs/en/api/messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT: Mapping[str, Any] = {"type": "string"}
_OBJECTS: Mapping[str, Any] = {"type": "array", "items": {"type": "object"}}
_TEXT_OR_BLOCKS: Mapping[str, Any] = {"anyOf": [_TEXT, _OBJECTS]}

_TURN = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"type": "string", "enum": ["user", "assistant", "system"]},
        "content": _TEXT_OR_BLOCKS,
    },
}

_TOOL = {
    "type": "object",
    "required": ["name", "input_schema"],
    "properties": {"name": _TEXT, "description": _TEXT, "input_schema": {"type": "object"}},
}

_CHOICE = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"type": "string", "enum": ["auto", "any", "tool", "none"]},
        "name": _TEXT,
        "disable_parallel_tool_use": {"type": "boolean"},
    },
}

_COUNTED: Mapping[str, Any] = {
    "model": _TEXT,
    "messages": {"type": "array", "items": _TURN},
    "system": _TEXT_OR_BLOCKS,
    "tools": {"type": "array", "items": _TOOL},
    "tool_choice": _CHOICE,
    "thinking": {"type": "object", "properties": {"type": _TEXT, "budget_tokens": {}}},
    "output_config": {"type": "object", "properties": {"effort": _TEXT, "format": {}}},
}

MESSAGE_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["model", "max_tokens", "messages"],
    "properties": {
        **_COUNTED,
        "max_tokens": {"type": "integer"},
        "stop_sequences": {"type": "array", "items": _TEXT},
        "stream": {"type": "boolean", "description": "Answer with server-sent events."},
        "cache_control": {"type": "object"},
        "service_tier": {"type": "string", "enum": ["auto", "standard_only"]},
        "temperature": {"type": "number"},
        "top_p": {"type": "number"},
        "top_k": {"type": "integer"},
        "metadata": {"type": "object"},
    },
}

TOKEN_COUNT_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": _COUNTED,
}
