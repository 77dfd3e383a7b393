"""What the official OpenAI SDK thinks of responses and of their streams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent, response_create_params
from pydantic import ConfigDict, TypeAdapter, with_config

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

_REQUEST: TypeAdapter[Any] = TypeAdapter(
    with_config(ConfigDict(extra="forbid"))(response_create_params.ResponseCreateParamsStreaming)
)

EVERY_KEY = frozenset(
    [
        "id",
        "object",
        "created_at",
        "completed_at",
        "status",
        "incomplete_details",
        "model",
        "previous_response_id",
        "instructions",
        "output",
        "error",
        "tools",
        "tool_choice",
        "truncation",
        "parallel_tool_calls",
        "text",
        "top_p",
        "temperature",
        "presence_penalty",
        "frequency_penalty",
        "top_logprobs",
        "reasoning",
        "usage",
        "max_output_tokens",
        "max_tool_calls",
        "store",
        "background",
        "service_tier",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
    ]
)
"""What the specification of Open Responses wants in every response object."""

_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})

DELTAS = {
    "response.output_text.delta": ("response.output_text.done", "text"),
    "response.refusal.delta": ("response.refusal.done", "refusal"),
    "response.reasoning_text.delta": ("response.reasoning_text.done", "text"),
    "response.reasoning_summary_text.delta": ("response.reasoning_summary_text.done", "text"),
    "response.function_call_arguments.delta": (
        "response.function_call_arguments.done",
        "arguments",
    ),
    "response.custom_tool_call_input.delta": ("response.custom_tool_call_input.done", "input"),
}
"""Which event, and which member of it, says again what deltas of a type have brought."""


def parse_stream(stream: bytes) -> list[dict[str, Any]]:
    """The events of a whole stream, whose names have to be their types, up to `[DONE]`."""
    *blocks, done, rest = stream.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [_parse_event(block) for block in blocks]


def _parse_event(block: bytes) -> dict[str, Any]:
    name, data = block.split(b"\n")
    event = json.loads(data.removeprefix(b"data: "))
    assert isinstance(event, dict)
    assert name == b"event: " + event["type"].encode()
    return event


def check_request(body: dict[str, Any]) -> None:
    """Assert that a request, whole or for a stream, has nothing in it but what the SDK's types
    know."""
    _REQUEST.validate_python({**body, "stream": True})


def check_response(response: dict[str, Any]) -> None:
    """Assert that every key is there, and that the SDK's type takes it."""
    assert response.keys() >= EVERY_KEY
    Response.model_validate(response)


def check_events(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Assert that a whole stream has the order that it should; its last response object."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert [kind for kind in kinds if kind in _LAST] == kinds[-1:]
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(_EVENT.validate_python(event))
    _check_items(events)
    response: dict[str, Any] = events[-1]["response"]
    check_response(response)
    if kinds[-1] != "response.failed":
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert sorted(done, key=lambda item: str(item["id"])) == sorted(
            response["output"], key=lambda item: str(item["id"])
        )
    return response


def _check_items(events: Sequence[dict[str, Any]]) -> None:
    open_items: dict[int, str] = {}
    open_parts: set[tuple[int, int]] = set()
    said: dict[tuple[Any, ...], str] = {}
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] not in open_items
            open_items[event["output_index"]] = event["item"]["id"]
            continue
        if "output_index" not in event:
            continue
        assert (
            event.get("item_id", event.get("item", {}).get("id"))
            == open_items[event["output_index"]]
        )
        place = (event["output_index"], event.get("content_index", event.get("summary_index")))
        if kind in ("response.content_part.added", "response.reasoning_summary_part.added"):
            open_parts.add(place)
        elif kind in ("response.content_part.done", "response.reasoning_summary_part.done"):
            open_parts.remove(place)
        elif kind in DELTAS:
            assert place in open_parts or place[1] is None
            done, _ = DELTAS[kind]
            said[(done, *place)] = said.get((done, *place), "") + event["delta"]
        elif kind == "response.output_item.done":
            assert not [part for part in open_parts if part[0] == place[0]]
            open_items[event["output_index"]] = "done"
        else:
            _, member = next(value for value in DELTAS.values() if value[0] == kind)
            assert said.get((kind, *place), "") == event[member]
