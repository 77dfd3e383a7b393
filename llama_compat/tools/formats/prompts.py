"""A conversation with tools, for a chat template that knows nothing of them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from llama_compat.tools.formats.base import ToolFormat
from llama_compat.types import (
    AnyContent,
    CompletionMessage,
    Medium,
    Message,
    SystemMessage,
    TextContent,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    UserMessage,
    content_text,
    media_in,
)


def plain_messages(
    tool_format: ToolFormat,
    messages: Sequence[Message],
    tools: Sequence[ToolDefinition],
    tool_choice: ToolChoice | None = None,
) -> tuple[Message, ...]:
    """The conversation in system, user and assistant messages alone.

    The tools are offered at the end of the system message, which is made if there is none. Earlier
    calls become the text that the model would have written, and what tools answered becomes what
    the user says; answers that follow each other are one message, so that turns alternate.
    """
    names = {
        call.call_id: call.tool_name
        for message in messages
        if isinstance(message, CompletionMessage)
        for call in message.tool_calls
    }
    plain: list[Message] = []
    answers: list[str] = []
    media: list[Medium] = []
    for message in messages:
        if isinstance(message, ToolResponseMessage):
            name = names.get(message.call_id, message.call_id)
            answers.append(tool_format.render_response(name, content_text(message.told)))
            media += media_in(message.content)
            continue
        if answers:
            plain.append(_answer(answers, media))
            answers, media = [], []
        if isinstance(message, CompletionMessage) and message.tool_calls:
            calls = tool_format.render_calls(message.tool_calls)
            message = CompletionMessage.of(
                _with_text(message.content, calls, "\n"),
                reasoning=message.unsealed_reasoning,
                name=message.name,
            )
        plain.append(message)
    if answers:
        plain.append(_answer(answers, media))
    offer = _offer(tool_format, tools, tool_choice)
    return tuple(_with_offer(plain, offer)) if offer else tuple(plain)


def _answer(answers: Sequence[str], media: Sequence[Medium]) -> UserMessage:
    text = "\n".join(answers)
    return UserMessage((TextContent(text), *media) if media else text)


def _offer(
    tool_format: ToolFormat, tools: Sequence[ToolDefinition], tool_choice: ToolChoice | None
) -> str:
    choice = tool_choice or ToolChoice()
    if not tools or choice.mode == "none":
        return ""
    offer = tool_format.render_tools(tools)
    if choice.tool_name is not None:
        return f"{offer}\n\nYou must call the function {choice.tool_name} now."
    if choice.mode == "required":
        return f"{offer}\n\nYou must call at least one of these functions now."
    return offer


def _with_offer(messages: list[Message], offer: str) -> list[Message]:
    if messages and isinstance(messages[0], SystemMessage):
        system = messages[0]
        content = _with_text(system.content, offer, "\n\n")
        return [structs.replace(system, content=content), *messages[1:]]
    return [SystemMessage(offer), *messages]


def _with_text(content: AnyContent, text: str, separator: str) -> AnyContent:
    if not content:
        return text
    if isinstance(content, str):
        return f"{content}{separator}{text}"
    return (*content, TextContent(f"{separator}{text}"))
