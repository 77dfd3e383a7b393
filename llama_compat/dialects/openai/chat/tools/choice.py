"""Which of a chat's tools the model may call, and whether it must: wire -> vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from llama_compat.dialects.members import as_list
from llama_compat.dialects.openai.chat.tools.asked import AskedTools
from llama_compat.errors import invalid_parameter
from llama_compat.types import ToolChoice, ToolDefinition

Offered = tuple[ToolChoice | None, tuple[ToolDefinition, ...]]


def parse_choice(body: Mapping[str, Any], asked: AskedTools) -> Offered:
    """The `tool_choice` of a request, or its `function_call` where it has `functions`, and those of
    its tools that the model is offered.

    Raises:
        APIError: 400, it is none, or names what there is not.
    """
    if not asked.form.older:
        return _parse_tool_choice(body.get("tool_choice"), asked.definitions, asked.form.custom)
    match body.get("function_call"):
        case None:
            return None, asked.definitions
        case "auto" | "none" as mode:
            return ToolChoice(mode), asked.definitions
        case {"name": str(name)}:
            return ToolChoice("required", name), asked.definitions
    raise invalid_parameter(
        "function_call", "'function_call' must be 'auto', 'none' or {\"name\": ...}."
    )


def _parse_tool_choice(value: Any, tools: Sequence[ToolDefinition], custom: Set[str]) -> Offered:
    """The `tool_choice` of a request, and those of its tools that the model is offered.

    With `allowed_tools` (openai 3.52.0, types/chat/chat_completion_allowed_tools_param.py,
    2026-11-28) those are a part of them, so that a client need not send others for a turn, which
    would have its vendor's cache begin anew.

    Args:
        value: it.
        tools: all that there are.
        custom: the names of those that are custom tools.

    Raises:
        APIError: 400, it is none, or names what there is not.
    """
    match value:
        case None:
            return None, tuple(tools)
        case "auto" | "required" | "none":
            return ToolChoice(value), tuple(tools)
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolChoice("required", name), tuple(tools)
        case {"type": "custom", "custom": {"name": str(name)}} if name in custom:
            return ToolChoice("required", name), tuple(tools)
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode}}:
            offered = _allowed(value["allowed_tools"].get("tools"), tools, custom)
            if mode == "required" and not offered:
                raise invalid_parameter(
                    _ALLOWED, "A call is required, but none of the tools is allowed."
                )
            return (ToolChoice(mode) if offered else None), offered
    raise invalid_parameter(
        "tool_choice",
        "'tool_choice' must be 'auto', 'required', 'none',"
        ' {"type": "function", "function": {"name": ...}},'
        ' {"type": "custom", "custom": {"name": ...}} with the name of a custom tool, or an object'
        " of the type 'allowed_tools'.",
    )


_ALLOWED = "tool_choice.allowed_tools.tools"


def _allowed(
    value: Any, tools: Sequence[ToolDefinition], custom: Set[str]
) -> tuple[ToolDefinition, ...]:
    known, names = {tool.tool_name for tool in tools}, set()
    for index, each in enumerate(as_list(value, _ALLOWED)):
        match each:
            case {"type": "function", "function": {"name": str(name)}} if name in known:
                names.add(name)
            case {"type": "custom", "custom": {"name": str(name)}} if name in custom:
                names.add(name)
            case _:
                path = f"{_ALLOWED}[{index}]"
                raise invalid_parameter(path, f"'{path}' is none of the tools in 'tools'.")
    return tuple(tool for tool in tools if tool.tool_name in names)
