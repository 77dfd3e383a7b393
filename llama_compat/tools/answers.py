"""Which call a tool's answer is to, on wires where answers need not name one, and which tool's."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from llama_compat.errors import invalid_parameter
from llama_compat.tools.calls import new_call_id
from llama_compat.types import ToolResponseMessage


class UnansweredCalls:
    """The calls of a conversation that wait for their answers; both come in the order of the talk.

    Answers to calls of one tool are in the order of the calls.
    """

    def __init__(self) -> None:
        self._waiting: set[str] = set()
        self._order: deque[str] = deque()
        self._of_tool: dict[str, deque[str]] = {}

    def add(self, call_id: str, tool_name: str) -> None:
        """The model makes a call."""
        self._waiting.add(call_id)
        self._order.append(call_id)
        self._of_tool.setdefault(tool_name, deque()).append(call_id)

    def answer(self, call_id: str | None, tool_name: str | None) -> str:
        """The id of the call that is answered, by its id, or else by its tool, or else in turn.

        An answer to no call at all gets an id of its own.
        """
        if not call_id:
            call_id = self._next(
                self._of_tool.get(tool_name, deque()) if tool_name else self._order
            )
        self._waiting.discard(call_id)
        return call_id

    def _next(self, calls: deque[str]) -> str:
        while calls:
            call_id = calls.popleft()
            if call_id in self._waiting:
                return call_id
        return new_call_id()


def tool_answered(message: ToolResponseMessage, tool_names: Mapping[str, str], path: str) -> str:
    """The name of the tool whose answer `message` is, for wires where answers have it.

    Args:
        message: it.
        tool_names: of the calls before it, by their ids.
        path: where it stands in the request.

    Raises:
        APIError: 400; it answers none of them.
    """
    name = tool_names.get(message.call_id)
    if name is None:
        raise invalid_parameter(
            f"{path}.tool_call_id",
            f"'{path}' answers the tool call '{message.call_id}', which no assistant message"
            " before it makes.",
        )
    return name
