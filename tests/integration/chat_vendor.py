"""What a vendor that speaks OpenAI answers, for tests of clients that speak something else."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

from tests.integration.native_vendor import Answer, NativeVendor

USAGE = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}


def will_say(
    vendor: NativeVendor,
    text: str = "",
    *,
    thoughts: str = "",
    calls: Sequence[tuple[str, dict[str, Any]]] = (),
    logprobs: Any = None,
    after: threading.Event | None = None,
    status: int = 200,
) -> None:
    """Answer from now on with this chat completion, streamed or whole; `after` as in `Answer`."""
    reason = "tool_calls" if calls else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if thoughts:
        message["reasoning_content"] = thoughts
    if calls:
        message["tool_calls"] = [_call(index, *call) for index, call in enumerate(calls)]
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": reason}
    whole = {"id": "c1", "object": "chat.completion", "created": 1, "model": "own"}
    deltas: list[dict[str, Any]] = [{"reasoning_content": piece} for piece in _cut(thoughts)]
    deltas += [{"content": piece} for piece in _cut(text)]
    deltas += [{"tool_calls": [_call(index, *call)]} for index, call in enumerate(calls)]
    chunks = [_chunk(delta, None, logprobs) for delta in deltas] + [_chunk({}, reason)]
    chunks.append({**_chunk({}, None), "choices": [], "usage": USAGE})
    events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    vendor.will_answer(
        Answer([json.dumps({**whole, "choices": [choice], "usage": USAGE}).encode()]),
        streamed=Answer(
            [*events, b"data: [DONE]\n\n"],
            status=status,
            content_type="text/event-stream",
            after=after,
        ),
    )


def will_break_off(vendor: NativeVendor, *, hold: bool = False) -> None:
    """Begin a stream from now on, and break it off, or hold it."""
    begun = b"data: " + json.dumps(_chunk({"content": "It is"}, None)).encode() + b"\n\n"
    answer = Answer([begun], content_type="text/event-stream", break_off=not hold, hold=hold)
    vendor.will_answer(answer)


def _cut(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def _call(index: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"index": index, "id": f"call_{index}", "type": "function", "function": function}


def _chunk(delta: dict[str, Any], reason: str | None, logprobs: Any = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "own",
        "choices": [choice],
    }
