"""Which requests have to do with reasoning that has to come back."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS
from llama_compat.exchange import Reply
from llama_compat.off_loop import LARGE_BYTES
from llama_compat.reasoning.memory import ReasoningMemory
from llama_compat.wire.json_fields import encode_json
from routing.layers import reasoning
from routing.layers.reasoning import ReasoningLayer
from routing.request import Request
from tests.unit.calls import call_of

CALLS = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


async def asked(body: dict[str, Any], operation: Operation = CHAT) -> Request:
    """The request as what is behind the layer gets it."""
    seen: list[Request] = []

    async def next(request: Request) -> Reply:
        seen.append(request)
        return Reply(b"{}")

    request = Request(operation, "r1")
    request.call = call_of(encode_json({"model": "m", **body}), operation)
    await ReasoningLayer(next, ReasoningMemory(10, 1 << 20, 60))(request)
    return seen[0]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function"}]},
        # The last step of an agent may bring no tools any more.
        {"messages": [{"role": "assistant", "tool_calls": CALLS}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]}]},
        {"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f"}}]}]},
        {"input": [{"type": "function_call", "call_id": "1"}]},
    ],
)
async def test_what_calls_tools_has_the_memory(body: dict[str, Any]) -> None:
    request = await asked(body)
    assert request.call is not None
    assert request.call.recollection is not None
    assert request.call.recollection.owner == request.call.principal.id


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        ({"messages": [{"role": "user", "content": "Hi"}]}, CHAT),
        ({"prompt": "Hi", "tools": []}, COMPLETIONS),
    ],
)
async def test_what_calls_none_is_left_as_it_is(body: dict[str, Any], operation: Operation) -> None:
    request = await asked(body, operation)
    assert request.call is not None
    assert request.call.recollection is None


@pytest.mark.parametrize("calls", [[], [{"role": "assistant", "tool_calls": CALLS}]])
async def test_a_large_conversation_is_looked_through_in_a_thread(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be 64 MB, which takes a tenth of a second in which nobody else is answered."""
    looked: list[bool] = []
    look = reasoning._mentions_calls

    def noted(fields: Mapping[str, Raw]) -> bool:
        looked.append(threading.current_thread() is threading.main_thread())
        return look(fields)

    monkeypatch.setattr(reasoning, "_mentions_calls", noted)
    request = await asked({"messages": [{"role": "user", "content": "x" * LARGE_BYTES}, *calls]})
    assert request.call is not None
    assert (request.call.recollection is not None) == bool(calls)
    assert looked == [False]
