"""The messages of chats, both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.dialects.members import as_object, messages_of, optional_text_in, text_in
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.media.documents import seen_alone
from llama_compat.media.images import image_in_base64, images_in, parse_data_url
from llama_compat.tools.answers import UnansweredCalls
from llama_compat.tools.calls import (
    arguments_object,
    arguments_text,
    call_id_at,
    parse_tool_call,
)
from llama_compat.types import (
    AnyToolCall,
    CompletionMessage,
    Content,
    Message,
    SeenContent,
    SystemMessage,
    TextContent,
    ToolResponseMessage,
    UserMessage,
    content_text,
)

# --------------------------------------------------------------------------------------------------
# Wire -> vocabulary
# --------------------------------------------------------------------------------------------------


def parse_messages(value: Any) -> tuple[Message, ...]:
    """The `messages` of a request.

    Calls get ids here, as Ollama's need none, and a tool's answer that of the call that it is to.

    Raises:
        APIError: 400 with the path of what is malformed, such as `messages[2].content`.
    """
    unanswered = UnansweredCalls()
    return tuple(_parse_message(*each, unanswered) for each in messages_of(value))


def _parse_message(message: Mapping[str, Any], path: str, unanswered: UnansweredCalls) -> Message:
    role = optional_text_in(message, "role", path)
    content = parse_content(message, path)
    match None if role is None else role.lower():
        case "system" | "developer":
            return SystemMessage(content)
        case "user":
            return UserMessage(content)
        case "assistant":
            calls = _parse_calls(message.get("tool_calls"), f"{path}.tool_calls")
            for call in calls:
                unanswered.add(call.call_id, call.tool_name)
            thinking = optional_text_in(message, "thinking", path)
            return CompletionMessage.of(content, calls, reasoning=thinking or None)
        case "tool":
            call_id = optional_text_in(message, "tool_call_id", path)
            tool_name = optional_text_in(message, "tool_name", path)
            return ToolResponseMessage(unanswered.answer(call_id, tool_name), content)
        case None:
            raise missing_parameter(f"{path}.role")
    raise invalid_parameter(
        f"{path}.role",
        f"Invalid value: {role!r}. Supported values are: 'system', 'user', 'assistant' and 'tool'.",
    )


def parse_content(value: Mapping[str, Any], path: str, text_name: str = "content") -> SeenContent:
    """The text and the `images` of a message.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    text = optional_text_in(value, text_name, path) or ""
    images = value.get("images") or []
    where = f"{path}.images".lstrip(".")
    if not isinstance(images, list):
        raise invalid_parameter(where, f"'{where}' must be an array.", "invalid_type")
    shown = [image_in_base64(image, f"{where}[{index}]") for index, image in enumerate(images)]
    if not shown:
        return text
    # Ollama shows them before the text: `chatPrompt` in its server/prompt.go.
    return (*shown, TextContent(text)) if text else tuple(shown)


def _parse_calls(value: Any, path: str) -> tuple[AnyToolCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid_parameter(path, f"'{path}' must be an array.", "invalid_type")
    return tuple(_parse_call(call, f"{path}[{index}]") for index, call in enumerate(value))


def _parse_call(value: Any, path: str) -> AnyToolCall:
    call = as_object(value, path)
    function = as_object(call.get("function"), f"{path}.function")
    name = text_in(function, "name", f"{path}.function")
    return parse_tool_call(
        optional_text_in(call, "id", path) or call_id_at(path),
        name,
        arguments_text(function.get("arguments")),
    )


# --------------------------------------------------------------------------------------------------
# Vocabulary -> wire
# --------------------------------------------------------------------------------------------------


def render_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` of a request; a tool's answer names the tool, which the call before it tells.

    Raises:
        APIError: 400 naming the message whose image is no `data:` URL.
    """
    tool_names: dict[str, str] = {}
    rendered = []
    for index, message in enumerate(messages):
        if isinstance(message, CompletionMessage):
            tool_names |= {call.call_id: call.tool_name for call in message.tool_calls}
        rendered.append(_render_message(message, tool_names, f"messages[{index}].content"))
    return rendered


def _render_message(message: Message, tool_names: Mapping[str, str], param: str) -> dict[str, Any]:
    match message:
        case SystemMessage():
            return {"role": "system", **_render_content(message.content, param)}
        case UserMessage():
            return {"role": "user", **_render_content(message.content, param)}
        case ToolResponseMessage():
            rendered = {"role": "tool", **_render_content(message.told, param)}
            if message.call_id in tool_names:
                rendered["tool_name"] = tool_names[message.call_id]
            return {**rendered, "tool_call_id": message.call_id}
    rendered = {"role": "assistant", **_render_content(message.content, param)}
    if message.refusal is not None and not rendered["content"]:
        rendered["content"] = message.refusal
    if message.unsealed_reasoning is not None:
        rendered["thinking"] = message.unsealed_reasoning
    if message.tool_calls:
        rendered["tool_calls"] = [render_call(call) for call in message.tool_calls]
    return rendered


def _render_content(content: Content, param: str) -> dict[str, Any]:
    rendered: dict[str, Any] = {"content": content_text(content)}
    content = seen_alone(content, param, "Ollama's API")
    images = [parse_data_url(image.url, param).base64 for image in images_in(content)]
    return {**rendered, "images": images} if images else rendered


def render_call(call: AnyToolCall) -> dict[str, Any]:
    """One of a message's `tool_calls`."""
    function = {"name": call.tool_name, "arguments": arguments_object(call)}
    return {"id": call.call_id, "function": function}
