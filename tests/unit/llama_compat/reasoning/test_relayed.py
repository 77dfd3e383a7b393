"""Replies that go by: what was thought in them is kept before the client knows of their end."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from llama_compat.dialects.openai.chat.turns import REPLIES, TURNS
from llama_compat.exchange import Reply
from llama_compat.reasoning.memory import ReasoningMemory
from llama_compat.reasoning.recollection import ReasoningRule, Recollection, TurnPlace
from llama_compat.reasoning.relayed import watched
from llama_compat.types import ToolCall

CALL = ToolCall("call_1", "get_weather", {"city": "Bern"}, '{"city": "Bern"}')
FRAGMENT = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'},
}


def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    body = {"object": "chat.completion.chunk", "choices": [choice]}
    return b"data: %b\n\n" % json.dumps(body).encode()


THOUGHT = chunk({"role": "assistant", "reasoning_content": "Hm."})
CALLED = chunk({"tool_calls": [FRAGMENT]})
END = chunk({}, "tool_calls")


@pytest.fixture
def recollection() -> Recollection:
    rule = ReasoningRule("deepseek", wanted=True)
    return Recollection(ReasoningMemory(10, 1 << 20, 60), "me", rule)


def kept(recollection: Recollection) -> str | None:
    turn = recollection.recall(TurnPlace(), [CALL]).lost
    return None if turn is None else turn.text


async def streamed(first: bytes, *pieces: bytes) -> Reply:
    async def body() -> AsyncGenerator[bytes, None]:
        yield b""
        for piece in pieces:
            yield piece

    began = body()
    await anext(began)
    return Reply(began, first)


async def test_it_is_kept_before_the_end_is_told(recollection: Recollection) -> None:
    came = await streamed(THOUGHT, CALLED, END)
    reply = await watched(came, TURNS, REPLIES.said, recollection, TurnPlace())
    assert reply.first == THOUGHT
    assert not isinstance(reply.body, bytes)
    assert await anext(reply.body) == CALLED
    assert kept(recollection) is None
    assert await anext(reply.body) == END
    assert kept(recollection) == "Hm."
    await reply.aclose()


async def test_a_stream_may_be_there_at_once(recollection: Recollection) -> None:
    came = await streamed(THOUGHT + CALLED + END)
    reply = await watched(came, TURNS, REPLIES.said, recollection, TurnPlace())
    assert kept(recollection) == "Hm."
    await reply.aclose()


async def test_one_that_broke_off_is_not_kept(recollection: Recollection) -> None:
    came = await streamed(THOUGHT, CALLED)
    reply = await watched(came, TURNS, REPLIES.said, recollection, TurnPlace())
    assert not isinstance(reply.body, bytes)
    async for _ in reply.body:
        pass
    assert kept(recollection) is None


async def test_closing_it_closes_what_it_reads(recollection: Recollection) -> None:
    closed = []

    async def body() -> AsyncGenerator[bytes, None]:
        try:
            yield b""
            yield CALLED
        finally:
            closed.append(True)

    began = body()
    await anext(began)
    reply = await watched(Reply(began, THOUGHT), TURNS, REPLIES.said, recollection, TurnPlace())
    await reply.aclose()
    assert closed == [True]


@pytest.mark.parametrize("body", [b'{"tool_calls": 7}', b'{"choices": [{"tool_calls"'])
async def test_what_cant_be_read_goes_by(recollection: Recollection, body: bytes) -> None:
    reply = await watched(Reply(body), TURNS, REPLIES.said, recollection, TurnPlace())
    assert reply.body == body
    assert len(recollection.memory) == 0
