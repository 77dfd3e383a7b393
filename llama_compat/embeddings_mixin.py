"""OpenAI's embeddings for providers whose own side does not speak OpenAI."""

from __future__ import annotations

from typing import ClassVar, Protocol

import msgspec
from msgspec import structs

from llama_compat.dialects.openai import embeddings as openai_embeddings
from llama_compat.errors import unsupported_parameter, upstream_error
from llama_compat.exchange import OpenAIReply, OpenAIRequest
from llama_compat.mixins import Settings
from llama_compat.types import EmbeddingRequest, EmbeddingResponse
from llama_compat.wire.json_fields import unicode_from_raw

_ALWAYS_HONOURED = frozenset({"model", "input", "encoding_format", "user"})


class EmbeddingProvider(Protocol):
    """What the mixin needs of the provider that it is mixed into."""

    id: str

    @property
    def config(self) -> Settings: ...

    @property
    def embedding_parameters(self) -> frozenset[str]: ...

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse: ...


class OpenAIEmbeddingsUnsupportedMixin:
    """`openai_embeddings` for a provider whose side has no OpenAI embeddings."""

    embedding_parameters: ClassVar[frozenset[str]] = frozenset()
    """OpenAI's names of the parameters that `embed` honours, beside those of every request."""

    async def openai_embeddings(self: EmbeddingProvider, request: OpenAIRequest) -> OpenAIReply:
        """Answer `POST /embeddings` from `embed`.

        Raises:
            APIError: 400 for what the provider can't honour, 502 for other than one vector a text,
                or what the provider raised itself.
        """
        body = {name: unicode_from_raw(raw) for name, raw in request.fields.items()}
        for name in [name for name, value in body.items() if value is not None]:
            if name in _ALWAYS_HONOURED or name in self.embedding_parameters:
                continue
            if self.config.unsupported != "drop":
                raise unsupported_parameter(name, self.id)
            request.dropped.append(name)
            del body[name]
        call = openai_embeddings.parse_request(body, request.provider_model)
        response = await self.embed(structs.replace(call.request, request_id=request.request_id))
        texts, vectors = len(call.request.inputs), len(response.vectors)
        if texts != vectors:
            raise upstream_error(self.id, f"gave {vectors} vectors for {texts} texts.")
        reply = openai_embeddings.render_reply(
            response, model=request.model, as_base64=call.as_base64
        )
        return OpenAIReply(msgspec.json.encode(reply), headers={"content-type": "application/json"})
