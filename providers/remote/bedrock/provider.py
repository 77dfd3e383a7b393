"""`remote::bedrock-converse`: every model of Amazon Bedrock that chats, over Converse."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from msgspec import structs
from pydantic import Field, model_validator

from llama_compat.catalog.makers import reasoning_family
from llama_compat.dialects import anthropic_messages, bedrock_converse
from llama_compat.dialects.bedrock_converse.models import MODELS_PATH, PROFILES_PATH
from llama_compat.dialects.bedrock_converse.replies import REQUIRED
from llama_compat.dialects.stop_lists import StopBound
from llama_compat.events import with_told
from llama_compat.fitting.forced_reply import json_by_call, with_json_call
from llama_compat.fitting.hints import HintPlaces, MetadataPlace
from llama_compat.fitting.placeless import IMAGE_DETAIL, SPEAKERS, TOOL_CHOICES
from llama_compat.mixins import (
    ChatOnlyMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
)
from llama_compat.reasoning.recollection import ReasoningRule
from llama_compat.settings.model import TemplateSettings
from llama_compat.tools.members import ANTHROPIC_MEMBERS
from llama_compat.tools.names import OPENAI_NAMES
from llama_compat.types import ChatCompletionRequest, CompletionRequest, StreamEvent
from providers.base import ProviderConfig, ProviderModel
from providers.remote.bedrock.settings import BedrockConfig
from providers.remote.relaying.json_objects import encode, read_object, read_reply
from providers.remote.upstream.images import (
    IMAGES_AND_DOCUMENTS,
    ImageFetchingConfig,
    ImageFetchingProvider,
)
from providers.remote.upstream.sigv4 import EXTRA, MODULES
from providers.remote.upstream.vendor_errors import missing_api_key
from providers.requirements import lacking


class GuardrailSettings(TemplateSettings):
    """A guardrail of Bedrock's own, through which each request goes."""

    identifier: str
    """Its id or ARN."""

    version: str = "DRAFT"
    """A number, or `DRAFT`."""

    stream_mode: Literal["sync", "async"] | None = None
    """Whether a stream waits for the guardrail, which is what Bedrock does by default."""


class BedrockConverseConfig(BedrockConfig, ImageFetchingConfig):
    """The settings of `remote::bedrock-converse`."""

    family: bedrock_converse.ModelFamily | None = None
    """Whose models are behind inference profiles of your own, whose names don't say it: it decides
    how `reasoning_effort` and `top_k` are told."""

    guardrail: GuardrailSettings | None = None
    """A guardrail of Bedrock's. What it withholds ends with the reason `content_filter`."""

    additional_fields: dict[str, Any] = Field(default_factory=dict)
    """Sent with each request as `additionalModelRequestFields`, which Bedrock passes on to the
    model as they are: `anthropic_beta`, for one."""

    @model_validator(mode="after")
    def _can_read_streams(self) -> BedrockConverseConfig:
        if (message := lacking(MODULES, "to read Bedrock's streams", EXTRA)) is not None:
            raise ValueError(message)
        if self.aws is None and self.api_key is None:
            raise ValueError(
                "expected `aws: {}`, for the credentials that AWS's own tools find, or `api_key`"
            )
        return self


class BedrockConverseProvider(
    ChatOnlyMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    ImageFetchingProvider,
):
    """Chats with the models of one region."""

    Config: ClassVar[type[ProviderConfig]] = BedrockConverseConfig
    config: BedrockConverseConfig

    parameters = bedrock_converse.RENDERED_PARAMETERS
    placeless = frozenset({IMAGE_DETAIL, SPEAKERS, TOOL_CHOICES})
    hint_places = HintPlaces(
        # botocore 1.44.5, bedrock-runtime: `RequestMetadata`.
        metadata=MetadataPlace(
            re.compile(r"[a-zA-Z0-9\s:_@$#=/+,-.]{1,256}", re.ASCII),
            re.compile(r"[a-zA-Z0-9\s:_@$#=/+,-.]{0,256}", re.ASCII),
            most=16,
        )
    )
    # Its `serviceTier` is no hint: a model or a region without that tier answers 400
    # ValidationException (strands-agents/sdk-python#1799, 2026-11-28).
    tool_names = OPENAI_NAMES  # Its own are the same.
    member_names = ANTHROPIC_MEMBERS

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        # Not before a template has this provider: it imports botocore.
        from providers.remote.bedrock.event_stream import EventStreamObjects

        self._decoder = EventStreamObjects
        family, for_model = self.config.family, self.config.additional_fields
        self._whole = bedrock_converse.Extras(family, self._guardrail(stream=False), for_model)
        self._streamed = structs.replace(self._whole, members=self._guardrail(stream=True))

    def _guardrail(self, *, stream: bool) -> dict[str, Any]:
        guardrail = self.config.guardrail
        if guardrail is None:
            return {}
        config = {
            "guardrailIdentifier": guardrail.identifier,
            "guardrailVersion": guardrail.version,
        }
        if stream and guardrail.stream_mode is not None:
            config["streamProcessingMode"] = guardrail.stream_mode
        return {"guardrailConfig": config}

    @property
    def wants_reasoning_back(self) -> bool:
        """It does: Claude's turns that call tools begin with thinking."""
        return True

    def reasoning_rule(self, model: str) -> ReasoningRule:
        """Claude's thinking goes back to Claude, whoever runs it; other families' is not sealed."""
        family = self._whole.family_of(model)
        name = anthropic_messages.FAMILY if family == "claude" else reasoning_family(model)
        return ReasoningRule(name, wanted=bedrock_converse.takes_thoughts(family))

    def stop_bound(self, model: str) -> StopBound:
        """As the model's family takes them."""
        return bedrock_converse.stop_bound(model, self._whole)

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """What has no form in this API, or for this model."""
        if isinstance(request, CompletionRequest):
            request = ChatCompletionRequest(request.model, (), request.sampling)
        return bedrock_converse.unsupported_values(request, self._whole)

    async def live_models(self) -> Sequence[str]:
        """What the vendor lists now: models, and the profiles by which newer ones are asked.

        Raises:
            APIError: why it does not.
        """
        self._check_key()
        found: list[str] = []
        for path, parse in (
            (MODELS_PATH, bedrock_converse.parse_models),
            (PROFILES_PATH, bedrock_converse.parse_profiles),
        ):
            listing = self.upstream.get(path, base_url=self.config.control_url)
            found += await self.listed(listing, parse)
        return found

    async def chat_completion(
        self, request: ChatCompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message of a conversation; images that have a URL are fetched first."""
        self._check_key()
        messages = await self.images.inline(request.messages, IMAGES_AND_DOCUMENTS)
        request = structs.replace(request, messages=messages)
        async with aclosing(json_by_call(request, self._converse)) as events:
            async for event in events:
                yield event

    def _converse(self, request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        extras = self._streamed if request.stream else self._whole
        rendered = bedrock_converse.render_request(request, extras)
        path = self._path(request.model, "converse-stream" if request.stream else "converse")
        said = read_reply(
            self.id,
            self.upstream.post(path, encode(rendered.body), request_id=request.request_id),
            bedrock_converse.parse_reply,
            bedrock_converse.StreamParser(),
            stream=request.stream,
            required=REQUIRED,
            decoder=self._decoder(self.id),
        )
        return with_told(said, dropped=rendered.dropped, adapted=rendered.adapted)

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        """How many tokens the conversation has as a prompt, as the vendor counts.

        Raises:
            APIError: why it does not; not every model's are counted.
        """
        self._check_key()
        messages = await self.images.inline(request.messages, IMAGES_AND_DOCUMENTS)
        request = with_json_call(structs.replace(request, messages=messages))
        body = encode(bedrock_converse.render_count_request(request, self._whole))
        async with self.upstream.post(
            self._path(request.model, "count-tokens"), body, request_id=request.request_id
        ) as response:
            return await read_object(
                self.id, response, bedrock_converse.parse_token_count, required=["inputTokens"]
            )

    def _path(self, model: str, operation: str) -> str:
        return f"/model/{quote(model, safe='')}/{operation}"

    def _check_key(self) -> None:
        if self.config.aws is None and not self.api_key and not self.config.headers:
            raise missing_api_key(self.id, "AWS_BEARER_TOKEN_BEDROCK")
