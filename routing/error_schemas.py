"""What the errors of each client API look like, for `/docs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT: Mapping[str, Any] = {"type": "string"}
_TEXT_OR_NOTHING: Mapping[str, Any] = {"type": ["string", "null"]}


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(members), "properties": members}


_OPENAIS = _object(
    error=_object(message=_TEXT, type=_TEXT, param=_TEXT_OR_NOTHING, code=_TEXT_OR_NOTHING)
)
_GOOGLES = _object(error=_object(code={"type": "integer"}, message=_TEXT, status=_TEXT))

_INTERACTIONS = _object(error=_object(code=_TEXT, message=_TEXT))

OPENAI_ERROR = "ErrorResponse"

ERROR_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    OPENAI_ERROR: _OPENAIS,
    "MessagesError": _object(
        type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT), request_id=_TEXT
    ),
    "OllamaError": _object(error=_TEXT),
    # An array is what a stream without `alt=sse` fails with.
    "InteractionError": _INTERACTIONS,
    "GeminiError": {"anyOf": [_GOOGLES, {"type": "array", "items": _GOOGLES}]},
}
"""By the name of the component."""

ERROR_OF_TAG: Mapping[str, str] = {
    "messages": "MessagesError",
    "ollama": "OllamaError",
    "gemini": "GeminiError",
    "interactions": "InteractionError",
}
"""Whose calls, by their tag, have other errors than OpenAI's."""
