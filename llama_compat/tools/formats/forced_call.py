"""The call in a reply that was made to begin with one."""

from __future__ import annotations

from collections.abc import Mapping

from llama_compat.tools.calls import ToolCallAssembler
from llama_compat.types import Delta, TextDelta
from llama_compat.wire.json_scanner import JSONScanner


class ForcedCallParser:
    """Reads a reply that begins with the opening of a call, and is nothing but that call.

    The model is made to begin so, and free from the `{` of the arguments on. They are given as they
    come, up to the bracket that closes them; whatever the format has behind that is not waited for.
    Arguments that break off, or stop being JSON, are a call that failed.

    Args:
        openings: what the reply may begin with, for each tool that it may call: all of them end
            with `{`, and none is the beginning of another.

    Attributes:
        called: whether a tool has been called.
    """

    def __init__(self, openings: Mapping[str, str]) -> None:
        self.called = False
        self._openings = {name: opening.lstrip() for name, opening in openings.items()}
        self._head = ""
        self._ended = False
        self._assembler = ToolCallAssembler()
        self._arguments = JSONScanner()

    def push(self, text: str) -> list[Delta]:
        """More of the reply's text; nothing once the call is complete."""
        if self._ended:
            return []
        if self.called:
            return self._push_arguments("", text)
        self._head = (self._head + text).lstrip()
        for name, opening in self._openings.items():
            if self._head.startswith(opening):
                return self._push_arguments(name, self._head[len(opening) - 1 :])
        return []

    def flush(self) -> list[Delta]:
        """The reply has ended."""
        if self._ended:
            return []
        self._ended = True
        if self.called:
            return [*self._assembler.finish(cut=True)]
        tools = [name for name, text in self._openings.items() if text.startswith(self._head)]
        if len(tools) != 1:
            # Too little to know which tool, or a model that was not made to begin so.
            return [TextDelta(self._head)] if self._head and not tools else []
        self.called = True
        return [
            *self._assembler.push(index=0, tool_name=tools[0]),
            *self._assembler.finish(cut=True),
        ]

    def _push_arguments(self, tool_name: str, text: str) -> list[Delta]:
        self.called = True
        end = self._arguments.feed(text)
        deltas = self._assembler.push(index=0, tool_name=tool_name, arguments=text[:end])
        if end is None:
            return [*deltas]
        self._ended = True
        return [*deltas, *self._assembler.end(0)]
