"""Tool calls as grammars, in the model's own format, in Lark's notation as llguidance reads it.

Source of the notation: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_compat.errors import invalid_parameter
from llama_compat.text.reasoning import CLOSING_TAG
from llama_compat.tools.formats import ToolFormat
from llama_compat.types import ToolDefinition
from providers.local.engine import LocalModel
from providers.local.replies.schemas import COMPACT, closed, enforceable

ANY_TEXT = r"/(.|\n)*/"


def demanded_call(
    tools: Sequence[ToolDefinition], openings: Mapping[str, str], model: LocalModel
) -> str:
    """A reply that is the call of one of `tools`, up to the end of its arguments.

    Args:
        tools: those that it may call.
        openings: what the call of each begins with, up to the `{` of its arguments.
        model: whose special tokens the openings may spell out.
    """
    calls = [
        f"{_literal(openings[tool.tool_name][:-1], model)} {json_rule(arguments_schema(tool))}"
        for tool in tools
    ]
    return f"start: {_alternatives('call', len(calls))}\n" + _rules("call", calls)


def free_reply(
    tools: Sequence[ToolDefinition],
    model: LocalModel,
    *,
    guided: str | None = None,
    prefix: str = "",
    single: bool = False,
) -> str:
    """A reply that may be text, or calls of `tools`; arguments of strict tools fit their schemas.

    Args:
        tools: those that it may call.
        model: in whose tool format, which is known, they are written.
        guided: what the text has to be, as a rule; a reply is then either that or calls.
        prefix: what has to come before guided text; where there is some, the reply begins inside
            the model's reasoning.
        single: whether there may be one call only.
    """
    tool_format = model.tool_format
    assert tool_format is not None
    frames = [tool_format.call_frame(tool.tool_name) for tool in tools]
    opener = _opener(tool_format, frames[0][0])
    marked = opener in tool_format.markers
    calls = [
        f"{_literal(opening.removeprefix(opener), model)}"
        f" {json_rule(arguments_schema(tool) if tool.strict else {'type': 'object'})}"
        f" {_literal(closing, model)}"
        for tool, (opening, closing) in zip(tools, frames, strict=True)
    ]
    body = _alternatives("body", len(calls))
    more = "" if single else r' ("\n"? call)*'
    if guided is not None:
        start = f"{string(prefix)} (guided | call{more})"
        rules = [f"guided: {guided}", f"call: {_literal(opener, model)} ({body})"]
    else:
        thought = "thought " if prefix else ""
        if marked:
            marker = _literal(opener, model)
            start = f"{thought}(call | text)" if single else f"{thought}call* text"
            # Lazy, so that a marker ends the text; a special token is no text anyhow.
            opened = (
                f"opened: TEXT {marker}" if marker[0] == "<" else f"opened[lazy]: TEXT {marker}"
            )
            rules = [f"TEXT: {_without(tool_format, opener)}", opened, f"call: opened ({body})"]
        else:
            # Only at the beginning of a line is a bracket that of a call.
            line = rf"[ \t]*([^ \t\n{re.escape(opener)}][^\n]*)?"
            start = f"{thought}(text | LINES? call{more})"
            rules = [
                f"TEXT: /({line}\\n)*{line}/",
                f"LINES: /({line}\\n)+/",
                f"call: {string(opener)} ({body})",
            ]
        rules += ["text: TEXT", f"thought[lazy]: {ANY_TEXT} {string(CLOSING_TAG)}"]
    return "\n".join([f"start: {start}", *rules, _rules("body", calls)])


def _opener(tool_format: ToolFormat, opening: str) -> str:
    """What tells that a call begins: a marker of the format, or the first bracket."""
    return next((each for each in tool_format.markers if opening.startswith(each)), opening[0])


def _without(tool_format: ToolFormat, opener: str) -> str:
    """Text in which no call begins in another way than with `opener`."""
    others = [_pattern(each) for each in tool_format.markers if each != opener]
    return " & ".join([ANY_TEXT, *(rf"~/(.|\n)*{each}(.|\n)*/" for each in others)])


def _pattern(text: str) -> str:
    return re.escape(text).replace("/", r"\/")


def _alternatives(name: str, count: int) -> str:
    return " | ".join(f"{name}_{index}" for index in range(count))


def _rules(name: str, rules: Sequence[str]) -> str:
    return "".join(f"{name}_{index}: {rule}\n" for index, rule in enumerate(rules))


def json_rule(schema: Mapping[str, Any]) -> str:
    """What a JSON value that `schema`, as it is enforceable, allows is, in Lark's notation."""
    return f"%json {json.dumps({'x-guidance': COMPACT, **schema}, ensure_ascii=False)}"


def arguments_schema(tool: ToolDefinition) -> dict[str, Any]:
    """The schema of a tool's arguments, as it is enforced: without members that it does not name.

    Of a tool that is not strict nobody asked that all of it is kept: what can't be is left to the
    model.

    Raises:
        APIError: 400; they are no object, or a strict tool's have what can't be enforced.
    """
    path = parameters_path(tool)
    parameters: dict[str, Any] = tool.parameters or {"properties": {}}
    types = parameters.get("type", "object")
    if "object" not in (types if isinstance(types, list) else [types]):
        raise invalid_parameter(
            f"{path}.type",
            f"'{path}.type' is {json.dumps(types)}, and the arguments of a tool are an object. Say"
            " 'object', and make what it is now a property.",
        )
    schema = closed({**parameters, "type": "object"})
    return enforceable(schema, path, loose=not tool.strict)


def parameters_path(tool: ToolDefinition) -> str:
    """Where a tool's parameters are, for errors."""
    return f"tools.{tool.tool_name}.parameters"


def _literal(text: str, model: LocalModel) -> str:
    """`text` in Lark's notation, with the model's special tokens for those that it spells out."""
    markers = model.tool_format.markers if model.tool_format is not None else ()
    pieces = [text]
    for marker in markers:
        token_id = model.vocabulary.id_of(marker)
        if token_id is None or not model.vocabulary.is_special(token_id):
            continue
        pieces = [part for piece in pieces for part in _split(piece, marker, f"<[{token_id}]>")]
    return " ".join(piece if piece.startswith("<[") else string(piece) for piece in pieces)


def _split(piece: str, marker: str, reference: str) -> Iterator[str]:
    if piece.startswith("<["):
        yield piece
        return
    for index, part in enumerate(piece.split(marker)):
        if index:
            yield reference
        if part:
            yield part


def string(text: str) -> str:
    """`text` itself, in Lark's notation."""
    return json.dumps(text, ensure_ascii=False)
