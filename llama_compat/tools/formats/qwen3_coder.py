"""Qwen3-Coder, Qwen 3.5 and others: `<tool_call><function=name><parameter=x>value</parameter>`.

Source: the chat templates of the Qwen3-Coder models. Only the tags are XML: nothing is escaped, and
a value is text or JSON, which the tool's schema tells. These models also write Hermes' JSON between
the tags, and leave `<tool_call>` out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from llama_compat.text.markers import held_back
from llama_compat.tools.calls import parse_json
from llama_compat.tools.formats.attempts import Head, Reader, ScannedAttempt
from llama_compat.tools.formats.base import CallAttempt, CallParser, Syntax, Verdict, WrittenCall
from llama_compat.tools.formats.json_calls import (
    open_call,
    read_json_calls,
    write_call,
    write_tools,
)
from llama_compat.tools.formats.pythonic import parse_literal
from llama_compat.tools.python_types import parameters_schema
from llama_compat.types import AnyToolCall, ToolCall, ToolDefinition

_INSTRUCTIONS = """\
# Tools

These functions may be called, each described as JSON:
<tools>
{tools}
</tools>

To call one, end the reply with this and nothing behind it:
<tool_call>
<function=function_name>
<parameter=parameter_name>
value, which may have several lines
</parameter>
</function>
</tool_call>"""

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"


class Qwen3Coder:
    """Functions and their parameters in tags; text may stand before them."""

    name = "qwen3_coder"
    markers = (_CALL, _CALL_END, _FUNCTION)

    def render_tools(self, tools: Sequence[ToolDefinition]) -> str:
        """The tools between tags, one a line, and how to call them."""
        return _INSTRUCTIONS.format(tools="\n".join(write_tools(tools)))

    def render_calls(self, calls: Sequence[AnyToolCall]) -> str:
        """Each call between its own tags."""
        return "\n".join(f"{_CALL}\n{_write_call(call)}\n{_CALL_END}" for call in calls)

    def render_response(self, tool_name: str, content: str) -> str:
        """The answer between tags."""
        return f"<tool_response>\n{content}\n</tool_response>"

    def call_opening(self, tool_name: str) -> str:
        """As Hermes': these models write it too, and its arguments are JSON."""
        return f"{_CALL}\n{open_call(tool_name, 'arguments')}"

    def call_frame(self, tool_name: str) -> tuple[str, str]:
        """As Hermes'."""
        return f"{_CALL}\n{open_call(tool_name, 'arguments')[:-1]}", f"}}\n{_CALL_END}"

    def parser(self, tools: Sequence[ToolDefinition]) -> CallParser:
        """Values are read by the types that the tools' schemas say."""
        offered = {tool.tool_name: tool for tool in tools}
        read = partial(_read_functions, tools=offered)

        def attempt(opener: str) -> CallAttempt:
            return _TaggedCall(read) if opener == _CALL else _BareFunction(read, offered)

        syntax = Syntax(attempt=attempt, markers=(_CALL, _FUNCTION), closers=(_CALL_END,))
        return CallParser(syntax, tools)


class _TaggedCall:
    """What follows `<tool_call>`: functions, or JSON."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._chosen: CallAttempt | None = None

    def feed(self, text: str) -> Verdict | None:
        if self._chosen is None:
            begin = text.lstrip()[:1]
            if not begin:
                return None
            self._chosen = (
                ScannedAttempt(read_json_calls) if begin in "{[" else _Functions(self._read)
            )
        return self._chosen.feed(text)

    def end(self) -> Verdict:
        return self._chosen.end() if self._chosen else Verdict(None, "")


class _Functions:
    """Reads to the `</tool_call>` that stands behind a function or a parameter.

    One that stands elsewhere is part of a value.
    """

    closer = _CALL_END
    closes_behind: tuple[str, ...] = (_FUNCTION_END, _PARAMETER_END)

    def __init__(self, read: Reader) -> None:
        self._read = read
        begun = "|".join(_FUNCTION[:length] for length in range(1, len(_FUNCTION)))
        self._head = Head(rf"\s*(?:{begun}|{_FUNCTION}[^<>\n]*>?)?", rf"\s*{_FUNCTION}[^<>\n]+>")
        self._pieces: list[str] = []
        self._pending = ""
        self._tail = ""

    def feed(self, text: str) -> Verdict | None:
        if self._head.match is None:
            unviable = self._head.feed(text)
            if unviable is not None:
                return Verdict(None, text[unviable:])
        window = self._pending + text
        before = len(self._pending)
        at = 0
        while (found := window.find(self.closer, at)) >= 0:
            end = found + len(self.closer)
            self._note(window[at:found])
            if self._tail.rstrip().endswith(self.closes_behind):
                self._pieces.append(text[: end - before])
                return Verdict(self._read("".join(self._pieces)), text[end - before :])
            self._note(self.closer)
            at = end
        known = len(window) - held_back(window[at:], [self.closer])
        self._note(window[at:known])
        self._pending = window[known:]
        self._pieces.append(text)
        return None

    def end(self) -> Verdict:
        """Without its closing tag a call is one if its function is complete."""
        text = "".join(self._pieces)
        return Verdict(self._read(text) if text.rstrip().endswith(_FUNCTION_END) else None, "")

    def _note(self, text: str) -> None:
        # Blanks are as good as one, so that the tail is the same however the text is cut.
        self._tail = re.sub(r"\s+", " ", self._tail + text)[-len(_PARAMETER_END) - 1 :]


class _BareFunction(_Functions):
    """What follows a `<function=` without `<tool_call>`: the rest of one offered function."""

    closer = _FUNCTION_END
    closes_behind = (_PARAMETER_END, _FUNCTION_END, ">")

    def __init__(self, read: Reader, offered: Mapping[str, ToolDefinition]) -> None:
        super().__init__(lambda text: read(_FUNCTION + text))
        names = "|".join(map(re.escape, offered))
        self._head = Head(r"[^<>\n]+>?", rf"(?:{names})>")

    def end(self) -> Verdict:
        return Verdict(None, "")


_NEXT_FUNCTION = re.compile(rf"{_FUNCTION_END}\s*{_FUNCTION}")
_NEXT_PARAMETER = re.compile(rf"{_PARAMETER_END}\s*{_PARAMETER}")


def _read_functions(text: str, tools: Mapping[str, ToolDefinition]) -> list[WrittenCall] | None:
    text = text.strip().removesuffix(_CALL_END).rstrip().removesuffix(_FUNCTION_END)
    if not text.startswith(_FUNCTION):
        return None
    calls = []
    for function in _NEXT_FUNCTION.split(text.removeprefix(_FUNCTION)):
        call = _read_function(function, tools)
        if call is None:
            return None
        calls.append(call)
    return calls


def _read_function(text: str, tools: Mapping[str, ToolDefinition]) -> WrittenCall | None:
    name, closing, body = text.partition(">")
    tool = tools.get(name.strip())
    body = body.strip()
    if not closing or tool is None or not (not body or body.startswith(_PARAMETER)):
        return None
    schemas = _schemas(tool)
    members: dict[str, str] = {}
    body = body.removesuffix(_PARAMETER_END).removeprefix(_PARAMETER)
    for parameter in _NEXT_PARAMETER.split(body) if body else ():
        parameter_name, closing, value = parameter.partition(">")
        if not closing or "\n" in parameter_name:
            return None
        value = value.removeprefix("\n").removesuffix("\n")
        members[parameter_name] = _json_value(value, schemas.get(parameter_name))
    arguments = ", ".join(
        f"{json.dumps(member, ensure_ascii=False)}: {value}" for member, value in members.items()
    )
    return WrittenCall(tool.tool_name, f"{{{arguments}}}")


def _schemas(tool: ToolDefinition) -> Mapping[str, Any]:
    try:
        properties = parameters_schema(tool.parameters or {}).get("properties")
    except ValueError:
        properties = None
    return properties if isinstance(properties, Mapping) else {}


def _json_value(text: str, schema: Any) -> str:
    """The JSON of a value, which is text where the schema wants text, or where it is nothing else.

    Where the schema says no type, what is JSON is JSON.
    """
    types = set(_types(schema))
    as_text = json.dumps(text, ensure_ascii=False)
    if types == {"string"}:
        return as_text
    value = text.strip()
    try:
        parsed = parse_json(value)
    except ValueError:
        if not types or "string" in types:
            return as_text
        try:
            return json.dumps(parse_literal(value), ensure_ascii=False, allow_nan=False)
        except ValueError:
            return as_text
    if isinstance(parsed, str) or ("string" in types and not _is_one_of(parsed, types)):
        return as_text
    return value


def _types(schema: Any) -> Iterator[str]:
    """The types that a schema names, itself or in its alternatives."""
    open_schemas = [schema]
    while open_schemas:
        schema = open_schemas.pop()
        if not isinstance(schema, Mapping):
            continue
        kinds = schema.get("type")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if isinstance(kind, str):
                yield kind
        values = schema.get("enum")
        if kinds is None and isinstance(values, list):
            yield from {"string" for value in values if isinstance(value, str)}
        for member in ("anyOf", "oneOf"):
            alternatives = schema.get(member)
            if isinstance(alternatives, list):
                open_schemas += alternatives


_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": (int, float),
    "object": dict,
}


def _is_one_of(value: Any, types: set[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    return any(kind in _PYTHON_TYPES and isinstance(value, _PYTHON_TYPES[kind]) for kind in types)


def _write_call(call: AnyToolCall) -> str:
    if not isinstance(call, ToolCall) or not _can_be_tagged(call):
        return write_call(call, "arguments")
    lines = [f"{_FUNCTION}{call.tool_name}>"]
    for name, value in call.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [f"{_PARAMETER}{name}>", text, _PARAMETER_END]
    return "\n".join([*lines, _FUNCTION_END])


def _can_be_tagged(call: ToolCall) -> bool:
    names = [call.tool_name, *call.arguments]
    if any(name.strip() != name or not name or re.search(r"[<>\n]", name) for name in names):
        return False
    return not re.search(f"{_PARAMETER_END}|{_FUNCTION_END}", call.arguments_json)
