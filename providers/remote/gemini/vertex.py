"""`remote::vertex`: Gemini on Google Cloud's Vertex AI, over the same API at another place."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Raw, structs
from pydantic import Field

from llama_compat.dialects import gemini
from llama_compat.exchange import Call, Reply, Target
from llama_compat.wire.json_fields import parse_objects, to_raw
from providers.base import Provider, ProviderConfig
from providers.remote.gemini import relay as gemini_relay
from providers.remote.gemini.provider import GeminiConfig, GeminiProvider
from providers.remote.vertex import VertexConfig

_LIST = "/v1beta1/publishers/google/models?pageSize=1000"


class VertexGeminiConfig(VertexConfig, GeminiConfig):
    """The settings of `remote::vertex`."""

    publisher: ClassVar[str] = "google"

    apis: Annotated[tuple[Literal["generate_content"], ...], Field(min_length=1)] = (
        "generate_content",
    )
    """What there is of Google's APIs."""


class VertexGeminiProvider(GeminiProvider):
    """Chats with Gemini in a project of Google Cloud's."""

    Config: ClassVar[type[ProviderConfig]] = VertexGeminiConfig
    config: VertexGeminiConfig
    # Tokens are counted by another name there, so those calls are translated.
    relays: Set[str] = frozenset({"gemini_generate"})
    count_request = staticmethod(gemini.render_vertex_count_request)
    # It searches no files, and connects to no MCP servers (google-genai 3.4.0, `Tool` in types.py).
    vendors_tools: Set[str] = frozenset({"web_search", "web_fetch"})
    embedding_parameters = frozenset[str]()
    # Embeddings are asked for in other ways there.
    openai_embeddings = Provider.openai_embeddings
    embed = Provider.embed
    # Its batches are made of files in Google's storage.
    batches = Provider.batches

    async def live_models(self) -> Sequence[str]:
        """The Gemini models that Google lists now.

        Raises:
            APIError: why it does not.
        """
        parts = urlsplit(self.config.base_url)
        origin = f"{parts.scheme}://{parts.netloc}"
        listing = self.upstream.get(_LIST, base_url=origin)
        return await self.listed(listing, gemini.parse_publisher_models)

    async def relay(self, call: Call, target: Target) -> Reply:
        """Pass a call of Gemini's own API on, and its reply back.

        Raises:
            APIError: whatever went wrong with the vendor.
        """
        contents = call.fields.get("contents")
        if contents is not None:
            # The Gemini API takes contents without a role, and Vertex AI does not.
            fitted = _with_roles(contents)
            if fitted is not contents:
                call = structs.replace(call, fields={**call.fields, "contents": fitted})
        return await gemini_relay.relay(self.id, self.upstream, call, target)


def _with_roles(contents: Raw) -> Raw:
    """`contents`, each of which has a role; what is malformed is Google's to refuse."""
    try:
        items = parse_objects(contents)
    except ValueError:
        return contents
    if all("role" in item for item in items):
        return contents
    return to_raw([item if "role" in item else {"role": Raw(b'"user"'), **item} for item in items])
