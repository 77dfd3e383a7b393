"""Names of the members of tools' arguments as an API takes them, and the way back.

Anthropic refuses all of a request for one of them: "tools.14.custom.input_schema.properties:
Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'" (anthropics/claude-code#79418,
twilio-labs/mcp#56; 2026-11-28), and there are MCP servers that have `$top` and `filter[name]`,
which other APIs take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import structs

from llama_compat.fan_out import Events
from llama_compat.tools.names import NameForm
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    Message,
    MessagePart,
    StreamProgress,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    ToolDefinition,
)
from llama_compat.wire.json_fields import to_raw

ANTHROPIC_MEMBERS = NameForm(characters="A-Za-z0-9_.-", begins="A-Za-z0-9_.-")

Names = Mapping[str, str]


def with_fitting_members(request: ChatCompletionRequest, form: NameForm) -> ChatCompletionRequest:
    """`request` with tools of whose members each has a name that fits, and calls of them with the
    same; the very same, if they do."""
    fitted = _fitted(request, form)
    if not fitted:
        return request
    return structs.replace(
        request,
        tools=tuple(_renamed_tool(tool, fitted.get(tool.tool_name, {})) for tool in request.tools),
        messages=tuple(_renamed_message(message, fitted) for message in request.messages),
    )


async def with_own_members(
    events: Events, request: ChatCompletionRequest, form: NameForm
) -> Events:
    """`events` with the names that `request` has, said by a model that was asked with those of
    `with_fitting_members(request, form)`. What a call of such a tool says comes when it is
    complete."""
    own = {
        tool: {told: name for name, told in names.items()}
        for tool, names in _fitted(request, form).items()
    }
    held: dict[int, bool] = {}
    async with aclosing(events) as stream:
        async for event in stream:
            delta = event.delta if isinstance(event, StreamProgress) else None
            if not isinstance(event, StreamProgress) or not isinstance(delta, ToolCallDelta):
                yield event
                continue
            if delta.tool_name in own:
                held.setdefault(delta.index, False)
            if delta.index in held and delta.parse_status is ToolCallParseStatus.in_progress:
                held[delta.index] = True
                continue
            call = delta.tool_call
            if isinstance(call, ToolCall) and call.tool_name in own:
                call = _renamed_call(call, own[call.tool_name])
            if call is not None and held.get(delta.index):
                said = call.arguments_json
                more = ToolCallDelta(delta.index, ToolCallParseStatus.in_progress, arguments=said)
                yield structs.replace(event, delta=more, logprobs=None, token_ids=None)
            yield structs.replace(event, delta=structs.replace(delta, tool_call=call))


def _fitted(request: ChatCompletionRequest, form: NameForm) -> dict[str, Names]:
    """The names that fit, by the members' own and by tool; of tools that need none, nothing."""
    fitted: dict[str, Names] = {}
    for tool in request.tools:
        odd = {name for name in _members(tool.parameters) if not form.takes(name)}
        if odd:
            fitted[tool.tool_name] = {name: form.fitted(name) for name in odd}
    return fitted


def _members(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from properties
        for value in schema.values():
            yield from _members(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from _members(each)


def _renamed_tool(tool: ToolDefinition, names: Names) -> ToolDefinition:
    if not names or tool.parameters is None:
        return tool
    return structs.replace(tool, parameters=_renamed_schema(tool.parameters, names))


def _renamed_schema(schema: Any, names: Names) -> Any:
    if isinstance(schema, list):
        return [_renamed_schema(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    told = {name: _renamed_schema(value, names) for name, value in schema.items()}
    if isinstance(properties := told.get("properties"), dict):
        told["properties"] = {names.get(name, name): each for name, each in properties.items()}
    if isinstance(required := told.get("required"), list):
        told["required"] = [
            names.get(each, each) if isinstance(each, str) else each for each in required
        ]
    return told


def _renamed_message(message: Message, fitted: Mapping[str, Names]) -> Message:
    if not isinstance(message, CompletionMessage):
        return message
    if not any(call.tool_name in fitted for call in message.tool_calls):
        return message

    def renamed(part: MessagePart) -> MessagePart:
        if not isinstance(part, ToolCall) or part.tool_name not in fitted:
            return part
        return _renamed_call(part, fitted[part.tool_name])

    return structs.replace(message, parts=tuple(map(renamed, message.parts)))


def _renamed_call(call: ToolCall, names: Names) -> ToolCall:
    arguments = _renamed_value(call.arguments, names)
    if arguments == call.arguments:
        return call
    text = bytes(to_raw(arguments)).decode()
    return structs.replace(call, arguments=arguments, arguments_json=text)


def _renamed_value(value: Any, names: Names) -> Any:
    if isinstance(value, dict):
        return {names.get(name, name): _renamed_value(each, names) for name, each in value.items()}
    return [_renamed_value(each, names) for each in value] if isinstance(value, list) else value
