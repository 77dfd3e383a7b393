"""As deep as a request may be nested, every dialect can still say it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from llama_compat.dialects import anthropic_messages, gemini, gemini_interactions, ollama
from llama_compat.dialects.gemini.schema import render_schema
from llama_compat.dialects.openai import chat
from llama_compat.types import ChatCompletionRequest
from llama_compat.wire.json_depth import MAX_DEPTH, is_deeper, too_deep
from llama_compat.wire.json_fields import to_raw

FRAMES_ABOVE = 150
"""Of the server, its loop and its tasks, on the stack in which requests are rendered."""

RENDERERS: list[Callable[[ChatCompletionRequest], Any]] = [
    partial(anthropic_messages.render_request, default_max_tokens=5),
    gemini.render_request,
    gemini_interactions.render_request,
    ollama.render_request,
    chat.render_request,
]


def nested(levels: int) -> dict[str, Any]:
    """The schema that is the most work: each level of JSON is one of the schema, of two types."""
    schema: dict[str, Any] = {"type": ["string", "null"]}
    while levels > 2:
        schema, levels = {"type": ["array", "null"], "items": schema}, levels - 1
    return schema


def below(frames: int, run: Callable[[], Any]) -> Any:
    return below(frames - 1, run) if frames else run()


def body(levels: int) -> dict[str, Any]:
    function = {"name": "f", "parameters": nested(levels - 4)}
    schema = {"name": "s", "schema": nested(levels - 3)}
    return {
        "messages": [{"role": "user", "content": "?"}],
        "tools": [{"type": "function", "function": function}],
        "response_format": {"type": "json_schema", "json_schema": schema},
    }


@pytest.mark.parametrize("render", RENDERERS)
def test_what_is_just_allowed_can_be_said(render: Callable[[ChatCompletionRequest], Any]) -> None:
    asked = body(MAX_DEPTH)
    data = json.dumps(asked).encode()
    assert not is_deeper(data)
    assert is_deeper(b'{"a": %b}' % data)

    def translate() -> bytes:
        call = chat.parse_request(asked, "m")
        return msgspec.json.encode(render(call.request if hasattr(call, "request") else call))

    assert b'"f"' in below(FRAMES_ABOVE, translate)


def test_one_level_more_is_named() -> None:
    fields = {name: to_raw(value) for name, value in body(MAX_DEPTH + 1).items()}
    assert too_deep(fields) == "tools"


def test_references_in_a_row_are_no_recursion_error() -> None:
    definitions = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(2000)}
    assert render_schema({"$ref": "#/$defs/d0", "$defs": {**definitions, "d2000": {}}}) is None
