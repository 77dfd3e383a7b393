"""A model's text as the deltas of a reply: reasoning, text and tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llama_compat.text.reasoning import ReasoningParser, opens_reasoning
from llama_compat.tools.formats.base import TextParser, ToolFormat
from llama_compat.types import Delta, TextDelta, ToolCallDelta, ToolDefinition


def reply_parser(
    tool_format: ToolFormat | None,
    tools: Sequence[ToolDefinition],
    *,
    prompt: str = "",
) -> ReplyParser:
    """A parser for one reply.

    Args:
        tool_format: how the model writes calls, None if that is not known: all of it is text then.
        tools: those that the request offers; with none, or a `tool_choice` of `none`, pass none.
        prompt: as it was rendered; it may end inside the reasoning.
    """
    return ReplyParser(
        reasoning=ReasoningParser(opened=opens_reasoning(prompt)),
        calls=tool_format.parser(tools) if tool_format and tools else None,
    )


class ReplyParser:
    """Tells reasoning and tool calls from the rest of the text, in that order.

    A call inside the reasoning is only thought about and stays reasoning.

    Attributes:
        called: whether a tool has been called.
    """

    def __init__(self, reasoning: TextParser, calls: TextParser | None) -> None:
        self.called = False
        self._reasoning = reasoning
        self._calls = calls

    def push(self, text: str) -> list[Delta]:
        """More of the reply's text."""
        return self._find_calls(self._reasoning.push(text))

    def flush(self) -> list[Delta]:
        """The reply has ended."""
        deltas = self._find_calls(self._reasoning.flush())
        return [*deltas, *self._noted(self._calls.flush())] if self._calls else deltas

    def _find_calls(self, deltas: Iterable[Delta]) -> list[Delta]:
        if self._calls is None:
            return list(deltas)
        found: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, TextDelta):
                found += self._noted(self._calls.push(delta.text))
            else:
                found.append(delta)
        return found

    def _noted(self, deltas: list[Delta]) -> list[Delta]:
        self.called = self.called or any(isinstance(delta, ToolCallDelta) for delta in deltas)
        return deltas
