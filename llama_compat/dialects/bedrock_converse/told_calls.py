"""Calls of tools in a conversation told in words, for models that are to call none any more."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from llama_compat.types import (
    CompletionMessage,
    Message,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    UnparseableToolCall,
    UserMessage,
)

CALLS_TOLD = "messages.tool_calls=text"
"""What that is called where it is said what the model was told in another way."""


def with_calls_told(messages: Sequence[Message]) -> tuple[Message, ...]:
    """`messages` in which the model says what it has called, and the user what that gave, pictures
    and documents among it."""
    names = {
        call.call_id: call.tool_name
        for message in messages
        if isinstance(message, CompletionMessage)
        for call in message.tool_calls
    }
    return tuple(_told(message, names) for message in messages)


def _told(message: Message, names: dict[str, str]) -> Message:
    if isinstance(message, CompletionMessage) and message.tool_calls:
        parts = tuple(
            TextContent(f"(I have called {part.tool_name} with {part.arguments_json or '{}'})")
            if isinstance(part, ToolCall | UnparseableToolCall)
            else part
            for part in message.parts
        )
        return structs.replace(message, parts=parts)
    if isinstance(message, ToolResponseMessage):
        name = names.get(message.call_id, "A tool")
        begin = TextContent(f"({name} {'failed' if message.is_error else 'gave'}:")
        content = message.content
        given = (TextContent(content),) if isinstance(content, str) else tuple(content)
        return UserMessage((begin, *given, TextContent(")")))
    return message
