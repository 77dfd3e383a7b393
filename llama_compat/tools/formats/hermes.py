"""Hermes, Qwen 2.5 and 3, SmolLM2 and others: `<tool_call>{"name": ..., "arguments": ...}`.

Sources: https://github.com/NousResearch/Hermes-Function-Calling and the chat templates of the Qwen
models, which also put several calls as an array between one pair of tags.
"""

from __future__ import annotations

from collections.abc import Sequence

from llama_compat.tools.formats.attempts import ScannedAttempt
from llama_compat.tools.formats.base import CallParser, Syntax
from llama_compat.tools.formats.json_calls import (
    open_call,
    read_json_calls,
    write_call,
    write_tools,
)
from llama_compat.types import AnyToolCall, ToolDefinition

_INSTRUCTIONS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


class Hermes:
    """A JSON object, or an array of them, between tags; text may stand before and behind."""

    name = "hermes"
    markers = ("<tool_call>", "</tool_call>")

    def render_tools(self, tools: Sequence[ToolDefinition]) -> str:
        """The tools between tags, one a line, and how to call them."""
        return _INSTRUCTIONS.format(tools="\n".join(write_tools(tools)))

    def render_calls(self, calls: Sequence[AnyToolCall]) -> str:
        """Each call between its own tags."""
        return "\n".join(
            f"<tool_call>\n{write_call(call, 'arguments')}\n</tool_call>" for call in calls
        )

    def render_response(self, tool_name: str, content: str) -> str:
        """The answer between tags."""
        return f"<tool_response>\n{content}\n</tool_response>"

    def call_opening(self, tool_name: str) -> str:
        """The tag and the object that begins."""
        return f"<tool_call>\n{open_call(tool_name, 'arguments')}"

    def call_frame(self, tool_name: str) -> tuple[str, str]:
        """The tag and the object, and what closes them."""
        return f"<tool_call>\n{open_call(tool_name, 'arguments')[:-1]}", "}\n</tool_call>"

    def parser(self, tools: Sequence[ToolDefinition]) -> CallParser:
        """A closing tag may be missing: some models end the reply instead."""
        syntax = Syntax(
            attempt=lambda opener: ScannedAttempt(read_json_calls),
            markers=("<tool_call>",),
            closers=("</tool_call>",),
        )
        return CallParser(syntax, tools)
