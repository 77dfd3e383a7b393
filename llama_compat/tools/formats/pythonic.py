"""Llama 3.2, Llama 4 and others: a list of Python calls, `[f(x=1), g(y="a")]`.

Source: https://www.llama.com/docs/model-cards-and-prompt-formats/llama4/ ("zero-shot function
calling").
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from llama_compat.tools.formats.attempts import Head, ScannedAttempt
from llama_compat.tools.formats.base import CallParser, Syntax, WrittenCall
from llama_compat.tools.formats.json_calls import open_call, write_tools
from llama_compat.types import AnyToolCall, ToolCall, ToolDefinition

_INSTRUCTIONS = """\
You are an expert in composing functions. You are given a question and a set of possible functions.
Based on the question, you may need to make one or more function calls to achieve the purpose.
If you decide to invoke any of the functions, you MUST put it in the format of \
[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]
You SHOULD NOT include any other text in the response then.

Here is a list of functions in JSON format that you can invoke.

[
{tools}
]"""

ParameterNames = Mapping[str, Sequence[str]]
"""For each tool its parameters in their order, which gives arguments without a name theirs."""


class Pythonic:
    """A list of calls that begins a line; the arguments are Python literals."""

    name = "pythonic"
    markers: tuple[str, ...] = ()

    def render_tools(self, tools: Sequence[ToolDefinition]) -> str:
        """The tools as JSON, and how to call them."""
        return _INSTRUCTIONS.format(tools=",\n".join(write_tools(tools)))

    def render_calls(self, calls: Sequence[AnyToolCall]) -> str:
        """One list of all calls."""
        return f"[{', '.join(write_python_call(call) for call in calls)}]"

    def render_response(self, tool_name: str, content: str) -> str:
        """The answer with the name of its tool."""
        return f"{tool_name} returned:\n{content}"

    def call_opening(self, tool_name: str) -> str:
        """As JSON: these models write it too, and it can name any tool and take any argument."""
        return open_call(tool_name, "parameters")

    def call_frame(self, tool_name: str) -> tuple[str, str]:
        """A list of one call, whose arguments are a dictionary: JSON's words are understood."""
        return f"[{tool_name}(**", ")]"

    def parser(self, tools: Sequence[ToolDefinition]) -> CallParser:
        """Names with other characters than Python's can't be called in this format."""
        read = partial(_read_list, names=parameter_names(tools))

        def attempt(opener: str) -> ScannedAttempt:
            head = Head(r"\[\s*(?:[A-Za-z_][\w.]*\s*\(?)?", r"\[\s*[A-Za-z_][\w.]*\s*\(")
            return ScannedAttempt(read, scanner=PythonScanner(), head=head)

        return CallParser(Syntax(attempt=attempt, brackets="["), tools)


def parameter_names(tools: Iterable[ToolDefinition]) -> ParameterNames:
    """The `ParameterNames` of `tools`."""
    return {tool.tool_name: list((tool.parameters or {}).get("properties") or ()) for tool in tools}


def write_python_call(call: AnyToolCall) -> str:
    """A call as Python writes it; arguments that can't be parsed stay as they are."""
    if not isinstance(call, ToolCall):
        return f"{call.tool_name}({call.arguments_json})"
    if not all(_is_python_name(name) for name in call.arguments):
        return f"{call.tool_name}(**{call.arguments!r})"
    arguments = (f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.tool_name}({', '.join(arguments)})"


def _is_python_name(name: str) -> bool:
    # Python takes some letters for others: 'º' as a name is 'o'.
    same = unicodedata.normalize("NFKC", name) == name
    return same and name.isidentifier() and not keyword.iskeyword(name)


def parse_python(text: str) -> list[ast.expr] | None:
    """The expressions that `text` consists of; None if it is anything else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            statements = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    expressions = [statement.value for statement in statements if isinstance(statement, ast.Expr)]
    return expressions if len(expressions) == len(statements) else None


def read_python_call(node: ast.expr, names: ParameterNames) -> WrittenCall | None:
    """The call that an expression is; None if it is none, or its arguments are no literals."""
    if not isinstance(node, ast.Call):
        return None
    try:
        tool_name = ast.unparse(node.func)
        parameters = names.get(tool_name, ())
        if len(node.args) > len(parameters):
            return None
        arguments = {
            name: _literal(value) for name, value in zip(parameters, node.args, strict=False)
        }
        for argument in node.keywords:
            value = _literal(argument.value)
            arguments.update({argument.arg: value} if argument.arg is not None else value)
        return WrittenCall(tool_name, json.dumps(arguments, ensure_ascii=False, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return None


def _read_list(text: str, names: ParameterNames) -> list[WrittenCall] | None:
    match parse_python(text):
        case [ast.List(elts=elements)]:
            calls = [read_python_call(element, names) for element in elements]
            found = [call for call in calls if call is not None]
            return found if len(found) == len(calls) else None
    return None


def parse_literal(text: str) -> Any:
    """The value of a Python literal, as JSON could have it.

    Raises:
        ValueError: it is none.
    """
    match parse_python(text):
        case [expression]:
            try:
                return _literal(expression)
            except RecursionError:
                raise ValueError("nested too deeply") from None
    raise ValueError(f"{text[:60]!r} is not one Python literal")


_JSON_WORDS = {"true": True, "false": False, "null": None}


def _literal(node: ast.expr) -> Any:
    """The value of a literal; JSON's words for Python's are understood.

    Raises:
        ValueError: it is none, or one that JSON does not have.
    """
    match node:
        case ast.Constant(value=str() | bool() | int() | float() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=word) if word in _JSON_WORDS:
            return _JSON_WORDS[word]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
    raise ValueError(f"{ast.unparse(node)!r} is not a literal that JSON has")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError("a key must be text")


_STRUCTURE = re.compile(r"[\[\](){}'\"]")
_IN_STRING = {quote: re.compile(rf"[{quote}\\\n]") for quote in "'\""}
_CLOSES = {")": "(", "]": "[", "}": "{"}


class PythonScanner:
    """Finds the end of a bracketed Python expression, looking at every character once.

    It knows strings in single and double quotes on one line, which is what models write.
    """

    def __init__(self) -> None:
        self.broken = False
        self._open: list[str] = []
        self._quote = ""
        self._escaped = False

    def feed(self, piece: str) -> int | None:
        """The offset behind the end, or at which the text is broken; None while more is needed."""
        at = 0
        while at < len(piece):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_IN_STRING[self._quote] if self._quote else _STRUCTURE).search(piece, at)
            if match is None:
                return None
            at = match.end()
            self._take(match[0])
            if self.broken:
                return at - 1
            if not self._open:
                return at
        return None

    def _take(self, mark: str) -> None:
        if self._quote:
            if mark == "\\":
                self._escaped = True
            else:
                self.broken = mark == "\n"
                self._quote = ""
        elif mark in "'\"":
            self._quote = mark
        elif mark in "[({":
            self._open.append(mark)
        elif self._open and self._open[-1] == _CLOSES[mark]:
            self._open.pop()
        else:
            self.broken = True
