"""The settings of vendors that speak OpenAI."""

from __future__ import annotations

from typing import ClassVar, Literal

from llama_compat.hosted.vocabulary import HostedKind
from providers.remote.bedrock.settings import BedrockConfig
from providers.remote.http1 import Seconds
from providers.remote.upstream.images import ImageFetchingConfig

Wire = Literal[
    "chat",
    "completions",
    "embeddings",
    "responses",
    "messages",
    "moderations",
    "images",
    "image_edits",
    "speech",
    "transcriptions",
    "translations",
    "rerank",
    "voyage_rerank",
]

ReasoningField = Literal["reasoning", "reasoning_content", "reasoning_details", "extra_content"]


class RemoteOpenAIConfig(ImageFetchingConfig):
    """The settings of a vendor that speaks OpenAI."""

    keepalive_seconds: Seconds | None = None
    """Send a comment after so long a silence, also while a stream's first event is awaited. The
    status is 200 then, and an error comes as an event. Without it, nothing is sent until the vendor
    has answered."""

    wires: frozenset[Wire] | None = None
    """The client APIs and calls that the vendor has itself, in place of those that its row in the
    table has; calls of other APIs are translated to its chat completions, all others refused."""

    reasoning_fields: frozenset[ReasoningField] | None = None
    """In which members messages give back what a model thought, in place of those that the vendor's
    row in the table has; all others are left out. Where any are named, what a client loses of it in
    turns that call tools is put back."""

    hosted_tools: frozenset[HostedKind] | None = None
    """The tools that the vendor runs itself, in place of those that its row in the table has: calls
    that ask for no others are relayed, whatever `server.tools` has."""


class AzureConfig(RemoteOpenAIConfig):
    """The settings of Azure OpenAI."""

    api_version: str = "2024-10-21"
    """The version of its API, as https://learn.microsoft.com/azure lists them."""


class BedrockOpenAIConfig(BedrockConfig, RemoteOpenAIConfig):
    """The settings of Amazon Bedrock's OpenAI-compatible API."""

    path: ClassVar[str] = "/openai/v1"
