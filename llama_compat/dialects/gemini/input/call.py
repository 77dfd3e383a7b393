"""One request of a client for generateContent or countTokens, and the way back to the client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.dialects.base import Labels
from llama_compat.dialects.choices import SeveralChoices
from llama_compat.dialects.gemini.frames import EventFrame, Frame
from llama_compat.dialects.gemini.input.contents import parse_contents, parse_system
from llama_compat.dialects.gemini.input.generation_config import (
    config_in,
    includes_thoughts,
    parse_candidate_count,
    parse_logprobs_config,
    parse_response_format,
    parse_sampling_config,
    parse_thinking,
)
from llama_compat.dialects.gemini.input.tools import parse_hosted, parse_tools
from llama_compat.dialects.gemini.members import member, object_in
from llama_compat.dialects.gemini.requests import parse_tier
from llama_compat.dialects.gemini.responses import ResponseRenderer, render_response
from llama_compat.types import ChatCompletionRequest, ChatCompletionResponse, Usage


class GenerateCall(SeveralChoices, frozen=True):
    """One request as it came: what is asked of the model, how often, and how to answer."""

    include_thoughts: bool = False
    new_frame: Callable[[], Frame] = EventFrame

    def render_reply(
        self, responses: Sequence[ChatCompletionResponse], usage: Usage, labels: Labels
    ) -> bytes:
        """The one response of a reply that is not streamed."""
        return render_response(responses, usage, labels, include_thoughts=self.include_thoughts)

    def stream_renderer(self, labels: Labels) -> ResponseRenderer:
        """A renderer of responses."""
        return ResponseRenderer(
            labels,
            self.new_frame(),
            include_thoughts=self.include_thoughts,
            cites=bool(self.request.hosted),
        )


class CountCall(Struct, frozen=True):
    """One request to count tokens, and how to answer it."""

    request: ChatCompletionRequest

    def render_reply(self, tokens: int) -> bytes:
        """The object with the count."""
        return msgspec.json.encode({"totalTokens": tokens})


def parse_generate(
    body: Mapping[str, Any],
    model: str,
    *,
    stream: bool = False,
    new_frame: Callable[[], Frame] = EventFrame,
) -> GenerateCall:
    """The request `body` for the provider's `model`.

    Raises:
        APIError: 400 naming what is malformed.
    """
    config = config_in(body)
    tools, tool_choice = parse_tools(body)
    request = ChatCompletionRequest(
        model=model,
        messages=(
            *parse_system(member(body, "systemInstruction")),
            *parse_contents(body.get("contents")),
        ),
        sampling=parse_sampling_config(config),
        tools=tools,
        tool_choice=tool_choice,
        response_format=parse_response_format(config),
        reasoning_effort=parse_thinking(config),
        logprobs=parse_logprobs_config(config),
        stream=stream,
        service_tier=parse_tier(member(body, "serviceTier")),
        hosted=parse_hosted(body, {each.tool_name for each in tools}),
    )
    return GenerateCall(
        request, parse_candidate_count(config), includes_thoughts(config), new_frame
    )


def parse_count(body: Mapping[str, Any], model: str) -> CountCall:
    """The request `body` to count the tokens of contents, or of a whole request for an answer.

    Raises:
        APIError: 400 naming what is malformed.
    """
    whole = member(body, "generateContentRequest")
    if whole is not None:
        body = object_in(whole, "generateContentRequest")
    return CountCall(parse_generate(body, model).request)
