"""What the official Gemini SDK thinks of requests, and replies made by its own types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from google.genai import types

USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=30,
    candidates_token_count=20,
    thoughts_token_count=5,
    cached_content_token_count=10,
    total_token_count=55,
)

_MEMBERS: dict[str, Any] = {
    "systemInstruction": types.Content,
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
}
_LISTS: dict[str, Any] = {"contents": types.Content, "tools": types.Tool}


def check_request(body: dict[str, Any]) -> None:
    """Assert that the SDK's types, which forbid what they don't know, take `body` as it is."""
    for name, value in body.items():
        if name in _LISTS:
            for each in value:
                _check(_LISTS[name], each)
        else:
            _check(_MEMBERS[name], value)


def _check(model: Any, value: dict[str, Any]) -> None:
    model.model_validate_json(json.dumps(value))


def dump(response: types.GenerateContentResponse) -> dict[str, Any]:
    """The JSON object that the API answers with."""
    return response.model_dump(mode="json", by_alias=True, exclude_none=True)


def response(
    parts: Sequence[types.Part],
    finish_reason: types.FinishReason | None = types.FinishReason.STOP,
    usage: types.GenerateContentResponseUsageMetadata | None = USAGE,
    **members: Any,
) -> types.GenerateContentResponse:
    """A reply with these parts, or a stream's event with them."""
    candidate = types.Candidate(
        content=types.Content(role="model", parts=list(parts)),
        finish_reason=finish_reason,
        index=0,
        **members,
    )
    return types.GenerateContentResponse(
        candidates=[candidate], usage_metadata=usage, model_version="gemini", response_id="r1"
    )


def text(value: str) -> types.Part:
    return types.Part(text=value)


def thought(value: str) -> types.Part:
    return types.Part(text=value, thought=True)


def function_call(
    name: str,
    arguments: dict[str, Any],
    call_id: str | None = None,
    signature: bytes | None = None,
) -> types.Part:
    call = types.FunctionCall(id=call_id, name=name, args=arguments)
    return types.Part(function_call=call, thought_signature=signature)


def stream_events(whole: types.GenerateContentResponse, *, pieces: int = 3) -> list[dict[str, Any]]:
    """The events of a stream whose reply is `whole`; each text comes in `pieces`."""
    assert whole.candidates
    candidate = whole.candidates[0]
    assert candidate.content is not None
    usage = USAGE.model_copy(update={"candidates_token_count": 1, "thoughts_token_count": None})
    events = [
        response([piece], None, usage)
        for part in candidate.content.parts or ()
        for piece in _cut(part, pieces)
    ]
    last = response(
        [text("")],
        candidate.finish_reason,
        whole.usage_metadata,
        grounding_metadata=candidate.grounding_metadata,
    )
    return [dump(event) for event in (*events, last)]


def _cut(part: types.Part, pieces: int) -> list[types.Part]:
    value = part.text
    if not value:
        return [part]
    size = -(-len(value) // pieces)
    return [
        part.model_copy(update={"text": value[at : at + size]}) for at in range(0, len(value), size)
    ]


def stream_bytes(events: Sequence[dict[str, Any]]) -> bytes:
    """The events as the API sends them, with `alt=sse`."""
    return b"".join(
        b"data: %b\r\n\r\n" % json.dumps(event, ensure_ascii=False).encode() for event in events
    )
