"""One chat request as a client sent it, and the way back to the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.dialects.base import Labels
from llama_compat.dialects.choices import SeveralChoices
from llama_compat.dialects.members import optional_text_in
from llama_compat.dialects.openai.chat.hosted import parse_hosted
from llama_compat.dialects.openai.chat.replies import render_reply
from llama_compat.dialects.openai.chat.requests import (
    parse_messages,
    parse_response_format,
)
from llama_compat.dialects.openai.chat.streams import StreamRenderer
from llama_compat.dialects.openai.chat.tools.asked import FUNCTIONS, CallForm, parse_asked_tools
from llama_compat.dialects.openai.chat.tools.choice import parse_choice
from llama_compat.dialects.openai.chunks import EncodedChunks
from llama_compat.dialects.openai.parameters import parse_metadata, parse_sampling
from llama_compat.dialects.openai.usage import parse_service_tier
from llama_compat.types import ChatCompletionRequest, ChatCompletionResponse, Usage
from llama_compat.wire.json_fields import encode_json


class ChatCall(SeveralChoices, frozen=True):
    """One request as it came: what is asked of the model, how often, and how to answer; calls are
    in `form`."""

    stream: bool = False
    include_usage: bool = False
    form: CallForm = FUNCTIONS

    def render_reply(
        self, responses: Sequence[ChatCompletionResponse], usage: Usage, labels: Labels
    ) -> bytes:
        """The `chat.completion` object."""
        return encode_json(render_reply(responses, usage, **_said_of(labels), form=self.form))

    def stream_renderer(self, labels: Labels) -> EncodedChunks:
        """A renderer of `chat.completion.chunk` objects."""
        return EncodedChunks(
            StreamRenderer(
                **_said_of(labels),
                include_usage=self.include_usage,
                cites=bool(self.request.hosted),
                form=self.form,
            )
        )


def _said_of(labels: Labels) -> dict[str, Any]:
    return {
        "reply_id": f"chatcmpl-{labels.unique}",
        "model": labels.model,
        "created": labels.created,
    }


def parse_request(body: Mapping[str, Any], model: str) -> ChatCall:
    """The request `body`, its parameters already checked, for the provider's `model`.

    Raises:
        APIError: 400 naming the message or tool that is malformed.
    """
    wanted = body.get("logprobs")
    asked = parse_asked_tools(body)
    choice, offered = parse_choice(body, asked)
    request = ChatCompletionRequest(
        model=model,
        messages=parse_messages(body.get("messages")),
        sampling=parse_sampling(body),
        tools=offered,
        tool_choice=choice,
        # The older form has a place for one call alone.
        parallel_tool_calls=False if asked.form.older else body.get("parallel_tool_calls"),
        response_format=parse_response_format(body.get("response_format")),
        reasoning_effort=optional_text_in(body, "reasoning_effort"),
        verbosity=optional_text_in(body, "verbosity"),
        logprobs=(body.get("top_logprobs") or 0) if wanted else None,
        stream=bool(body.get("stream")),
        return_token_ids=bool(body.get("return_token_ids")),
        template_variables=body.get("chat_template_kwargs") or None,
        service_tier=parse_service_tier(body),
        user=optional_text_in(body, "user") or None,
        safety_identifier=optional_text_in(body, "safety_identifier") or None,
        metadata=parse_metadata(body),
        prompt_cache_key=optional_text_in(body, "prompt_cache_key"),
        prompt_cache_retention=optional_text_in(body, "prompt_cache_retention"),
        hosted=parse_hosted(body, {each.tool_name for each in asked.definitions}),
    )
    return ChatCall(
        request=request,
        n=body.get("n") or 1,
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        form=asked.form,
    )
