"""What the official Anthropic SDK thinks of requests, and replies made by its own types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from anthropic import types
from pydantic import BaseModel, TypeAdapter

# The API takes these still, but for old models: the SDK has them sent in `extra_body`.
# https://github.com/anthropics/anthropic-sdk-python/blob/main/MIGRATION.md
SAMPLING = {"temperature", "top_p", "top_k"}

_REQUEST: TypeAdapter[Any] = TypeAdapter(types.MessageCreateParams)

USAGE = types.Usage(
    input_tokens=15,
    output_tokens=25,
    cache_read_input_tokens=10,
    cache_creation_input_tokens=5,
    output_tokens_details=types.OutputTokensDetails(thinking_tokens=5),
)


def check_request(body: dict[str, Any]) -> None:
    """Assert that the SDK's parameter types take `body`, and know every member of it."""
    known = {name: value for name, value in body.items() if name not in SAMPLING}
    assert listed(_REQUEST.validate_python(known)) == known


def listed(value: Any) -> Any:
    """`value` with the iterables that pydantic checks as they are read as lists."""
    if isinstance(value, dict):
        return {name: listed(member) for name, member in value.items()}
    if isinstance(value, Iterator | list | tuple):
        return [listed(member) for member in value]
    return value


def dump(model: BaseModel) -> dict[str, Any]:
    """The JSON object of one of the SDK's models."""
    return model.model_dump(mode="json")


def message(
    content: Sequence[Any],
    stop_reason: types.StopReason | None = "end_turn",
    usage: types.Usage = USAGE,
    **members: Any,
) -> types.Message:
    """A reply with these content blocks."""
    return types.Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="claude",
        content=list(content),
        stop_reason=stop_reason,
        usage=usage,
        **members,
    )


def text(value: str) -> types.TextBlock:
    return types.TextBlock(type="text", text=value)


def thinking(value: str, signature: str = "c2VhbGVk") -> types.ThinkingBlock:
    return types.ThinkingBlock(type="thinking", thinking=value, signature=signature)


def tool_use(call_id: str, name: str, given: dict[str, Any]) -> types.ToolUseBlock:
    return types.ToolUseBlock(type="tool_use", id=call_id, name=name, input=given)


def stream_events(
    whole: types.Message, *, pieces: int = 3, arguments: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The events of a stream whose message is `whole`.

    Args:
        whole: the message.
        pieces: how many deltas a block comes in.
        arguments: the text that a call's arguments come as, by the call's id.
    """
    started = whole.model_copy(
        update={
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "usage": whole.usage.model_copy(
                update={"output_tokens": 1, "output_tokens_details": None}
            ),
        }
    )
    events: list[BaseModel] = [types.RawMessageStartEvent(type="message_start", message=started)]
    for index, block in enumerate(whole.content):
        events += _block_events(index, block, pieces, arguments or {})
    events.append(
        types.RawMessageDeltaEvent(
            type="message_delta",
            delta={  # type: ignore[arg-type]
                "stop_reason": whole.stop_reason,
                "stop_sequence": whole.stop_sequence,
                "stop_details": whole.stop_details,
            },
            usage=types.MessageDeltaUsage(
                output_tokens=whole.usage.output_tokens,
                output_tokens_details=whole.usage.output_tokens_details,
            ),
        )
    )
    events.append(types.RawMessageStopEvent(type="message_stop"))
    dumped = [dump(event) for event in events]
    return [dumped[0], {"type": "ping"}, *dumped[1:]]


def _block_events(
    index: int, block: types.ContentBlock, pieces: int, arguments: dict[str, str]
) -> Iterator[BaseModel]:
    empty: dict[str, Any] = {}
    deltas: list[dict[str, Any]] = []
    if isinstance(block, types.TextBlock):
        empty = {"text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in _cut(block.text, pieces)]
    elif isinstance(block, types.ThinkingBlock):
        empty = {"thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": piece} for piece in _cut(block.thinking, pieces)
        ]
        deltas.append({"type": "signature_delta", "signature": block.signature})
    elif isinstance(block, types.ToolUseBlock):
        empty = {"input": {}}
        whole = arguments.get(block.id, json.dumps(block.input) if block.input else "")
        deltas = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in ("", *_cut(whole, pieces))
        ]
    yield types.RawContentBlockStartEvent(
        type="content_block_start",
        index=index,
        content_block=block.model_copy(update=empty),  # type: ignore[arg-type]
    )
    for delta in deltas:
        yield types.RawContentBlockDeltaEvent(
            type="content_block_delta",
            index=index,
            delta=delta,  # type: ignore[arg-type]
        )
    yield types.RawContentBlockStopEvent(type="content_block_stop", index=index)


def _cut(value: str, pieces: int) -> list[str]:
    size = max(1, -(-len(value) // pieces))
    return [value[at : at + size] for at in range(0, len(value), size)]


def stream_bytes(events: Sequence[dict[str, Any]]) -> bytes:
    """The events as the API sends them."""
    return b"".join(
        b"event: %b\ndata: %b\n\n"
        % (event["type"].encode(), json.dumps(event, ensure_ascii=False).encode())
        for event in events
    )
