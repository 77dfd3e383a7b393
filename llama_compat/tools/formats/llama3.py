"""Llama 3.1 and later: JSON objects, and built-in tools and code behind `<|python_tag|>`.

Source: https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/. The marker is a special
token; whoever turns tokens into text must not leave it out.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence

from llama_compat.tools.formats.attempts import Head, Reader, RestAttempt, ScannedAttempt
from llama_compat.tools.formats.base import CallAttempt, CallParser, Syntax, WrittenCall
from llama_compat.tools.formats.json_calls import (
    open_call,
    read_json_calls,
    write_call,
    write_tools,
)
from llama_compat.tools.formats.pythonic import (
    ParameterNames,
    parameter_names,
    parse_python,
    read_python_call,
)
from llama_compat.types import AnyToolCall, ToolCall, ToolDefinition
from llama_compat.wire.json_scanner import JSONScanner

PYTHON_TAG = "<|python_tag|>"
BUILT_IN_TOOLS = ("brave_search", "wolfram_alpha", "photogen")
CODE_INTERPRETER = "code_interpreter"

_ENVIRONMENT = "Environment: ipython"
_INSTRUCTIONS = """\
Given the following functions, please respond with a JSON for a function call with its proper \
arguments that best answers the given prompt.

Respond in the format {{"name": function name, "parameters": dictionary of argument name and its \
value}}. Do not use variables.

{tools}"""


class Llama3JSON:
    """Calls are JSON objects, separated by semicolons, that begin a line or follow the tag."""

    name = "llama3_json"
    markers: tuple[str, ...] = (PYTHON_TAG,)

    def render_tools(self, tools: Sequence[ToolDefinition]) -> str:
        """The tools as JSON, and how to call them."""
        return _INSTRUCTIONS.format(tools="\n\n".join(write_tools(tools, indent=4)))

    def render_calls(self, calls: Sequence[AnyToolCall]) -> str:
        """The calls as JSON objects."""
        return "; ".join(write_call(call, "parameters") for call in calls)

    def render_response(self, tool_name: str, content: str) -> str:
        """The answer as JSON, as Llama's own template gives it."""
        return json.dumps({"output": content}, ensure_ascii=False)

    def call_opening(self, tool_name: str) -> str:
        """The object that begins; a built-in tool can be called so too."""
        return open_call(tool_name, "parameters")

    def call_frame(self, tool_name: str) -> tuple[str, str]:
        """One object."""
        return open_call(tool_name, "parameters")[:-1], "}"

    def parser(self, tools: Sequence[ToolDefinition]) -> CallParser:
        """An object that begins like a call is held back until it is known to be one or not."""
        return CallParser(_syntax(_read_json_sequence), tools)


class Llama3(Llama3JSON):
    """`Llama3JSON` and, behind the python tag, built-in tools and code.

    Built-in are `brave_search`, `wolfram_alpha` and `code_interpreter`, if they are offered: they
    are announced by name alone. `code_interpreter` gets its code in its only parameter, or in
    `code`.
    """

    name = "llama3"

    def render_tools(self, tools: Sequence[ToolDefinition]) -> str:
        """Built-in tools by their names, the others as JSON."""
        built_in = [tool.tool_name for tool in tools if tool.tool_name in BUILT_IN_TOOLS]
        others = [
            tool for tool in tools if tool.tool_name not in (*BUILT_IN_TOOLS, CODE_INTERPRETER)
        ]
        parts = []
        if len(others) < len(tools):
            named = f"\nTools: {', '.join(built_in)}" if built_in else ""
            parts.append(_ENVIRONMENT + named)
        if others:
            parts.append(super().render_tools(others))
        return "\n\n".join(parts)

    def render_calls(self, calls: Sequence[AnyToolCall]) -> str:
        """A single built-in call behind the tag, as the model writes it; all others as JSON."""
        match calls:
            case [ToolCall(tool_name=name, arguments=arguments)] if name in BUILT_IN_TOOLS:
                named = (f"{member}={_quoted(value)}" for member, value in arguments.items())
                return f"{PYTHON_TAG}{name}.call({', '.join(named)})"
            case [ToolCall(tool_name=name, arguments=arguments)] if name == CODE_INTERPRETER:
                code = list(arguments.values())
                if len(code) == 1 and isinstance(code[0], str):
                    return f"{PYTHON_TAG}{code[0]}"
        return super().render_calls(calls)

    def parser(self, tools: Sequence[ToolDefinition]) -> CallParser:
        """What follows the tag is held back to the end of the reply."""
        return CallParser(_syntax(_tagged_reader(tools)), tools)


def _syntax(read_tagged: Reader) -> Syntax:
    def attempt(opener: str) -> CallAttempt:
        return RestAttempt(read_tagged) if opener == PYTHON_TAG else _json_attempt()

    return Syntax(attempt=attempt, markers=(PYTHON_TAG,), brackets="{", closers=(";",))


def _json_attempt() -> ScannedAttempt:
    # A reply may be JSON without being a call: its first member tells early.
    known = "name|type|function|parameters|arguments"
    return ScannedAttempt(
        lambda text: read_json_calls(text, need_arguments=True),
        head=Head(rf'\{{\s*(?:"[a-z]{{0,10}}|"(?:{known})")?', rf'\{{\s*"(?:{known})"'),
    )


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _tagged_reader(tools: Sequence[ToolDefinition]) -> Reader:
    names = parameter_names(tools)

    def read(text: str) -> list[WrittenCall] | None:
        calls = _read_json_sequence(text) or _read_built_in(text, names)
        if calls is not None or CODE_INTERPRETER not in names or not text.strip():
            return calls
        parameters = names[CODE_INTERPRETER]
        parameter = parameters[0] if len(parameters) == 1 else "code"
        arguments = json.dumps({parameter: text.strip()}, ensure_ascii=False)
        return [WrittenCall(CODE_INTERPRETER, arguments)]

    return read


def _read_json_sequence(text: str) -> list[WrittenCall] | None:
    """Calls as JSON objects, separated by semicolons or blanks."""
    calls: list[WrittenCall] = []
    while text := text.lstrip("; \t\r\n"):
        scanner = JSONScanner()
        end = scanner.feed(text)
        found = read_json_calls(text[:end], need_arguments=True) if scanner.whole else None
        if found is None:
            return None
        calls += found
        text = text[end:]
    return calls or None


def _read_built_in(text: str, names: ParameterNames) -> list[WrittenCall] | None:
    """Calls of built-in tools, `brave_search.call(query="...")`."""
    calls: list[WrittenCall] = []
    for node in parse_python(text) or ():
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="call") as function):
                node.func = function.value
                call = read_python_call(node, names)
            case _:
                return None
        if call is None or name not in (*BUILT_IN_TOOLS, *names):
            return None
        calls.append(call)
    return calls or None
