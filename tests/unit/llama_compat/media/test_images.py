"""Images where a vendor takes none, or none of their type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from llama_compat.dialects import anthropic_messages, bedrock_converse, gemini, gemini_interactions
from llama_compat.errors import UnsupportedHere
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    UserMessage,
)

PIXEL = ImageContent("data:image/png;base64,iVBORw0KGgo=")
HI = UserMessage("Hi")

WIRES: dict[str, Callable[[ChatCompletionRequest], Any]] = {
    "anthropic": lambda asked: anthropic_messages.render_request(asked, default_max_tokens=9),
    "bedrock": bedrock_converse.render_request,
    "gemini": gemini.render_request,
    "interactions": gemini_interactions.render_request,
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("content", [(PIXEL,), (TextContent("See"), PIXEL)])
def test_instructions_with_an_image_are_left_to_who_takes_them(
    wire: str, content: Sequence[Any]
) -> None:
    """As those with audio or a document are: it is no fault of the request's."""
    with pytest.raises(UnsupportedHere) as refused:
        WIRES[wire](ChatCompletionRequest("claude-x", (SystemMessage(tuple(content)), HI)))
    assert (refused.value.status, refused.value.param) == (400, "messages[0].content")


@pytest.mark.parametrize("wire", ["anthropic", "bedrock", "gemini"])
def test_an_image_that_a_model_said_is_left_to_who_takes_it(wire: str) -> None:
    said: Sequence[Message] = (HI, CompletionMessage((PIXEL,)), HI)
    with pytest.raises(UnsupportedHere, match=r"messages\[1\]\.content"):
        WIRES[wire](ChatCompletionRequest("claude-x", tuple(said)))


@pytest.mark.parametrize("wire", ["anthropic", "bedrock"])
def test_an_image_of_a_type_that_is_not_taken_is_left_to_who_takes_it(wire: str) -> None:
    bitmap = ImageContent("data:image/bmp;base64,Qk0=")
    with pytest.raises(UnsupportedHere, match="image/bmp") as refused:
        WIRES[wire](ChatCompletionRequest("claude-x", (UserMessage((bitmap,)),)))
    assert refused.value.code == "unsupported_content"
