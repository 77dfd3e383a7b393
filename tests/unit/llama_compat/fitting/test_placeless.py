"""What of messages and tools is left out where a provider has no place for it."""

from __future__ import annotations

import pytest

from llama_compat.fitting.placeless import SPEAKERS, STRICT_TOOLS, without_placeless
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
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
STRICT, OPEN = ToolDefinition("f", strict=True), ToolDefinition("f", strict=False)


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
