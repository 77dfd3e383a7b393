"""What a model is given: the messages and tools of a request in the vocabulary, and what tools gave
that the server runs, which a client sees as well."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.documents import mapped
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.guarded_text import seen_together
from llama_compat.guardrails.settings import Place
from llama_compat.hosted.vocabulary import HostedCall, Source
from llama_compat.tools.calls import parse_tool_call
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    CompletionRequest,
    Content,
    ContentPart,
    DocumentContent,
    ImageContent,
    Message,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCall,
    ToolDefinition,
    ToolResponseMessage,
    UnparseableToolCall,
)


async def screened(call: HostedCall, guard: Guard) -> HostedCall | None:
    """What may be seen of a call that has ended, or of the tools that a server has; None where a
    check wants nothing of it seen.

    Args:
        call: that.
        guard: of the request.
    """
    try:
        seen = await guard.off_loop(len(call.output), looked_through, call, guard)
        if seen.images:
            await guard.look({"tool_results": seen.images})
            images, words = guard.shown_pictures(seen.images)
            output = "\n".join((seen.output, *words)) if words else seen.output
            seen = structs.replace(seen, images=images, output=output)
        if seen.output:
            await guard.ask(Said("tool_results", (seen.output,)))
    except Blocked:
        return None
    return seen


def looked_through(call: HostedCall, guard: Guard) -> HostedCall:
    """What may be seen of a call by the checks that need not ask anybody.

    Raises:
        Blocked: nothing of it.
    """
    return structs.replace(
        call,
        output=mapped(call.output, "tool_results", guard.text),
        sources=tuple(looked_through_source(each, guard) for each in call.sources),
        tools=tuple(mapped(list(call.tools), "tool_results", guard.text)),
    )


def looked_through_source(source: Source, guard: Guard) -> Source:
    """The same of something that was found.

    Raises:
        Blocked: nothing of it.
    """
    seen = mapped(structs.asdict(source), "tool_results", guard.text)
    return structs.replace(source, **seen)


# What is asked ------------------------------------------------------------------------------------


def requests_seen(
    requests: list[ChatCompletionRequest | CompletionRequest], guard: Guard
) -> list[ChatCompletionRequest | CompletionRequest]:
    """The requests of one call's choices, whose messages are the same, with what earlier turns
    bring that are kept here and were not in the call.

    Raises:
        Blocked: they may not go on.
    """
    first = requests[0]
    if not isinstance(first, ChatCompletionRequest):
        return requests
    messages = tuple(_message(each, guard) for each in first.messages)
    tools = tuple(_tool(each, guard) for each in first.tools)
    if messages == first.messages and tools == first.tools:
        return requests
    return [structs.replace(each, messages=messages, tools=tools) for each in requests]


def _tool(tool: ToolDefinition, guard: Guard) -> ToolDefinition:
    """One that the model is offered, of which a server of tools may say anything."""

    def word(place: Place, text: str) -> str:
        return guard.text(place, text, is_said=False)

    description = tool.description and word("input", tool.description)
    parameters = mapped(tool.parameters, "input", word)
    if description == tool.description and parameters is tool.parameters:
        return tool
    return structs.replace(tool, description=description, parameters=parameters)


def _message(message: Message, guard: Guard) -> Message:
    if isinstance(message, CompletionMessage):
        parts = [_part(each, guard) for each in message.parts]
        return structs.replace(message, parts=_together("input", parts, guard))
    place: Place = "tool_results" if isinstance(message, ToolResponseMessage) else "input"
    return structs.replace(message, content=_content(place, message.content, guard))


def _content(place: Place, content: Content, guard: Guard) -> Content:
    if isinstance(content, str):
        return guard.text(place, content)
    return _together(place, [_shown(place, each, guard) for each in content], guard)


def _shown(place: Place, part: ContentPart, guard: Guard) -> ContentPart:
    """What is shown of a part; of a document no guardrail reads more than its name."""
    match part:
        case TextContent(text):
            return TextContent(guard.text(place, text))
        case ImageContent():
            return guard.shown_picture(part)
        case DocumentContent(name=str(name)):
            return structs.replace(part, name=guard.text(place, name))
    return part


def _together(place: Place, parts: list[Any], guard: Guard) -> tuple[Any, ...]:
    """The parts of a message with what is shown of its texts together."""
    at = [index for index, each in enumerate(parts) if isinstance(each, TextContent)]
    if len(at) > 1:
        texts = seen_together(guard, place, [parts[index].text for index in at])
        for index, text in zip(at, texts, strict=True):
            if text != parts[index].text:
                parts[index] = TextContent(text)
    return tuple(parts)


def _part(part: Any, guard: Guard) -> Any:
    if isinstance(part, ToolCall | UnparseableToolCall):
        return guarded_call(part, guard.text("tool_arguments", part.arguments_json))
    if isinstance(part, TextContent | RefusalContent | ReasoningContent):
        text = guard.text("input", part.text)
        if text == part.text:
            return part
        if isinstance(part, ReasoningContent):
            return structs.replace(part, text=text, signature=None, sealed_by="")
        return structs.replace(part, text=text)
    return guard.shown_picture(part) if isinstance(part, ImageContent) else part


def guarded_call(call: ToolCall | UnparseableToolCall, arguments: str) -> Any:
    """`call` with what is shown of its arguments."""
    if arguments == call.arguments_json:
        return call
    other = parse_tool_call(call.call_id, call.tool_name, arguments)
    other = structs.replace(other, server_tool=call.server_tool)
    if isinstance(other, ToolCall) and isinstance(call, ToolCall):
        return structs.replace(other, thought_signature=call.thought_signature)
    return other
