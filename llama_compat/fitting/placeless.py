"""What messages and tools say, and a provider's own API has no place for.

It is no parameter, so that no table of those names it; each change is small, and a client that
counts on it has to know. It is taken out here and told, whatever the API, or refused where a
template wants that.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from msgspec import structs

from llama_compat.media.images import images_in
from llama_compat.tools.parameters import has_choices, without_choices
from llama_compat.types import (
    ChatCompletionRequest,
    Message,
    ToolDefinition,
    ToolResponseMessage,
)

SPEAKERS = "messages.name"
"""Names of those who say messages."""

STRICT_TOOLS = "tools.strict"
"""That a tool's arguments are held to its schema, rather than written after it."""

TOOL_CHOICES = "tools.parameters.anyOf"
"""That a tool's arguments are those of one of several schemas, rather than of one object."""

IMAGE_DETAIL = "messages.image_url.detail"
"""How much of an image is to be looked at, where that is not left open."""


def without_placeless(request: ChatCompletionRequest, placeless: Set[str]) -> Mapping[str, Any]:
    """What is different in `request` at a provider with no place for some of what may be in it.

    Args:
        request: what is asked.
        placeless: what there is no place for, by the names above.

    Returns:
        The fields of the request that are others then, by the name of what is left out of them.
    """
    changes: dict[str, Any] = {}
    if SPEAKERS in placeless and any(map(_speaker, request.messages)):
        changes[SPEAKERS] = {"messages": tuple(map(_without_speaker, request.messages))}
    tools = request.tools
    if STRICT_TOOLS in placeless and any(tool.strict for tool in tools):
        tools = tuple(structs.replace(tool, strict=None) for tool in tools)
        changes[STRICT_TOOLS] = {"tools": tools}
    if TOOL_CHOICES in placeless and any(has_choices(tool.parameters) for tool in tools):
        changes[TOOL_CHOICES] = {"tools": tuple(map(_without_choices, tools))}
    if IMAGE_DETAIL in placeless and any(map(_asks_for_detail, request.messages)):
        # Nobody reads it there, so that the request stays as it is.
        changes[IMAGE_DETAIL] = {}
    return changes


def _without_choices(tool: ToolDefinition) -> ToolDefinition:
    parameters = tool.parameters
    if parameters is None or not has_choices(parameters):
        return tool
    return structs.replace(tool, parameters=without_choices(parameters))


def _asks_for_detail(message: Message) -> bool:
    return any(image.detail not in (None, "auto") for image in images_in(message.content))


def _speaker(message: Message) -> str | None:
    return None if isinstance(message, ToolResponseMessage) else message.name


def _without_speaker(message: Message) -> Message:
    if isinstance(message, ToolResponseMessage) or message.name is None:
        return message
    return structs.replace(message, name=None)
