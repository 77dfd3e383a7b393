"""Mistral: `[TOOL_CALLS][{"name": ..., "arguments": ...}]`, newer `[TOOL_CALLS]name[ARGS]{...}`.

Source: the tokenizers of https://github.com/mistralai/mistral-common (version 3, 7, 11 and 13). The
markers are special tokens; whoever turns tokens into text must not leave them out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from llama_compat.tools.calls import parse_tool_call
from llama_compat.tools.formats.attempts import Head, ScannedAttempt
from llama_compat.tools.formats.base import CallParser, Syntax, Verdict, WrittenCall
from llama_compat.tools.formats.json_calls import (
    open_call,
    read_json_calls,
    write_call,
    write_tools,
)
from llama_compat.types import AnyToolCall, ToolCall, ToolDefinition

_MARKER = "[TOOL_CALLS]"
_NAME = r"[A-Za-z_][\w.\-]*"


class Mistral:
    """Calls come after a marker: all in one array, or each by its name with a marker of its own."""

    name = "mistral"
    markers = (_MARKER, "[ARGS]", "[CALL_ID]")

    def render_tools(self, tools: Sequence[ToolDefinition]) -> str:
        """The tools between markers."""
        return f"[AVAILABLE_TOOLS][{', '.join(write_tools(tools))}][/AVAILABLE_TOOLS]"

    def render_calls(self, calls: Sequence[AnyToolCall]) -> str:
        """One array of all calls."""
        return f"{_MARKER}[{', '.join(write_call(call, 'arguments') for call in calls)}]"

    def render_response(self, tool_name: str, content: str) -> str:
        """The answer between markers."""
        answer = json.dumps({"content": content}, ensure_ascii=False)
        return f"[TOOL_RESULTS]{answer}[/TOOL_RESULTS]"

    def call_opening(self, tool_name: str) -> str:
        """The marker and the array that begins."""
        return f"{_MARKER}[{open_call(tool_name, 'arguments')}"

    def call_frame(self, tool_name: str) -> tuple[str, str]:
        """The marker and an array of one."""
        return f"{_MARKER}[{open_call(tool_name, 'arguments')[:-1]}", "}]"

    def parser(self, tools: Sequence[ToolDefinition]) -> CallParser:
        """Both ways of writing calls are understood."""
        return CallParser(Syntax(attempt=lambda opener: _Attempt(), markers=(_MARKER,)), tools)


class _Attempt:
    """An array of calls, or a name and its arguments."""

    def __init__(self) -> None:
        self._head = Head(
            viable=rf"\s*(?:\[|{_NAME}(?:\[[A-Z_]{{0,7}}(?:\][\w\-]*)?){{0,2}}\s*\{{?)?",
            complete=rf"\s*(?:\[|(?P<name>{_NAME}?)(?:\[CALL_ID\](?P<id>[\w\-]+))?(?:\[ARGS\])?\s*\{{)",
        )
        self._json: ScannedAttempt | None = None

    def feed(self, text: str) -> Verdict | None:
        if self._json is not None:
            return self._json.feed(text)
        before = len(self._head.text)
        unviable = self._head.feed(text)
        if unviable is not None:
            return Verdict(None, text[unviable:])
        if self._head.match is None:
            return None
        named = self._head.match["name"] is not None
        self._json = ScannedAttempt(self._read_arguments if named else read_json_calls)
        # The bracket that completes the head is also the first of the JSON.
        return self._json.feed(text[len(self._head.text) - before - 1 :])

    def end(self) -> Verdict:
        return Verdict(None, "")

    def _read_arguments(self, text: str) -> list[WrittenCall] | None:
        assert self._head.match is not None
        name, call_id = self._head.match["name"], self._head.match["id"]
        if not isinstance(parse_tool_call("", name, text), ToolCall):
            return None
        return [WrittenCall(name, text, call_id or "")]
