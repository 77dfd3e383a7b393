"""One request to the Messages API as a client sent it, and the way back to the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from llama_compat.dialects.anthropic_messages.errors import threads_unsupported
from llama_compat.dialects.anthropic_messages.input.conversations import (
    parse_messages,
    parse_system,
)
from llama_compat.dialects.anthropic_messages.input.deferred import withheld_tools
from llama_compat.dialects.anthropic_messages.input.hosted import parse_hosted
from llama_compat.dialects.anthropic_messages.input.parameters import (
    parse_adaptive,
    parse_effort,
    parse_format,
    parse_service_tier,
    parse_settings,
    parse_tool_choice,
    parse_tools,
    parse_user,
)
from llama_compat.dialects.anthropic_messages.rendering import StreamRenderer, render_reply
from llama_compat.dialects.base import Labels
from llama_compat.dialects.choices import SingleChoice
from llama_compat.types import ChatCompletionRequest, ChatCompletionResponse, Usage
from llama_compat.wire.json_fields import encode_json


class MessagesCall(SingleChoice, frozen=True):
    """One request for a message."""

    def render_reply(
        self, responses: Sequence[ChatCompletionResponse], usage: Usage, labels: Labels
    ) -> bytes:
        """The message."""
        (response,) = responses
        return encode_json(render_reply(response, usage, labels))

    def stream_renderer(self, labels: Labels) -> StreamRenderer:
        """A renderer of the message's events."""
        return StreamRenderer(labels)


class TokenCountCall(Struct, frozen=True):
    """One request to count tokens."""

    request: ChatCompletionRequest

    def render_reply(self, tokens: int) -> bytes:
        """The count."""
        return encode_json({"input_tokens": tokens})


def parse_request(body: Mapping[str, Any], model: str) -> MessagesCall:
    """The request `body` for a message from the provider's `model`.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    return MessagesCall(_parse(body, model))


def parse_token_count(body: Mapping[str, Any], model: str) -> TokenCountCall:
    """The request `body` to count what `model` would read; tools of Anthropic's own don't count.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    return TokenCountCall(_parse(body, model))


def _parse(body: Mapping[str, Any], model: str) -> ChatCompletionRequest:
    if body.get("thread") is not None:
        raise threads_unsupported()
    declared = parse_tools(body.get("tools"))
    withheld = withheld_tools(body)
    tools = tuple(each for each in declared if each.tool_name not in withheld)
    hosted = parse_hosted(body, {each.tool_name for each in declared})
    choice, parallel = parse_tool_choice(body.get("tool_choice"))
    return ChatCompletionRequest(
        model=model,
        messages=(*parse_system(body.get("system")), *parse_messages(body.get("messages"))),
        sampling=parse_settings(body),
        tools=tools,
        tool_choice=choice if tools or hosted else None,
        parallel_tool_calls=parallel if tools or hosted else None,
        response_format=parse_format(body),
        reasoning_effort=parse_effort(body),
        stream=bool(body.get("stream")),
        adaptive_thinking=parse_adaptive(body),
        service_tier=parse_service_tier(body.get("service_tier")),
        user=parse_user(body.get("metadata")),
        hosted=hosted,
    )
