"""Calls and tools written as JSON, which most formats have inside their markers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from llama_compat.dialects.openai.chat import render_tool
from llama_compat.tools.calls import parse_json, parse_tool_call
from llama_compat.tools.formats.base import WrittenCall
from llama_compat.types import AnyToolCall, ToolCall, ToolDefinition
from llama_compat.wire.json_fields import JSONFields, from_raw, parse_fields, to_raw

NAME_MEMBERS = ("name", "function")
ARGUMENTS_MEMBERS = ("arguments", "parameters")
ID_MEMBERS = ("id", "call_id")


def read_json_calls(text: str, *, need_arguments: bool = False) -> list[WrittenCall] | None:
    """The call that a JSON object is, or the calls that an array of them is.

    The arguments keep the text that the model wrote.

    Args:
        text: the whole object or array.
        need_arguments: an object that has no arguments is no call.
    """
    try:
        objects = _objects(text.encode())
        calls = [_read_call(parse_fields(item), need_arguments) for item in objects]
    except ValueError:
        return None
    found = [call for call in calls if call is not None]
    return found if len(found) == len(calls) else None


def _objects(text: bytes) -> list[bytes]:
    if not text.lstrip().startswith(b"["):
        return [text]
    try:
        return [bytes(item) for item in msgspec.json.decode(text, type=list[Raw])]
    except msgspec.DecodeError:
        return [bytes(to_raw(item)) for item in parse_json(text.decode())]


def _read_call(members: JSONFields, need_arguments: bool) -> WrittenCall | None:
    name = _member(members, NAME_MEMBERS)
    arguments = _member(members, ARGUMENTS_MEMBERS)
    if name.startswith(b"{"):
        return _read_call(parse_fields(name), need_arguments)
    if not name.startswith(b'"') or (need_arguments and not arguments):
        return None
    if arguments.startswith(b'"'):
        # Some models write the arguments as a string that holds the object.
        arguments_json = from_raw(Raw(arguments))
    else:
        arguments_json = "{}" if arguments == b"null" else arguments.decode()
    call = parse_tool_call("", from_raw(Raw(name)), arguments_json)
    if not isinstance(call, ToolCall):
        return None
    call_id = _member(members, ID_MEMBERS)
    return WrittenCall(
        call.tool_name,
        call.arguments_json,
        from_raw(Raw(call_id)) if call_id.startswith(b'"') else "",
    )


def _member(members: JSONFields, names: Sequence[str]) -> bytes:
    """The first of `names` that `members` has, as it is written; nothing if it has none."""
    return next((bytes(members[name]) for name in names if name in members), b"")


def write_call(call: AnyToolCall, arguments_member: str) -> str:
    """A call as one JSON object, its arguments as they were written."""
    name = json.dumps(call.tool_name, ensure_ascii=False)
    return f'{{"name": {name}, "{arguments_member}": {call.arguments_json}}}'


def open_call(tool_name: str, arguments_member: str) -> str:
    """A call as `write_call` writes it, up to the `{` of its arguments."""
    return f'{{"name": {json.dumps(tool_name, ensure_ascii=False)}, "{arguments_member}": {{'


def write_tools(tools: Sequence[ToolDefinition], *, indent: int | None = None) -> list[str]:
    """Each tool as JSON, in OpenAI's shape."""
    return [json.dumps(render_tool(tool), ensure_ascii=False, indent=indent) for tool in tools]
