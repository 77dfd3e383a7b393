"""embedContent and batchEmbedContents (https://ai.google.dev/api/embeddings), both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.dialects.base import EMBEDDING_PURPOSE, Labels
from llama_compat.dialects.counts import count, members
from llama_compat.dialects.gemini.input.contents import parse_text
from llama_compat.dialects.gemini.members import integer_in, list_in, object_in, spelling
from llama_compat.dialects.gemini.models import model_path
from llama_compat.dialects.openai.parameters import EMBEDDING_CHECKS
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.types import EmbeddingRequest, EmbeddingResponse
from llama_compat.wire.malformed import malformed_as

# --------------------------------------------------------------------------------------------------
# A client's: wire -> vocabulary -> wire
# --------------------------------------------------------------------------------------------------

_PARAMETERS = {
    "outputDimensionality": "dimensions",
    "taskType": EMBEDDING_PURPOSE,
    "title": EMBEDDING_PURPOSE,
}
_ALWAYS_HONOURED = frozenset({"content", "model"})


class EmbedContentCall(Struct, frozen=True):
    """One request as it came, and how to answer it: with one vector, or with a list of them."""

    request: EmbeddingRequest
    batch: bool = False

    def render_reply(self, response: EmbeddingResponse, labels: Labels) -> bytes:
        """The object with the vectors."""
        vectors = [{"values": vector} for vector in response.vectors]
        said = {"embeddings": vectors} if self.batch else {"embedding": vectors[0]}
        return msgspec.json.encode(said)


def embed_asked(body: Mapping[str, Any]) -> dict[str, str]:
    """The members of an embedContent request that ask something of the provider."""
    names = {spelling(body, name): openai_name for name, openai_name in _PARAMETERS.items()}
    return {
        written: names.get(written, written)
        for written, value in body.items()
        if value is not None and written not in _ALWAYS_HONOURED
    }


def batch_asked(body: Mapping[str, Any]) -> dict[str, str]:
    """The members of a batchEmbedContents request that ask something of the provider."""
    requests = body.get("requests")
    asked = {name: name for name in body if name not in ("requests", "model")}
    for request in requests if isinstance(requests, list) else ():
        if isinstance(request, dict):
            asked |= {f"requests.{name}": known for name, known in embed_asked(request).items()}
    return asked


def parse_embed_request(body: Mapping[str, Any], model: str) -> EmbedContentCall:
    """The request `body` of embedContent.

    Raises:
        APIError: 400 naming what is malformed.
    """
    text, dimensions = _parse_request(body, "")
    return EmbedContentCall(EmbeddingRequest(model, (text,), dimensions))


def parse_batch_request(body: Mapping[str, Any], model: str) -> EmbedContentCall:
    """The request `body` of batchEmbedContents.

    Raises:
        APIError: 400 naming what is malformed; the requests want vectors of different lengths.
    """
    requests = list_in(body.get("requests"), "requests")
    if not requests:
        raise missing_parameter("requests")
    parsed = [
        _parse_request(object_in(each, f"requests[{index}]"), f"requests[{index}].")
        for index, each in enumerate(requests)
    ]
    lengths = {dimensions for _, dimensions in parsed}
    if len(lengths) > 1:
        raise invalid_parameter(
            "requests", "'outputDimensionality' has to be the same in all of 'requests'."
        )
    texts = tuple(text for text, _ in parsed)
    return EmbedContentCall(EmbeddingRequest(model, texts, lengths.pop()), batch=True)


def _parse_request(request: Mapping[str, Any], path: str) -> tuple[str, int | None]:
    if request.get("content") is None:
        raise missing_parameter(f"{path}content")
    where = f"{path}outputDimensionality"
    dimensions = integer_in(request, "outputDimensionality", where)
    if dimensions is not None:
        EMBEDDING_CHECKS["dimensions"](where, dimensions)
    return parse_text(request["content"], f"{path}content"), dimensions


# --------------------------------------------------------------------------------------------------
# A vendor's: vocabulary -> wire -> vocabulary
# --------------------------------------------------------------------------------------------------


def render_embedding_request(request: EmbeddingRequest) -> dict[str, Any]:
    """The body of `POST {model}:batchEmbedContents`: one request a text."""
    common: dict[str, Any] = {"model": model_path(request.model)}
    if request.dimensions is not None:
        common["outputDimensionality"] = request.dimensions
    return {
        "requests": [{**common, "content": {"parts": [{"text": text}]}} for text in request.inputs]
    }


class _Embedding(Struct):
    values: tuple[float, ...]


def parse_embeddings(body: Mapping[str, Any]) -> EmbeddingResponse:
    """The vectors of a reply; the tokens are 0 where the API does not count them.

    Raises:
        ValueError: it is not such a reply.
    """
    with malformed_as("the reply holds no embeddings"):
        vectors = msgspec.convert(body["embeddings"], tuple[_Embedding, ...])
        return EmbeddingResponse(
            vectors=tuple(each.values for each in vectors),
            prompt_tokens=count(members(body.get("usageMetadata")).get("promptTokenCount")) or 0,
        )
