"""One request of a client for `/api/chat` or `/api/generate`, and the way back to the client."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from llama_compat.dialects.base import Labels
from llama_compat.dialects.members import optional_text_in
from llama_compat.dialects.ollama.lines import (
    LineRenderer,
    Said,
    chat_said,
    generate_said,
    render_reply,
)
from llama_compat.dialects.ollama.messages import parse_content, parse_messages
from llama_compat.dialects.ollama.options import parse_format, parse_options, parse_think
from llama_compat.dialects.openai.chat.requests import parse_tools
from llama_compat.dialects.openai.parameters import CHAT_CHECKS
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionRequest,
    CompletionResponse,
    Message,
    SystemMessage,
    Usage,
    UserMessage,
)


class GenerationCall(Struct, frozen=True):
    """One request as it came: what is asked of the model, and how to answer."""

    request: ChatCompletionRequest | CompletionRequest
    said: Said
    began: int = field(default_factory=time.perf_counter_ns)

    @property
    def requests(self) -> Any:
        """The one request that there is."""
        return [self.request]

    @property
    def choices_per_prompt(self) -> int:
        return 1

    def render_reply(
        self,
        responses: Sequence[ChatCompletionResponse | CompletionResponse],
        usage: Usage,
        labels: Labels,
    ) -> bytes:
        """The one object of a reply that is not streamed."""
        return render_reply(responses[0], usage, labels, self.said, self.began)

    def stream_renderer(self, labels: Labels) -> LineRenderer:
        """A renderer of lines."""
        return LineRenderer(labels, self.said, self.began)


def parse_chat(body: Mapping[str, Any], model: str) -> GenerationCall:
    """The request `body` for `/api/chat`, for the provider's `model`.

    Raises:
        APIError: 400 naming what is malformed.
    """
    request = ChatCompletionRequest(
        model=model,
        messages=parse_messages(body.get("messages")),
        tools=parse_tools(_typed_tools(body.get("tools"))),
        **_common(body),
    )
    return GenerationCall(request, chat_said)


def parse_generate(body: Mapping[str, Any], model: str) -> GenerationCall:
    """The request `body` for `/api/generate`, whose prompt is what the user says.

    Raises:
        APIError: 400 naming what is malformed.
    """
    if optional_text_in(body, "prompt") is None:
        raise missing_parameter("prompt")
    system = optional_text_in(body, "system")
    messages: list[Message] = [SystemMessage(system)] if system else []
    messages.append(UserMessage(parse_content(body, "", "prompt")))
    request = ChatCompletionRequest(model=model, messages=tuple(messages), **_common(body))
    return GenerationCall(request, generate_said)


def parse_raw_generate(body: Mapping[str, Any], model: str) -> GenerationCall:
    """The request `body` for `/api/generate` in raw mode: the prompt is continued as it is.

    Raises:
        APIError: 400 naming what is malformed, or has no place beside a raw prompt.
    """
    for name in ("system", "template", "context"):
        if body.get(name):
            raise invalid_parameter(
                name, f"'{name}' can't go together with 'raw', which has no template."
            )
    prompt = optional_text_in(body, "prompt")
    if prompt is None:
        raise missing_parameter("prompt")
    request = CompletionRequest(
        model=model,
        prompt=prompt,
        sampling=parse_options(body.get("options")),
        logprobs=_logprobs(body),
        stream=body.get("stream") is not False,
    )
    return GenerationCall(request, generate_said)


def _common(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "sampling": parse_options(body.get("options")),
        "response_format": parse_format(body.get("format")),
        "reasoning_effort": parse_think(body.get("think")),
        "logprobs": _logprobs(body),
        "stream": body.get("stream") is not False,
    }


def _logprobs(body: Mapping[str, Any]) -> int | None:
    for name in ("logprobs", "top_logprobs"):
        if body.get(name) is not None:
            CHAT_CHECKS[name](name, body[name])
    return (body.get("top_logprobs") or 0) if body.get("logprobs") else None


def _typed_tools(value: Any) -> Any:
    # The type goes without saying: there is but one.
    if not isinstance(value, list):
        return value
    return [{"type": "function", **tool} if isinstance(tool, dict) else tool for tool in value]
