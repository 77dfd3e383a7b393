"""The adapters for a provider whose own side does not speak OpenAI.

A provider that answers in the vocabulary (`completion`, `chat_completion`, `embed`) inherits these,
and so answers whatever API a client speaks. One that only chats gets `completion` from
`ChatOnlyMixin`.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Protocol

from llama_compat.errors import invalid_parameter
from llama_compat.exchange import Call, Reply, Target
from llama_compat.fan_out import Events
from llama_compat.fitting.honoured import VocabularyProvider
from llama_compat.translation import answer_embedding, answer_generation
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    UserMessage,
)


class CompletionProvider(VocabularyProvider, Protocol):
    """What the mixins for completions need of the provider that they are mixed into."""

    def completion(self, request: CompletionRequest) -> Events:
        """Continue a prompt."""
        ...


class ChatProvider(VocabularyProvider, Protocol):
    """What the mixins for chats need of the provider that they are mixed into."""

    def chat_completion(self, request: ChatCompletionRequest) -> Events:
        """Say the next message of a conversation."""
        ...


class EmbeddingProvider(VocabularyProvider, Protocol):
    """What the mixin for embeddings needs of the provider that it is mixed into."""

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Turn texts into vectors."""
        ...


class OpenAICompletionUnsupportedMixin:
    """`openai_completion` for a provider whose side has no OpenAI completions."""

    async def openai_completion(self: CompletionProvider, call: Call, target: Target) -> Reply:
        """Answer a call that continues prompts, from `completion`.

        Raises:
            APIError: 400 for what the provider can't honour, or what it raised itself.
        """
        return await answer_generation(self, self.completion, call, target)


class OpenAIChatCompletionUnsupportedMixin:
    """`openai_chat_completion` for a provider whose side has no OpenAI chat completions."""

    async def openai_chat_completion(self: ChatProvider, call: Call, target: Target) -> Reply:
        """Answer a call that continues a conversation, from `chat_completion`.

        Raises:
            APIError: 400 for what the provider can't honour, or what it raised itself.
        """
        return await answer_generation(self, self.chat_completion, call, target)


class OpenAIEmbeddingsUnsupportedMixin:
    """`openai_embeddings` for a provider whose side has no OpenAI embeddings."""

    async def openai_embeddings(self: EmbeddingProvider, call: Call, target: Target) -> Reply:
        """Answer a call for embeddings, from `embed`.

        Raises:
            APIError: 400 for what the provider can't honour, 502 for other than one vector a text,
                or what the provider raised itself.
        """
        return await answer_embedding(self, self.embed, call, target)


class ChatOnlyMixin:
    """`completion` for a provider that only chats: the prompt is what the user says.

    The model answers the prompt rather than continuing it. What only a continuation has is refused:
    a prompt of token ids here, `echo`, `suffix` and `best_of` by the provider's `parameters`.
    """

    async def completion(self: ChatProvider, request: CompletionRequest) -> Events:
        """Answer the text prompt of `request`.

        Raises:
            APIError: 400 for a prompt of token ids, or what `chat_completion` raised.
        """
        if not isinstance(request.prompt, str):
            raise invalid_parameter(
                "prompt",
                f"Provider '{self.id}' has a chat API only and takes no token ids: send the prompt"
                " as text.",
            )
        chat = ChatCompletionRequest(
            model=request.model,
            messages=(UserMessage(request.prompt),),
            sampling=request.sampling,
            logprobs=request.logprobs,
            stream=request.stream,
            request_id=request.request_id,
            context_length=request.context_length,
            prepared=request.prepared,
            mark=request.mark,
        )
        async with aclosing(self.chat_completion(chat)) as events:
            async for event in events:
                yield event
