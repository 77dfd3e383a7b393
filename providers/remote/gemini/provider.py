"""`remote::gemini-native`: Gemini over its own API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence, Set
from contextlib import aclosing
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import structs
from pydantic import AfterValidator, Field

from llama_compat.dialects import gemini, gemini_interactions
from llama_compat.dialects.stop_lists import GEMINIS_STOPS, StopBound
from llama_compat.exchange import Call, Reply, Target
from llama_compat.fitting.hints import HintPlaces
from llama_compat.fitting.placeless import IMAGE_DETAIL, SPEAKERS, STRICT_TOOLS
from llama_compat.hosted.vocabulary import NAMES, WEB_SEARCH, HostedKind, WebSearchTool
from llama_compat.mixins import (
    ChatOnlyMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
)
from llama_compat.reasoning.recollection import ReasoningRule
from llama_compat.tools.names import GEMINI_NAMES
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    StreamEvent,
)
from providers.base import ProviderConfig, ProviderModel
from providers.remote.batches.base import VendorBatches
from providers.remote.batches.gemini import GeminiBatches
from providers.remote.config import HTTPURL
from providers.remote.gemini import interactions
from providers.remote.gemini import relay as gemini_relay
from providers.remote.relaying.json_objects import encode, read_object, read_reply
from providers.remote.upstream.images import (
    IMAGES_AND_DOCUMENTS,
    ImageFetchingConfig,
    ImageFetchingProvider,
)

API_VERSION = "v1beta"

_VERSION_IN_URL = re.compile(r"/v[0-9]+(alpha|beta)?[0-9]*(/|$)")


def _with_version(url: str) -> str:
    return url if _VERSION_IN_URL.search(url) else f"{url}/{API_VERSION}"


API = Literal["generate_content", "interactions"]


class GeminiConfig(ImageFetchingConfig):
    """The settings of `remote::gemini-native`."""

    base_url: Annotated[HTTPURL, AfterValidator(_with_version)] = (
        f"https://generativelanguage.googleapis.com/{API_VERSION}"
    )
    """With or without the API's version, which is v1beta unless told otherwise."""

    apis: Annotated[tuple[API, ...], Field(min_length=1)] = ("generate_content", "interactions")
    """Those of Google's that are there; calls that are translated go to the first. Models beside
    the core line are in Interactions alone."""

    hosted_tools: frozenset[HostedKind] | None = None
    """The tools that Google runs itself, whatever `server.tools` has; its search for calls of other
    APIs too, where they say nothing that it can't be told: no domains, no place, no number of
    searches, and no functions or JSON beside. Without it, Google's own address has all of them, on
    Vertex AI `web_search` and `web_fetch`."""


_GOOGLES = ".googleapis.com"
"""How the names of Google's own hosts end."""


class GeminiProvider(
    ChatOnlyMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
    ImageFetchingProvider,
):
    """Chats and embeds with the models of the Gemini API."""

    Config: ClassVar[type[ProviderConfig]] = GeminiConfig
    config: GeminiConfig

    parameters = gemini.RENDERED_PARAMETERS
    placeless = frozenset({IMAGE_DETAIL, SPEAKERS, STRICT_TOOLS})
    hint_places = HintPlaces(tiers=gemini.TIERS)
    tool_names = GEMINI_NAMES
    vendors_tools: Set[str] = frozenset(NAMES.values())
    embedding_parameters = frozenset({"dimensions"})
    relays: Set[str] = gemini_relay.METHODS.keys() | {interactions.WIRE}
    count_request = staticmethod(gemini.render_count_request)

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        apis = self.config.apis
        self._by_interactions = apis[0] == "interactions"
        if self._by_interactions:
            self.parameters = self.parameters & gemini_interactions.RENDERED_PARAMETERS
        if interactions.WIRE not in apis:
            self.relays = self.relays - {interactions.WIRE}
        if "generate_content" not in apis:
            self.relays = self.relays - {"gemini_generate"}

    @property
    def wants_reasoning_back(self) -> bool:
        """It does: its calls are signed."""
        return True

    def hosted_tools(self, wire: str) -> Set[str]:
        """All that Google has at its own address, or what the template names."""
        if self.config.hosted_tools is not None:
            return self.config.hosted_tools
        host = urlsplit(self.config.base_url).hostname or ""
        if not host.endswith(_GOOGLES):
            return frozenset()
        return self.vendors_tools

    def searches(self, tool: WebSearchTool, request: ChatCompletionRequest) -> bool:
        """Where Google's search is, which can't be told anything. Beside functions and JSON only
        some models take it (https://ai.google.dev/gemini-api/docs/google-search, 2026-11-23)."""
        wanted = request.response_format
        return (
            WEB_SEARCH in self.hosted_tools("gemini_generate")
            and gemini.searches(request.model)
            and tool == WebSearchTool(tool.name, context_size=tool.context_size)
            and request.has_one_hosted_tool_alone
            and (wanted is None or wanted.type == "text")
        )

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """Not to think is nothing that all models can be told."""
        if not isinstance(request, ChatCompletionRequest):
            return {}
        if self._by_interactions:
            return gemini_interactions.always_thinks(request)
        return gemini.always_thinks(request)

    def stop_bound(self, model: str) -> StopBound:
        """In both of its APIs."""
        return GEMINIS_STOPS

    def reasoning_rule(self, model: str) -> ReasoningRule:
        """Gemini's signatures are for Gemini."""
        return ReasoningRule(gemini.FAMILY, wanted=True)

    def batches(self) -> VendorBatches | None:
        """That of generateContent; Interactions has none."""
        return GeminiBatches(self.id, self.upstream, self.config.base_url)

    def request_headers(self) -> dict[str, str]:
        """The key."""
        return {"x-goog-api-key": self.api_key} if self.api_key else {}

    async def live_models(self) -> Sequence[str]:
        """What the vendor lists now.

        Raises:
            APIError: why it does not.
        """
        return await self.listed(self.upstream.get("/models?pageSize=1000"), gemini.parse_models)

    async def relay(self, call: Call, target: Target) -> Reply:
        """Pass a call of Gemini's own API on, and its reply back.

        Raises:
            APIError: whatever went wrong with the vendor.
        """
        if call.operation.name == interactions.WIRE:
            return await interactions.relay(self.id, self.upstream, call, target)
        return await gemini_relay.relay(self.id, self.upstream, call, target)

    async def kept_reply(
        self, wire: str, target: Target, reply_id: str, *, cancel: bool = False
    ) -> Reply:
        """An interaction that Google makes in the background, as it is now.

        Raises:
            APIError: whatever went wrong with Google.
        """
        return await interactions.kept_reply(self.id, self.upstream, reply_id, cancel=cancel)

    async def chat_completion(
        self, request: ChatCompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message of a conversation; images that have a URL are fetched first."""
        messages = await self.images.inline(request.messages, IMAGES_AND_DOCUMENTS)
        request = structs.replace(request, messages=messages)
        if self._by_interactions:
            said = interactions.chat(self.id, self.upstream, request)
            async with aclosing(said) as events:
                async for event in events:
                    yield event
            return
        body = encode(gemini.render_request(request))
        method = gemini_relay.METHODS["gemini_generate"]
        if request.stream:
            method = gemini_relay.STREAM_METHOD
        path = f"/{gemini.model_path(request.model)}:{method}"
        said = read_reply(
            self.id,
            self.upstream.post(path, body, request_id=request.request_id),
            gemini.parse_reply,
            gemini.StreamParser(),
            stream=request.stream,
            required=gemini_relay.REQUIRED["gemini_generate"],
        )
        async with aclosing(said) as events:
            async for event in events:
                yield event

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Turn texts into vectors, all in one request."""
        body = encode(gemini.render_embedding_request(request))
        wire = "gemini_batch_embed"
        path = f"/{gemini.model_path(request.model)}:{gemini_relay.METHODS[wire]}"
        async with self.upstream.post(path, body, request_id=request.request_id) as response:
            return await read_object(
                self.id, response, gemini.parse_embeddings, required=gemini_relay.REQUIRED[wire]
            )

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        """How many tokens the conversation has as a prompt, as the vendor counts.

        Raises:
            APIError: why it does not.
        """
        messages = await self.images.inline(request.messages, IMAGES_AND_DOCUMENTS)
        body = self.count_request(structs.replace(request, messages=messages))
        wire = "gemini_count_tokens"
        path = f"/{gemini.model_path(request.model)}:{gemini_relay.METHODS[wire]}"
        async with self.upstream.post(
            path, encode(body), request_id=request.request_id
        ) as response:
            return await read_object(
                self.id, response, gemini.parse_token_count, required=gemini_relay.REQUIRED[wire]
            )
