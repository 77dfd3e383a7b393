"""Providers whose vendor speaks OpenAI: the request is passed on, the reply is relayed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

from msgspec import Raw, structs

from llama_compat.catalog.makers import reasoning_family
from llama_compat.dialects.openai import chat, completions, embeddings
from llama_compat.dialects.openai.models import parse_models
from llama_compat.dialects.openai_responses import requests as responses
from llama_compat.dialects.rerank.replies import parse_reply as parse_ranked
from llama_compat.dialects.rerank.requests import render_request as render_rerank
from llama_compat.dialects.stop_lists import NO_STOPS, StopBound
from llama_compat.errors import unsupported_capability, unsupported_parameter, upstream_error
from llama_compat.events import with_told
from llama_compat.exchange import Call, Reply, Target
from llama_compat.fitting.hints import places_but_for
from llama_compat.fitting.placeless import SPEAKERS, TOOL_CHOICES
from llama_compat.hosted.asked.named import has_search_options
from llama_compat.hosted.vocabulary import WEB_SEARCH, WebSearchTool
from llama_compat.media.documents import have_addresses
from llama_compat.mixins import (
    ChatOnlyMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
)
from llama_compat.reasoning.recollection import ReasoningRule
from llama_compat.tools.names import OPENAI_NAMES
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    RerankRequest,
    RerankResponse,
    StreamEvent,
)
from llama_compat.wire.json_fields import encode_fields, to_raw
from providers.base import ProviderConfig, ProviderModel
from providers.remote.anthropic.relay import relay_messages
from providers.remote.batches.base import VendorBatches
from providers.remote.batches.openai import OpenAIBatches
from providers.remote.openai import calling
from providers.remote.openai.events import read_chat, read_completion, read_response
from providers.remote.openai.messages import MessageForm
from providers.remote.openai.relays.completions import relay_completion
from providers.remote.openai.relays.media import media_request, relay_media
from providers.remote.openai.relays.responses import relay_responses, whole_response
from providers.remote.openai.requests import (
    vendor_fields,
    vendor_model,
)
from providers.remote.openai.searching import in_chats, in_responses
from providers.remote.openai.settings import RemoteOpenAIConfig
from providers.remote.openai.vendor import Vendor
from providers.remote.openai.wires import RERANK_PARAMETERS, RERANK_SHAPES, VendorWires
from providers.remote.provider import RemoteProvider
from providers.remote.relaying.json_objects import encode, read_object
from providers.remote.upstream.exchanges import UpstreamExchange, UpstreamResponse
from providers.remote.upstream.images import ImageFetchingProvider
from providers.remote.upstream.vendor_errors import missing_api_key

_NONE: frozenset[str] = frozenset()
_NO_SPEAKERS = frozenset({SPEAKERS})
_FALSE = Raw(b"false")

_SEEN_TO_HERE = frozenset({"parallel_tool_calls"})
"""What a vendor need not be told, and is not if it refuses it: of several calls the first alone
comes through (`llama_compat.translation`)."""


class RemoteOpenAIProvider(
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
    ImageFetchingProvider,
):
    """A vendor whose API is OpenAI's.

    Args:
        provider_id, config, models: as for every provider.
        vendor: what is particular about it, a row of the table `VENDORS`.
    """

    Config: ClassVar[type[ProviderConfig]] = RemoteOpenAIConfig
    config: RemoteOpenAIConfig
    parameters = chat.RENDERED_PARAMETERS | completions.RENDERED_PARAMETERS
    embedding_parameters = frozenset({"dimensions"})
    tool_names = OPENAI_NAMES

    def __init__(
        self,
        provider_id: str,
        config: ProviderConfig,
        models: Sequence[ProviderModel],
        *,
        vendor: Vendor,
    ) -> None:
        self.vendor = vendor
        super().__init__(provider_id, config, models)
        self._api_version = getattr(config, "api_version", "")
        self._wires = VendorWires(
            self.id, self.config.base_url, vendor.wires, self.config.wires, self._api_version
        )
        self.relays = self._wires.names
        self._responds = self._wires.responds_alone
        named_fields = self.config.reasoning_fields
        taken = vendor.reasoning_fields if named_fields is None else named_fields
        self._messages = MessageForm(vendor, taken, self.images)
        self._rerank_wire = next((wire for wire in RERANK_SHAPES if wire in self._wires), "rerank")
        self.rerank_parameters = RERANK_PARAMETERS[self._rerank_wire]
        if not vendor.takes_speakers:
            self.placeless = _NO_SPEAKERS
        if not vendor.takes_tool_choices:
            self.placeless |= {TOOL_CHOICES}
        refused = vendor.refused | self.config.unsupported_parameters
        self.hint_places = places_but_for(refused)
        self.parameters = self._rendered_parameters() - (refused - _SEEN_TO_HERE)
        self.embedding_parameters = self.embedding_parameters - vendor.refused
        self._refusing = replace(vendor, refused=refused)
        self.keepalive_seconds = self.config.keepalive_seconds

    def _rendered_parameters(self) -> frozenset[str]:
        """What there are words for in the wires that it is asked by."""
        if self._responds:
            return responses.RENDERED_PARAMETERS | {"stop"}
        if "completions" not in self._wires:
            return chat.RENDERED_PARAMETERS
        return chat.RENDERED_PARAMETERS | completions.RENDERED_PARAMETERS

    def is_same_vendor(self, other: RemoteProvider) -> bool:
        """Whether the other one's vendor is this one's, at the same address."""
        same_row = isinstance(other, RemoteOpenAIProvider) and other.vendor == self.vendor
        return same_row and super().is_same_vendor(other)

    def hosted_tools(self, wire: str) -> Set[str]:
        """As its row in the table, or the template, has them."""
        named = self.config.hosted_tools
        if named is not None:
            return named
        if self.vendor.base_url is not None and not self._is_vendors_own:
            return frozenset()  # Somebody else answers there.
        return self.vendor.hosted_tools.get(wire, frozenset())

    def searches(self, tool: WebSearchTool, request: ChatCompletionRequest) -> bool:
        """Where its chat completions have a search, which can be told where the user is, and no
        more; they have no functions beside it. OpenAI has models of their own for it (openai
        3.52.0, types/chat/completion_create_params.py, 2026-11-23). All others search for who asks
        them for a response, where the vendor has that too."""
        if not in_chats(request.model):
            return self._has_search("responses") and in_responses(tool, request)
        alike = WebSearchTool(tool.name, location=tool.location, context_size=tool.context_size)
        return self._has_search("chat") and tool == alike and request.has_one_hosted_tool_alone

    def searches_elsewhere(self, call: Call, model: str) -> bool:
        """In chats, for all models but those that search there."""
        if call.operation.name != "chat" or not has_search_options(call.fields):
            return False
        known = WEB_SEARCH in self.vendor.hosted_tools.get("chat", _NONE)
        searches = self._has_search("responses") or (self._is_vendors_own and known)
        return searches and not in_chats(model)

    def calls_elsewhere(self, call: Call, target: Target) -> bool:
        """In responses, where it has them."""
        return "responses" in self._wires and calling.is_refused_in_chats(call, target)

    def is_seen_to_here(self, call: Call) -> bool:
        """That calls come one by one, where the vendor can't be told so."""
        if call.operation.name != "chat" or _SEEN_TO_HERE.isdisjoint(self._refusing.refused):
            return False
        return call.fields.get("parallel_tool_calls") == _FALSE

    def _has_search(self, wire: str) -> bool:
        known = self.vendor.hosted_tools.get(wire, _NONE)
        return wire in self._wires and WEB_SEARCH in self.hosted_tools(wire) & known

    def stop_bound(self, model: str) -> StopBound:
        """As its row in the table has it; none where all that it has is responses."""
        return NO_STOPS if self._responds else self.vendor.stops

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """What has no form in responses, where those are all that it has, or functions called."""
        if self._responds:
            return responses.unsupported_values(request)
        return calling.unsupported_values(request) if "responses" in self._wires else {}

    def batches(self) -> VendorBatches | None:
        """As its row in the table has it."""
        row = self.vendor.batches
        if row is None:
            return None
        return OpenAIBatches(self.id, self.upstream, self.config.base_url, row)

    def request_headers(self) -> dict[str, str]:
        """The vendor's own, and the key in the way that it wants it."""
        headers = dict(self.vendor.headers)
        if self.api_key:
            headers[self.vendor.key_header] = self.vendor.key_format.format(key=self.api_key)
        return headers

    async def live_models(self) -> Sequence[str]:
        """What the vendor lists now.

        Raises:
            APIError: why it does not.
        """
        self._check_key()
        path = self.vendor.models_path.format(api_version=self._api_version)
        headers = {
            name: value.format(key=self.api_key)
            for name, value in self.vendor.models_headers.items()
        }
        async with self.upstream.get(path, headers=headers) as response:
            body = await response.read(self.config.max_list_bytes)
        try:
            return parse_models(body, self.vendor.model_prefix)
        except ValueError as error:
            raise upstream_error(self.id, f"{error}.") from None

    # Relayed --------------------------------------------------------------------------------------

    def relay(self, call: Call, target: Target) -> Coroutine[Any, Any, Reply]:
        """Pass a call on to the vendor, and its reply back, mended.

        Raises:
            APIError: 400 for what the vendor can't honour; whatever went wrong with the vendor.
        """
        self._check_key()
        return _RELAYS[call.operation.name](self, call, target)

    async def _relay_messages(self, call: Call, target: Target) -> Reply:
        path, base_url = self._place(call.operation.name, target.model)

        def post(body: bytes, headers: Mapping[str, str]) -> UpstreamExchange:
            return self.upstream.post(
                path,
                body,
                request_id=call.request_id,
                base_url=base_url,
                # Anthropic's own header for a key, besides the one that the vendor usually wants.
                headers={**headers, **({"x-api-key": self.api_key} if self.api_key else {})},
            )

        model = vendor_model(target.model, self.vendor)
        return await relay_messages(
            self.id,
            call,
            model,
            post,
            marks=target.prompt_cache,
            has_threads=self.vendor.family == "anthropic",
        )

    async def _relay_responses(self, call: Call, target: Target) -> Reply:
        model = vendor_model(target.model, self.vendor)
        post = partial(self._exchange, call, target)
        reads = self._messages.takes_thoughts
        return await relay_responses(self.id, call, model, post, reads_thoughts=reads)

    async def kept_reply(
        self, wire: str, target: Target, reply_id: str, *, cancel: bool = False
    ) -> Reply:
        """A response that the vendor makes in the background, as it is now.

        Raises:
            APIError: whatever went wrong with the vendor.
        """
        self._check_key()
        path, base_url = self._place(wire, target.model)
        path, _, query = path.partition("?")
        one = f"{path}/{quote(reply_id, safe='')}"
        query = f"?{query}" if query else ""
        exchange = (
            self.upstream.post(f"{one}/cancel{query}", b"", base_url=base_url)
            if cancel
            else self.upstream.get(f"{one}{query}", base_url=base_url)
        )
        return await whole_response(self.id, exchange, wire, target.model)

    async def _relay_media(self, call: Call, target: Target) -> Reply:
        refused, mode = self.config.unsupported_parameters, self.config.unsupported
        request = media_request(
            call, vendor_model(target.model, self.vendor), refused, self.id, unsupported=mode
        )
        exchange = self._exchange(call, target, request.body, request.headers)
        reply = await relay_media(self.id, call, exchange)
        reply.dropped = request.dropped
        return reply

    async def _relay_openai(self, call: Call, target: Target) -> Reply:
        fields, dropped = vendor_fields(
            call, target, self._refusing, self.id, unsupported=self.config.unsupported
        )
        left_out = await self._messages.fit(fields, self._family(target.model))
        if left_out and self.config.unsupported == "refuse":
            raise unsupported_parameter(left_out[0], self.id)
        exchange = self._exchange(call, target, encode_fields(fields))
        reply = await relay_completion(self.id, call, exchange)
        reply.dropped = (*dropped, *left_out)
        return reply

    def _exchange(
        self, call: Call, target: Target, body: bytes, headers: Mapping[str, str] | None = None
    ) -> UpstreamExchange:
        path, base_url = self._place(call.operation.name, target.model)
        return self.upstream.post(
            path,
            body,
            request_id=call.request_id,
            base_url=base_url,
            headers=headers or call.headers,
        )

    def _place(self, wire: str, model: str) -> tuple[str, str | None]:
        """See `VendorWires.place`; `model` is the template's name for it."""
        return self._wires.place(wire, vendor_model(model, self.vendor))

    # In the vocabulary ----------------------------------------------------------------------------

    async def chat_completion(
        self, request: ChatCompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message of a conversation; with a search or functions that only responses
        have, or the address of a document, as one, and where there are no chats."""
        is_response = self._is_response(request)
        if self._responds and not is_response:
            raise unsupported_capability(self.id, "chats with audio or a model's own pictures")
        body = (responses if is_response else chat).render_request(request)
        hints = {name: getattr(request, name) for name in self.vendor.cache_hints}
        body |= {name: hint for name, hint in hints.items() if hint is not None}
        said = (
            self._respond(request, body)
            if is_response
            else self._generate("chat", request, body, partial(read_chat, stream=request.stream))
        )
        async with aclosing(said) as events:
            async for event in events:
                yield event

    def _is_response(self, request: ChatCompletionRequest) -> bool:
        if request.vendor_search is not None and not in_chats(request.model):
            return True
        asked = self._responds or have_addresses(request.messages) or calling.in_responses(request)
        return "responses" in self._wires and asked and responses.has_words_for(request)

    def placeless_in(self, request: ChatCompletionRequest) -> Set[str]:
        """Responses have no names of who says a message."""
        return self.placeless | (_NO_SPEAKERS if self._is_response(request) else _NONE)

    async def completion(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Continue a prompt; a vendor that has chats alone answers it."""
        if "completions" not in self._wires:
            async with aclosing(ChatOnlyMixin.completion(self, request)) as events:
                async for event in events:
                    yield event
            return
        body = completions.render_request(request)
        read = partial(read_completion, stream=request.stream, echo=request.echo)
        async with aclosing(self._generate("completions", request, body, read)) as events:
            async for event in events:
                yield event

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Turn texts into vectors."""
        self._check_key()
        body = embeddings.render_request(request)
        body["model"] = vendor_model(request.model, self.vendor)
        path, base_url = self._place("embeddings", request.model)
        async with self.upstream.post(
            path, encode(body), request_id=request.request_id, base_url=base_url
        ) as response:
            return await read_object(self.id, response, embeddings.parse_reply, required=["data"])

    async def rerank(self, request: RerankRequest) -> RerankResponse:
        """Say how much each document has to do with a query, in the vendor's own words for that."""
        self._check_key()
        wire, shape = self._rerank_wire, RERANK_SHAPES[self._rerank_wire]
        model = vendor_model(request.model, self.vendor)
        body = render_rerank(structs.replace(request, model=model), shape)
        path, base_url = self._place(wire, request.model)
        parse = partial(parse_ranked, shape=shape, documents=len(request.documents))
        async with self.upstream.post(
            path, encode(body), request_id=request.request_id, base_url=base_url
        ) as response:
            return await read_object(self.id, response, parse, required=[shape.results])

    async def _generate(
        self,
        wire: str,
        request: ChatCompletionRequest | CompletionRequest,
        body: dict[str, Any],
        read: Callable[[str, UpstreamResponse], AsyncGenerator[StreamEvent, None]],
    ) -> AsyncGenerator[StreamEvent, None]:
        self._address(body, request.model)
        for name in _SEEN_TO_HERE & self._refusing.refused:
            body.pop(name, None)
        if not self.vendor.knows_stream_options:
            body.pop("stream_options", None)
        fields = {
            self.vendor.renamed.get(name, name): to_raw(value) for name, value in body.items()
        }
        left_out = await self._messages.fit(fields, self._family(request.model))
        path, base_url = self._place(wire, request.model)
        async with (
            self.upstream.post(
                path, encode_fields(fields), request_id=request.request_id, base_url=base_url
            ) as response,
            aclosing(with_told(read(self.id, response), dropped=left_out)) as events,
        ):
            async for event in events:
                yield event

    def _respond(
        self, request: ChatCompletionRequest, body: dict[str, Any]
    ) -> AsyncGenerator[StreamEvent, None]:
        self._address(body, request.model)
        path, base_url = self._place("responses", request.model)
        exchange = self.upstream.post(
            path, encode(body), request_id=request.request_id, base_url=base_url
        )
        return read_response(self.id, exchange, stream=request.stream)

    def _address(self, body: dict[str, Any], model: str) -> None:
        """Make a rendered request one to this vendor, for `model`.

        Raises:
            APIError: there is no key.
        """
        self._check_key()
        body["model"] = vendor_model(model, self.vendor)
        if not self.vendor.knows_service_tier:
            body.pop("service_tier", None)

    @property
    def wants_reasoning_back(self) -> bool:
        """Whether the vendor does, or the template names where it takes it."""
        named = self.config.reasoning_fields
        return self.vendor.wants_reasoning if named is None else bool(named)

    def reasoning_rule(self, model: str) -> ReasoningRule:
        """A vendor's own models are of its family, those of others of their maker's."""
        family = self._family(model)
        needed = "reasoning_content" in self._messages.stand_ins
        return ReasoningRule(family, wanted=self.wants_reasoning_back, needed=needed)

    @property
    def _is_vendors_own(self) -> bool:
        """Whether it is the vendor itself that answers, at its own address."""
        return self.config.base_url == self.vendor.base_url

    def _family(self, model: str) -> str:
        return self.vendor.family or reasoning_family(model)

    def _check_key(self) -> None:
        # Another address than the vendor's own may want none, or has it in `headers`.
        if (
            self.vendor.needs_key
            and self._is_vendors_own
            and not self.api_key
            and not self.config.headers
        ):
            raise missing_api_key(self.id, self.vendor.key_variable)


_Relay = Callable[["RemoteOpenAIProvider", Call, Target], Coroutine[Any, Any, Reply]]

_RELAYS: Mapping[str, _Relay] = {
    "chat": RemoteOpenAIProvider._relay_openai,
    "completions": RemoteOpenAIProvider._relay_openai,
    "embeddings": RemoteOpenAIProvider._relay_openai,
    "messages": RemoteOpenAIProvider._relay_messages,
    "count_tokens": RemoteOpenAIProvider._relay_messages,
    "responses": RemoteOpenAIProvider._relay_responses,
    "input_tokens": RemoteOpenAIProvider._relay_responses,
    "compact": RemoteOpenAIProvider._relay_responses,
    "moderations": RemoteOpenAIProvider._relay_media,
    "images": RemoteOpenAIProvider._relay_media,
    "image_edits": RemoteOpenAIProvider._relay_media,
    "speech": RemoteOpenAIProvider._relay_media,
    "transcriptions": RemoteOpenAIProvider._relay_media,
    "translations": RemoteOpenAIProvider._relay_media,
    "rerank": RemoteOpenAIProvider._relay_media,
    "rerank_v2": RemoteOpenAIProvider._relay_media,
    "voyage_rerank": RemoteOpenAIProvider._relay_media,
}
"""How each wire is relayed."""
