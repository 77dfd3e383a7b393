"""`remote::vertex-anthropic`: Claude on Google Cloud's Vertex AI, over the Messages API.

The model is in the path there, the version in the body:
https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai, and anthropic 2.11
(2026-11-23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from msgspec import Raw

from llama_compat.wire.json_fields import (
    JSONFields,
    encode_fields,
    from_raw,
    parse_fields,
    to_raw,
)
from providers.base import Provider, ProviderConfig
from providers.remote.anthropic.provider import (
    AnthropicMessagesConfig,
    AnthropicMessagesProvider,
)
from providers.remote.upstream.exchanges import UpstreamExchange
from providers.remote.vertex import VertexConfig

VERTEX_VERSION = "vertex-2023-10-16"

_COUNT_PATH = "/models/count-tokens:rawPredict"


class VertexAnthropicConfig(VertexConfig, AnthropicMessagesConfig):
    """The settings of `remote::vertex-anthropic`."""

    publisher: ClassVar[str] = "anthropic"

    version: str = VERTEX_VERSION
    """The `anthropic_version` of each request, whatever the client names."""


class VertexAnthropicProvider(AnthropicMessagesProvider):
    """Chats with Claude in a project of Google Cloud's."""

    Config: ClassVar[type[ProviderConfig]] = VertexAnthropicConfig
    config: VertexAnthropicConfig
    live_models = Provider.live_models
    batches = Provider.batches

    def request_headers(self) -> dict[str, str]:
        """The betas; the version is in the body."""
        key = {"x-goog-api-key": self.api_key} if self.api_key else {}
        return key | self._betas()

    def _send(
        self, operation: str, body: bytes, request_id: str, headers: Mapping[str, str]
    ) -> UpstreamExchange:
        path, fields = self._placed(operation, parse_fields(body))
        there = {name: value for name, value in headers.items() if name != "anthropic-version"}
        return self.upstream.post(path, encode_fields(fields), request_id=request_id, headers=there)

    def _placed(self, operation: str, fields: JSONFields) -> tuple[str, JSONFields]:
        """Where a request of Anthropic's API is sent, and its members there."""
        fields = {**fields, "anthropic_version": to_raw(self.config.version)}
        if operation == "count_tokens":
            return _COUNT_PATH, fields
        model = from_raw(fields.pop("model"))
        streams = fields.get("stream") == Raw(b"true")
        method = "streamRawPredict" if streams else "rawPredict"
        return f"/models/{quote(str(model), safe='@')}:{method}", fields
