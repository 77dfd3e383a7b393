"""What of messages and tools is left out where a provider has no place for it."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.fitting.placeless import (
    IMAGE_DETAIL,
    SPEAKERS,
    STRICT_TOOLS,
    TOOL_CHOICES,
    without_placeless,
)
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    ImageContent,
    Message,
    SystemMessage,
    ToolDefinition,
    ToolResponseMessage,
    UserMessage,
)

PLAIN: tuple[Message, ...] = (UserMessage("Hi"), ToolResponseMessage("c1", "22"))
NAMED: tuple[Message, ...] = (
    SystemMessage("x", name="rules"),
    UserMessage("Hi", name="ann"),
    CompletionMessage.of("x", name="bot"),
    ToolResponseMessage("c1", "22"),
)
CHOICE = ToolDefinition(
    "g", parameters={"type": "object", "anyOf": [{"required": ["a"]}]}, strict=True
)
STRICT, OPEN = ToolDefinition("f", strict=True), ToolDefinition("f", strict=False)


def image(detail: str | None) -> UserMessage:
    return UserMessage((ImageContent("data:image/png;base64,AA==", detail),))


@pytest.mark.parametrize(
    ("detail", "placeless", "names"),
    [
        ("high", {IMAGE_DETAIL}, [IMAGE_DETAIL]),
        ("low", {IMAGE_DETAIL, SPEAKERS}, [IMAGE_DETAIL]),
        ("auto", {IMAGE_DETAIL}, []),
        (None, {IMAGE_DETAIL}, []),
        ("high", {SPEAKERS}, []),
    ],
)
def test_how_much_of_an_image_is_looked_at_is_named(
    detail: Any, placeless: set[str], names: list[str]
) -> None:
    asked = ChatCompletionRequest("m", (image(None), image(detail)))
    assert list(without_placeless(asked, placeless)) == names


@pytest.mark.parametrize(
    ("messages", "tool", "placeless", "names"),
    [
        (NAMED, STRICT, {SPEAKERS, STRICT_TOOLS}, [SPEAKERS, STRICT_TOOLS]),
        (NAMED, STRICT, {SPEAKERS}, [SPEAKERS]),
        (NAMED, STRICT, {STRICT_TOOLS}, [STRICT_TOOLS]),
        (NAMED, STRICT, set(), []),
        (NAMED[1:2], OPEN, {SPEAKERS, STRICT_TOOLS}, [SPEAKERS]),
        (NAMED[:1], OPEN, {SPEAKERS, STRICT_TOOLS}, [SPEAKERS]),
        (NAMED[2:3], OPEN, {SPEAKERS, STRICT_TOOLS}, [SPEAKERS]),
        (PLAIN, STRICT, {SPEAKERS, STRICT_TOOLS}, [STRICT_TOOLS]),
        (PLAIN, OPEN, {SPEAKERS, STRICT_TOOLS}, []),
        (PLAIN, ToolDefinition("f"), {SPEAKERS, STRICT_TOOLS}, []),
    ],
)
def test_what_has_no_place_is_left_out_by_name(
    messages: tuple[Message, ...], tool: ToolDefinition, placeless: set[str], names: list[str]
) -> None:
    changes = without_placeless(ChatCompletionRequest("m", messages, tools=(tool, OPEN)), placeless)
    assert list(changes) == names
    if SPEAKERS in names:
        left = changes[SPEAKERS]["messages"]
        assert [getattr(each, "name", None) for each in left] == [None] * len(messages)
        assert [each.content for each in left] == [each.content for each in messages]
    if STRICT_TOOLS in names:
        assert [each.strict for each in changes[STRICT_TOOLS]["tools"]] == [None, None]


@pytest.mark.parametrize(
    ("tools", "placeless", "names"),
    [
        ((OPEN, CHOICE), {TOOL_CHOICES}, [TOOL_CHOICES]),
        ((OPEN, CHOICE), {STRICT_TOOLS, TOOL_CHOICES}, [STRICT_TOOLS, TOOL_CHOICES]),
        ((OPEN, CHOICE), {SPEAKERS}, []),
        ((OPEN, STRICT), {TOOL_CHOICES}, []),
    ],
)
def test_tools_may_lose_both_how_they_are_held_to_and_what(
    tools: tuple[ToolDefinition, ...], placeless: set[str], names: list[str]
) -> None:
    changes = without_placeless(ChatCompletionRequest("m", PLAIN, tools=tools), placeless)
    assert list(changes) == names
    told = tools if not changes else list(changes.values())[-1]["tools"]
    assert [tool.tool_name for tool in told] == [tool.tool_name for tool in tools]
    has_choice = any("anyOf" in (tool.parameters or {}) for tool in told)
    assert has_choice is (CHOICE in tools and TOOL_CHOICES not in placeless)
    assert any(tool.strict for tool in told) is (STRICT_TOOLS not in placeless)
