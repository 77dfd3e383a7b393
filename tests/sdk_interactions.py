"""What Google's own SDK thinks of the Interactions API's requests, interactions and events.

Its types take whatever they are given, and mark what they don't know: here that is a mistake.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.genai import interactions as sdk
from google.genai._gaos.utils import serializers
from pydantic import BaseModel, TypeAdapter


def make_models_once() -> None:
    """Have the SDK keep the model that it makes around a type to read or to write it: it makes the
    same one for each request, reply and event, at 25 milliseconds of CPU."""
    create, made = serializers.create_model, dict[tuple[str, int], tuple[Any, Any]]()

    def create_once(name: str, *, body: tuple[Any, Any], **config: Any) -> Any:
        key = name, id(body[0])  # which is kept, so that nothing else gets its id
        if key not in made:
            made[key] = body[0], create(name, body=body, **config)
        return made[key][1]

    serializers.create_model = create_once  # type: ignore[assignment]


make_models_once()

_EVENTS: TypeAdapter[Any] = TypeAdapter(sdk.InteractionSSEEvent)


def unknown_in_request(body: Mapping[str, Any]) -> list[str]:
    """Where a request has what the SDK's types don't know."""
    return list(_unknown(sdk.CreateModelInteraction.model_validate(body), ""))


def check_interaction(body: Mapping[str, Any], *more: str) -> Any:
    """The SDK's interaction of `body`, every member of which it knows but `object`, and `more`,
    which are how further ones end."""
    interaction = sdk.Interaction.model_validate(body)
    strange = [each for each in _unknown(interaction, "") if each != ".object"]
    assert [each for each in strange if not each.endswith(more)] == []
    return interaction


def check_event(data: bytes, *more: str) -> Any:
    """The SDK's event of `data`, every member of which it knows, but for `more` as above."""
    event = _EVENTS.validate_json(data)
    strange = [
        each
        for each in _unknown(event, "")
        # What an interaction says of itself where it is whole, it may say in an event.
        if not each.endswith((".interaction.previous_interaction_id", ".interaction.errors", *more))
    ]
    assert strange == []
    return event


def _unknown(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        if getattr(value, "is_unknown", False):
            yield path
            return
        for name in value.model_extra or {}:
            yield f"{path}.{name}"
        for name in type(value).model_fields:
            yield from _unknown(getattr(value, name, None), f"{path}.{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _unknown(each, f"{path}[{index}]")
    elif type(value).__name__ == "UnrecognizedStr" and not path.endswith(".model"):
        yield path


# Replies ------------------------------------------------------------------------------------------

USAGE = {
    "total_input_tokens": 30,
    "total_cached_tokens": 10,
    "total_output_tokens": 20,
    "total_thought_tokens": 5,
    "total_tool_use_tokens": 0,
    "total_tokens": 55,
}


def output(*content: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "model_output", "content": list(content)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def thought(value: str, signature: str = "c2VhbA==") -> dict[str, Any]:
    summary = {"summary": [text(value)]} if value else {}
    return {"type": "thought", "signature": signature, **summary}


def function_call(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function_call", "id": call_id, "name": name, "arguments": dict(arguments)}


def interaction(
    steps: Sequence[Mapping[str, Any]], status: str = "completed", **members: Any
) -> dict[str, Any]:
    """An interaction, as the API answers with it."""
    return {
        "id": "v1_abc",
        "object": "interaction",
        "status": status,
        "model": "gemini-3-flash-preview",
        "created": "2026-11-22T10:00:00Z",
        "updated": "2026-11-22T10:00:01Z",
        "steps": list(steps),
        "usage": USAGE,
        **members,
    }


def stream_events(whole: Mapping[str, Any], *, pieces: int = 3) -> list[dict[str, Any]]:
    """The events of a stream that leads to `whole`, as Google documents them; each text comes in
    `pieces`."""
    frame = {name: value for name, value in whole.items() if name != "steps"}
    begun = {name: frame[name] for name in ("id", "object", "model")} | {"status": "in_progress"}
    status = {"interaction_id": frame["id"], "status": "in_progress"}
    events = [
        {"interaction": begun, "event_type": "interaction.created"},
        {**status, "event_type": "interaction.status_update"},
    ]
    for index, step in enumerate(whole["steps"]):
        events.append({"index": index, "step": _begun(step), "event_type": "step.start"})
        events += [
            {"index": index, "delta": delta, "event_type": "step.delta"}
            for delta in _deltas(step, pieces)
        ]
        events.append({"index": index, "event_type": "step.stop"})
    return [*events, {"interaction": frame, "event_type": "interaction.completed"}]


def _begun(step: Mapping[str, Any]) -> dict[str, Any]:
    if step["type"] == "function_call":
        return {**step, "arguments": {}}
    return {name: step[name] for name in ("type", "id", "call_id") if name in step}


def _is_tools(step: Mapping[str, Any]) -> bool:
    """Whether a step is of a tool that a server has run; all of it is in one delta."""
    kind = step["type"]
    return kind not in ("function_call", "function_result") and kind.endswith(("_call", "_result"))


def _deltas(step: Mapping[str, Any], pieces: int) -> Iterator[dict[str, Any]]:
    if step["type"] == "function_call":
        written = json.dumps(step["arguments"])
        for piece in _cut(written, pieces) if step["arguments"] else ():
            yield {"type": "arguments_delta", "arguments": piece}
    if _is_tools(step):
        yield {name: step[name] for name in step if name not in ("id", "call_id")}
        return
    for content in step.get("summary", ()):
        for piece in _cut(content["text"], pieces):
            yield {"type": "thought_summary", "content": text(piece)}
    if "signature" in step:
        yield {"type": "thought_signature", "signature": step["signature"]}
    for content in step.get("content", ()):
        if content["type"] == "text":
            yield from (text(piece) for piece in _cut(content["text"], pieces))
            if "annotations" in content:
                yield {"type": "text_annotation_delta", "annotations": content["annotations"]}
        else:
            yield dict(content)


def _cut(value: str, pieces: int) -> list[str]:
    size = -(-len(value) // pieces)
    return [value[at : at + size] for at in range(0, len(value), size)]


def stream_bytes(events: Sequence[Mapping[str, Any]]) -> bytes:
    """The events as the API sends them."""
    sent = b"".join(
        b"event: %b\ndata: %b\n\n"
        % (event["event_type"].encode(), json.dumps(event, ensure_ascii=False).encode())
        for event in events
    )
    return sent + b"event: done\ndata: [DONE]\n\n"


def as_json(value: Mapping[str, Any]) -> bytes:
    """An answer's body."""
    return json.dumps(value).encode()
