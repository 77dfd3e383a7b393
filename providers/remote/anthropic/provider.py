"""`remote::anthropic-messages`: Anthropic, and whoever has the same API, over the Messages API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from llama_compat.dialects import anthropic_messages
from llama_compat.exchange import Call, Reply, Target
from llama_compat.mixins import (
    ChatOnlyMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
)
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    StreamEvent,
    ThinkingForm,
    temperature_of,
)
from providers.base import ProviderConfig
from providers.remote.anthropic.relay import VERSION, relay_messages
from providers.remote.config import HTTPURL, RemoteConfig
from providers.remote.provider import RemoteProvider
from providers.remote.relaying.json_objects import encode, read_object, read_reply
from providers.remote.upstream.exchanges import UpstreamExchange

_PATHS = {"messages": "/v1/messages", "count_tokens": "/v1/messages/count_tokens"}


class AnthropicMessagesConfig(RemoteConfig):
    """The settings of `remote::anthropic-messages`."""

    base_url: Annotated[HTTPURL, AfterValidator(lambda url: url.removesuffix("/v1"))] = (
        "https://api.anthropic.com"
    )
    """With or without the `/v1` that all paths begin with."""

    version: str = VERSION
    """The `anthropic-version` that is asked for, unless the client names one."""

    betas: tuple[str, ...] = ()
    """The `anthropic-beta` features that are asked for, besides the client's."""

    default_max_tokens: int = Field(4096, gt=0)
    """The limit where the caller sets none: the API wants one. It is no more than the model's
    `context_length`."""

    thinking: Literal["adaptive", "budget"] | None = None
    """How `reasoning_effort` is said: as an effort, to Claude 4.6 and later, or as a number of
    tokens, to Claude 4.5 and earlier. Without it, as the catalogue has it of the model, and as an
    effort where that does not know it."""

    thinking_display: Literal["summarized", "omitted"] | None = None
    """Whether thinking is shown; by default as the model has it."""


_COUNTED = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config")
"""Members of a request that its count takes."""


class AnthropicMessagesProvider(
    ChatOnlyMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    RemoteProvider,
):
    """Chats with the models behind one Messages API."""

    Config: ClassVar[type[ProviderConfig]] = AnthropicMessagesConfig
    config: AnthropicMessagesConfig
    relays = _PATHS.keys()

    parameters = frozenset(
        {
            "max_completion_tokens",
            "max_tokens",
            "parallel_tool_calls",
            "reasoning_effort",
            "response_format",
            "stop",
            "temperature",
            "tool_choice",
            "tools",
            "top_k",
            "top_p",
        }
    )

    def request_headers(self) -> dict[str, str]:
        """The key, the version and the betas."""
        headers = {"anthropic-version": self.config.version}
        if self.api_key:
            headers["x-api-key"] = self.api_key
        if self.config.betas:
            headers["anthropic-beta"] = ",".join(self.config.betas)
        return headers

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """What has no form in this API."""
        refused = {}
        if temperature_of(request.sampling) > anthropic_messages.MAX_TEMPERATURE:
            refused["temperature"] = "Anthropic's goes from 0 to 1"
        if (
            isinstance(request, ChatCompletionRequest)
            and anthropic_messages.wants_json_object(request)
            and request.tools
        ):
            refused["response_format"] = (
                "'json_object' is a forced tool call for Anthropic, so it can't go together with"
                " tools; 'json_schema' can"
            )
        return refused

    async def live_models(self) -> Sequence[str]:
        """What the vendor lists now.

        Raises:
            APIError: why it does not.
        """
        async with self.upstream.get("/v1/models?limit=1000") as response:
            return await read_object(
                self.id,
                response,
                anthropic_messages.parse_models,
                max_bytes=self.config.max_list_bytes,
            )

    async def relay(self, call: Call, target: Target) -> Reply:
        """Pass a call on to the vendor, and its reply back.

        Raises:
            APIError: whatever went wrong with the vendor.
        """

        def post(body: bytes, headers: Mapping[str, str]) -> UpstreamExchange:
            return self.upstream.post(
                _PATHS[call.operation.name],
                body,
                request_id=call.request_id,
                headers={**headers, **self._versions(call.headers)},
            )

        return await relay_messages(self.id, call, target.model, post)

    def _versions(self, asked: Mapping[str, str]) -> dict[str, str]:
        """What the client asks for, word by word, and what the template adds to it."""
        versions = {"anthropic-version": asked.get("anthropic-version", self.config.version)}
        beta = asked.get("anthropic-beta", "")
        named = {each.strip() for each in beta.split(",")}
        betas = [beta, *(each for each in self.config.betas if each not in named)]
        if any(betas):
            versions["anthropic-beta"] = ",".join(filter(None, betas))
        return versions

    def chat_completion(self, request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message of a conversation."""
        body = anthropic_messages.render_request(
            request,
            default_max_tokens=self._default_max_tokens(request),
            thinking=self._thinking(request),
        )
        json_object = anthropic_messages.wants_json_object(request)
        return read_reply(
            self.id,
            self._post("messages", body, request.request_id),
            partial(anthropic_messages.parse_reply, json_object=json_object),
            anthropic_messages.StreamParser(json_object=json_object),
            stream=request.stream,
            required=["content"],
        )

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        """How many tokens the vendor counts in the conversation and its tools."""
        rendered = anthropic_messages.render_request(
            request,
            default_max_tokens=self._default_max_tokens(request),
            thinking=self._thinking(request),
        )
        body = {name: rendered[name] for name in _COUNTED if name in rendered}
        async with self._post("count_tokens", body, request.request_id) as response:
            return await read_object(
                self.id, response, anthropic_messages.parse_token_reply, required=["input_tokens"]
            )

    def _post(self, operation: str, body: dict[str, Any], request_id: str) -> UpstreamExchange:
        """Send what was rendered to where an operation is."""
        return self.upstream.post(_PATHS[operation], encode(body), request_id=request_id)

    def _thinking(self, request: ChatCompletionRequest) -> anthropic_messages.Thinking:
        form = request.thinking or ThinkingForm()
        known: Literal["adaptive", "budget"] = "budget" if form.how == "budget" else "adaptive"
        return anthropic_messages.Thinking(
            self.config.thinking or known, self.config.thinking_display, form.off or "disabled"
        )

    def _default_max_tokens(self, request: ChatCompletionRequest) -> int:
        default = self.config.default_max_tokens
        return min(default, request.context_length or default)
