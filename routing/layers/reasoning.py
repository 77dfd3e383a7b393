"""Reasoning that has to come back: which requests have to do with it, and whose it is."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from msgspec import Raw
from msgspec.structs import replace

from llama_compat.exchange import Call, Reply
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
        if call is not None and call.operation.kind == "chat" and _has_tools(call):
            recollection = Recollection(self._memory, call.principal.id)
            request.call = replace(call, recollection=recollection)
        return self._next(request)


def _has_tools(call: Call) -> bool:
    return "tools" in call.fields or _mentions_calls(call.fields)


def _mentions_calls(fields: Mapping[str, Raw]) -> bool:
    for name in _CONVERSATIONS:
        if name in fields:
            said = bytes(fields[name])
            return any(mark in said for mark in _CALLS)
    return False
