"""Reasoning that has to come back: which requests have to do with it, and whose it is."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from msgspec import Raw
from msgspec.structs import replace

from llama_compat.exchange import Call, Reply
from llama_compat.off_loop import LARGE_BYTES, off_loop
from llama_compat.reasoning.memory import ReasoningMemory
from llama_compat.reasoning.recollection import Recollection
from routing.request import Handler, Request

_CONVERSATIONS = ("messages", "contents", "input")
"""What a request's conversation is called, in one API or another."""

_CALLS = (b'"tool_', b'"function')
"""What is in every conversation in which a tool was called, in one API or another."""


class ReasoningLayer:
    """Gives calls the memory that may call tools, or go on after one: what is thought in reply is
    kept there, and what a conversation has lost is put back, by whatever target answers.

    Args:
        next: answers requests.
        memory: what is kept, each for the key that asked.
    """

    def __init__(self, next: Handler, memory: ReasoningMemory) -> None:
        self._next = next
        self._memory = memory

    def __call__(self, request: Request) -> Awaitable[Reply]:
        """Answer a request.

        Raises:
            APIError: what the next layer raises.
        """
        call = request.call
        if call is None or call.operation.kind != "chat":
            return self._next(request)
        if "tools" not in call.fields and call.size > LARGE_BYTES:
            return self._look_and_answer(request, call)
        return self._answer(request, call, has_tools=_has_tools(call.fields))

    async def _look_and_answer(self, request: Request, call: Call) -> Reply:
        has_tools = await off_loop(call.size, _has_tools, call.fields)
        return await self._answer(request, call, has_tools=has_tools)

    def _answer(self, request: Request, call: Call, *, has_tools: bool) -> Awaitable[Reply]:
        if has_tools:
            recollection = Recollection(self._memory, call.principal.id)
            request.call = replace(call, recollection=recollection)
        return self._next(request)


def _has_tools(fields: Mapping[str, Raw]) -> bool:
    return "tools" in fields or _mentions_calls(fields)


def _mentions_calls(fields: Mapping[str, Raw]) -> bool:
    for name in _CONVERSATIONS:
        if name in fields:
            said = bytes(fields[name])
            return any(mark in said for mark in _CALLS)
    return False
