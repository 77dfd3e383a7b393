"""`remote::ollama-native`: Ollama over its own API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import ClassVar

from msgspec import structs

from llama_compat.dialects import ollama
from llama_compat.exchange import Call, Reply, Target
from llama_compat.fitting.placeless import (
    IMAGE_DETAIL,
    SPEAKERS,
    STRICT_TOOLS,
    TOOL_CHOICES,
)
from llama_compat.mixins import (
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
)
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    StreamEvent,
)
from llama_compat.wire.json_lines import NEWLINE
from providers.base import ProviderConfig
from providers.remote.config import HTTPURL
from providers.remote.ollama import relay as ollama_relay
from providers.remote.relaying.json_objects import encode, read_lines, read_object
from providers.remote.upstream.images import ImageFetchingConfig, ImageFetchingProvider


class OllamaConfig(ImageFetchingConfig):
    """The settings of `remote::ollama-native`."""

    base_url: HTTPURL = "http://localhost:11434"


class OllamaProvider(
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
    ImageFetchingProvider,
):
    """Chats, continues prompts and embeds with the models of one Ollama server."""

    Config: ClassVar[type[ProviderConfig]] = OllamaConfig
    config: OllamaConfig

    parameters = ollama.RENDERED_PARAMETERS
    # Of parameters it reads little but the properties (its `api.ToolFunctionParameters`).
    placeless = frozenset({IMAGE_DETAIL, SPEAKERS, STRICT_TOOLS, TOOL_CHOICES})
    embedding_parameters = frozenset({"dimensions"})
    relays = ollama_relay.PATHS.keys()

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """Ollama leaves it to the model whether it calls tools."""
        choice = getattr(request, "tool_choice", None)
        if choice is not None and choice.mode == "required":
            return {"tool_choice": "Ollama can't force a tool call; it knows 'auto' and 'none'"}
        return {}

    async def live_models(self) -> Sequence[str]:
        """What it lists now.

        Raises:
            APIError: why it does not.
        """
        return await self.listed(self.upstream.get("/api/tags"), ollama.parse_models)

    async def relay(self, call: Call, target: Target) -> Reply:
        """Pass a call of Ollama's own API on, and its reply back.

        Raises:
            APIError: whatever went wrong with the vendor.
        """
        return await ollama_relay.relay(self.id, self.upstream, call, target)

    async def chat_completion(
        self, request: ChatCompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message of a conversation; images that have a URL are fetched first."""
        messages = await self.images.inline(request.messages)
        async with aclosing(
            self._generate("/api/chat", structs.replace(request, messages=messages))
        ) as events:
            async for event in events:
                yield event

    def completion(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Continue a prompt, in Ollama's raw mode."""
        return self._generate("/api/generate", request)

    async def _generate(
        self, path: str, request: ChatCompletionRequest | CompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        body = ollama.render_request(request, context_length=request.context_length)
        async with (
            self.upstream.post(path, encode(body), request_id=request.request_id) as response,
            aclosing(
                read_lines(
                    self.id,
                    response,
                    ollama.StreamParser(),
                    NEWLINE,
                    members=("message", "response"),
                )
            ) as events,
        ):
            async for event in events:
                yield event

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Turn texts into vectors, all in one request."""
        body = encode(ollama.render_embedding_request(request))
        async with self.upstream.post(
            "/api/embed", body, request_id=request.request_id
        ) as response:
            return await read_object(
                self.id, response, ollama.parse_embeddings, required=["embeddings"]
            )
