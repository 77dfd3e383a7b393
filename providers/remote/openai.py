"""Providers whose vendor speaks OpenAI: the request is passed on, the reply is relayed."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cache, partial
from typing import ClassVar, cast
from urllib.parse import quote

from pydantic import create_model

from llama_compat.dialects.openai.mending import CHAT, TEXT, ReplyKind, StreamMender
from llama_compat.dialects.openai.models import parse_models
from llama_compat.errors import upstream_error
from llama_compat.exchange import OpenAIReply, OpenAIRequest
from llama_compat.wire.json_fields import encode_fields, to_raw
from providers.base import ProviderConfig, ProviderModel
from providers.remote.config import HTTPURL, RemoteConfig, Seconds
from providers.remote.openai_requests import (
    vendor_fields,
    vendor_model,
    wanted_choices,
    wants_base64,
    wants_usage,
)
from providers.remote.provider import RemoteProvider
from providers.remote.relay import Relay, with_keepalives
from providers.remote.upstream_errors import missing_api_key, relayed_headers
from providers.remote.vendors import VENDORS, Vendor

log = logging.getLogger(__name__)

JSON_HEADERS = {"content-type": "application/json"}


class RemoteOpenAIConfig(RemoteConfig):
    """The settings of a vendor that speaks OpenAI."""

    keepalive_seconds: Seconds | None = None
    """Send a comment so often while a stream's first event is awaited. The status is 200 then, and
    an error comes as an event. Without it, nothing is sent until the vendor has answered."""


class AzureConfig(RemoteOpenAIConfig):
    """The settings of Azure OpenAI."""

    api_version: str = "2024-10-21"
    """The version of its API, as https://learn.microsoft.com/azure lists them."""


class RemoteOpenAIProvider(RemoteProvider):
    """A vendor of the table `VENDORS`; `vendor_provider` makes the class of each."""

    Config: ClassVar[type[ProviderConfig]] = RemoteOpenAIConfig
    config: RemoteOpenAIConfig
    vendor: ClassVar[Vendor] = VENDORS["remote::passthrough"]

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        self._api_version = getattr(config, "api_version", "")
        self._relay = Relay(provider_id)

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
            body = await response.read()
        try:
            return parse_models(body, self.vendor.model_prefix)
        except ValueError as error:
            raise upstream_error(self.id, f"{error}.") from None

    async def openai_completion(self, request: OpenAIRequest) -> OpenAIReply:
        """Relay `POST /completions`."""
        return await self._complete("/completions", TEXT, request)

    async def openai_chat_completion(self, request: OpenAIRequest) -> OpenAIReply:
        """Relay `POST /chat/completions`."""
        return await self._complete("/chat/completions", CHAT, request)

    async def openai_embeddings(self, request: OpenAIRequest) -> OpenAIReply:
        """Relay `POST /embeddings`."""
        relay = partial(
            self._relay.embeddings,
            model=to_raw(request.model),
            as_base64=wants_base64(request.fields),
        )
        return await self._answer("/embeddings", request, self._body(request, chat=False), relay)

    async def _complete(
        self, operation: str, kind: ReplyKind, request: OpenAIRequest
    ) -> OpenAIReply:
        body = self._body(request, chat=kind is CHAT)
        if request.stream:
            return await self._stream(operation, kind, request, body)
        relay = partial(self._relay.completion, kind=kind, model=to_raw(request.model))
        return await self._answer(operation, request, body, relay)

    async def _answer(
        self,
        operation: str,
        request: OpenAIRequest,
        body: bytes,
        relay: Callable[[bytes], bytes],
    ) -> OpenAIReply:
        path = self._path(operation, request)
        async with self.upstream.post(path, body, request_id=request.request_id) as response:
            reply = relay(await response.read())
        return OpenAIReply(reply, headers={**relayed_headers(response.headers), **JSON_HEADERS})

    async def _stream(
        self, operation: str, kind: ReplyKind, request: OpenAIRequest, body: bytes
    ) -> OpenAIReply:
        headers: dict[str, str] = {}
        events = self._events(operation, kind, request, body, headers)
        if self.config.keepalive_seconds is not None:
            events = with_keepalives(events, self.config.keepalive_seconds)
        first = await anext(events)
        return OpenAIReply(events, first, headers=headers)

    async def _events(
        self,
        operation: str,
        kind: ReplyKind,
        request: OpenAIRequest,
        body: bytes,
        headers: dict[str, str],
    ) -> AsyncGenerator[bytes, None]:
        """The stream's events; `headers` gets the vendor's before the first of them."""
        include_usage, continuous_usage = wants_usage(request.fields)
        model = to_raw(request.model)
        mender = StreamMender(
            kind,
            model,
            include_usage=include_usage,
            continuous_usage=continuous_usage,
            wanted_choices=wanted_choices(request.fields),
        )
        path = self._path(operation, request)
        async with self.upstream.post(path, body, request_id=request.request_id) as response:
            headers.update(relayed_headers(response.headers))
            async with aclosing(self._relay.stream(response, kind, model, mender)) as relayed:
                async for events in relayed:
                    yield events
        if include_usage and not mender.usage_seen:
            log.warning(
                "%s: provider '%s' sent no usage although it was asked for",
                request.request_id,
                self.id,
            )

    def _body(self, request: OpenAIRequest, *, chat: bool) -> bytes:
        self._check_key()
        drop = self.config.unsupported == "drop"
        return encode_fields(vendor_fields(request, self.vendor, self.id, chat=chat, drop=drop))

    def _path(self, operation: str, request: OpenAIRequest) -> str:
        if self.vendor.path == "{operation}":
            return operation
        return self.vendor.path.format(
            operation=operation,
            model=quote(vendor_model(request.provider_model, self.vendor), safe=""),
            api_version=self._api_version,
        )

    def _check_key(self) -> None:
        # Another address than the vendor's own may want none, or has it in `headers`.
        is_vendor = self.config.base_url == self.vendor.base_url
        if self.vendor.needs_key and is_vendor and not self.api_key and not self.config.headers:
            raise missing_api_key(self.id, self.vendor.key_variable)


@cache
def vendor_provider(provider_type: str) -> type[RemoteOpenAIProvider]:
    """The class of a vendor of `VENDORS`, whose settings have the vendor's own defaults."""
    vendor = VENDORS[provider_type]
    name = provider_type.removeprefix("remote::").title().replace("-", "")
    base = AzureConfig if "{api_version}" in vendor.path else RemoteOpenAIConfig
    if vendor.base_url is None:
        config: type[RemoteOpenAIConfig] = base
    else:
        config = create_model(f"{name}Config", __base__=base, base_url=(HTTPURL, vendor.base_url))
    members = {"vendor": vendor, "Config": config, "__doc__": f"{vendor.name}."}
    return cast(
        type[RemoteOpenAIProvider], type(f"{name}Provider", (RemoteOpenAIProvider,), members)
    )
