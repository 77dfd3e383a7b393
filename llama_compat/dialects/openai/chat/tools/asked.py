"""The tools of a chat request, and in which form the client gets the calls of them.

Besides functions there are custom tools, whose input is a text, and the older `functions`, of which
a message calls one by its `function_call` (openai 3.52.0, types/chat/completion_create_params.py
and chat_completion_custom_tool_param.py, 2026-11-28).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from llama_compat.dialects.base import TOOL_GRAMMAR
from llama_compat.dialects.members import as_list, as_object, optional_text_in, text_in
from llama_compat.dialects.openai.chat.requests import (
    extra_content,
    parse_function,
    parse_tools,
    render_call,
)
from llama_compat.dialects.openai.finish_reasons import finish_reason
from llama_compat.errors import invalid_parameter
from llama_compat.tools.custom_tools import InputUnwrapper, custom_tool
from llama_compat.types import AnyToolCall, StopReason, ToolCallDelta, ToolDefinition

NEWER_NAMES: Mapping[str, str] = {"functions": "tools", "function_call": "tool_choice"}
"""What OpenAI calls members of requests now."""


class CallForm(Struct, frozen=True):
    """The form in which a client gets the calls that the model makes.

    Attributes:
        custom: the names of its custom tools.
        older: whether it gets one call, as `function_call`.
    """

    custom: frozenset[str] = frozenset()
    older: bool = False

    def members(self, calls: Sequence[AnyToolCall]) -> dict[str, Any]:
        """Those of a message that has these calls."""
        if not calls:
            return {}
        if self.older:
            return {"function_call": render_call(calls[0])["function"]}
        return {"tool_calls": [self._rendered(call) for call in calls]}

    def finish_reason(self, reason: StopReason, *, called: bool) -> str:
        """As `finish_reasons.finish_reason` of a reply that has calls or has not."""
        word = finish_reason(reason, called_tools=called)
        return "function_call" if self.older and word == "tool_calls" else word

    def _rendered(self, call: AnyToolCall) -> dict[str, Any]:
        if call.tool_name not in self.custom:
            return render_call(call)
        unwrapper = InputUnwrapper()
        text = unwrapper.push(call.arguments_json) + unwrapper.finish()
        return {
            "id": call.call_id,
            "type": "custom",
            "custom": {"name": call.tool_name, "input": text},
            **extra_content(call),
        }


FUNCTIONS = CallForm()
"""Where a client has nothing but functions."""


class AskedTools(Struct, frozen=True):
    """The tools of a request.

    Attributes:
        definitions: what the model is offered.
        form: in which the client gets its calls.
    """

    definitions: tuple[ToolDefinition, ...] = ()
    form: CallForm = FUNCTIONS


def parse_asked_tools(body: Mapping[str, Any]) -> AskedTools:
    """The `tools` of a request, or its `functions`.

    Raises:
        APIError: 400 with the path of what is malformed; or it has both.
    """
    tools = body.get("tools")
    functions = as_list(body.get("functions"), "functions")
    if not functions:
        custom: dict[str, ToolDefinition] = {}
        for index, tool in enumerate(tools if isinstance(tools, list) else ()):
            if isinstance(tool, dict) and tool.get("type") == "custom":
                custom[f"tools[{index}]"] = _parse_custom(tool, f"tools[{index}]")
        names = frozenset(each.tool_name for each in custom.values())
        return AskedTools(parse_tools(tools, custom), CallForm(names))
    if tools:
        raise invalid_parameter(
            "functions", "'functions' is the older name of 'tools'. Send one of them alone."
        )
    return AskedTools(
        tuple(
            parse_function(as_object(each, f"functions[{index}]"), f"functions[{index}]")
            for index, each in enumerate(functions)
        ),
        CallForm(older=True),
    )


def _parse_custom(tool: Mapping[str, Any], path: str) -> ToolDefinition:
    path = f"{path}.custom"
    custom = as_object(tool.get("custom"), path)
    grammar = None
    match custom.get("format"):
        case {"type": "grammar", "grammar": {"syntax": str(syntax), "definition": str(rules)}}:
            grammar = syntax, rules
    name, description = text_in(custom, "name", path), optional_text_in(custom, "description", path)
    return custom_tool(name, description, grammar)


def told_grammars(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The paths of grammars for the input of custom tools, of which a model is told and to which it
    is not held, and their name among a call's parameters."""
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        match tool:
            case {"type": "custom", "custom": {"format": {"type": str(kind)}}} if kind != "text":
                yield f"tools[{index}].custom.format", TOOL_GRAMMAR


class CallsSent:
    """What the client already has of the calls of one choice that is streamed.

    Each call's id and name go out once, and its arguments either as they come or, from a provider
    that gives only whole calls, at the end.

    Args:
        form: in which it gets them.
    """

    def __init__(self, form: CallForm) -> None:
        self._form = form
        self._started: set[int] = set()
        self._with_arguments: set[int] = set()
        self._inputs: dict[int, InputUnwrapper] = {}

    def render(self, delta: ToolCallDelta) -> dict[str, Any]:
        """The delta of a chunk that tells of `delta`; empty where that adds nothing."""
        call = delta.tool_call
        fragment: dict[str, Any] = {"index": delta.index}
        extra = extra_content(call)
        begins = delta.index not in self._started
        name = call.tool_name if call else delta.tool_name
        if begins:
            self._started.add(delta.index)
            if name in self._form.custom:
                self._inputs[delta.index] = InputUnwrapper()
        text = self._added(delta)
        is_custom = delta.index in self._inputs
        kind, member = ("custom", "input") if is_custom else ("function", "arguments")
        if begins:
            fragment["id"] = call.call_id if call else delta.call_id
            fragment["type"] = kind
            fragment[kind] = {"name": name, member: text}
        elif text or extra:
            fragment[kind] = {member: text}
        else:
            return {}
        if self._form.older:
            return {"function_call": fragment["function"]}
        return {"tool_calls": [{**fragment, **extra}]}

    def _added(self, delta: ToolCallDelta) -> str:
        """What the client lacks of a call's arguments, or of its input."""
        call, arguments = delta.tool_call, delta.arguments
        if call is not None:
            # succeeded or failed: all of it again, of which the client needs what it lacks
            arguments = "" if delta.index in self._with_arguments else call.arguments_json
        if arguments:
            self._with_arguments.add(delta.index)
        unwrapper = self._inputs.get(delta.index)
        if unwrapper is None:
            return arguments
        return unwrapper.push(arguments) + ("" if call is None else unwrapper.finish())
