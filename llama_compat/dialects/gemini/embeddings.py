"""Gemini's batchEmbedContents (https://ai.google.dev/api/embeddings), both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_compat.dialects.gemini.models import model_path
from llama_compat.types import EmbeddingRequest, EmbeddingResponse


def render_embedding_request(request: EmbeddingRequest) -> dict[str, Any]:
    """The body of `POST {model}:batchEmbedContents`: one request a text."""
    common: dict[str, Any] = {"model": model_path(request.model)}
    if request.dimensions is not None:
        common["outputDimensionality"] = request.dimensions
    return {
        "requests": [{**common, "content": {"parts": [{"text": text}]}} for text in request.inputs]
    }


def parse_embeddings(body: Mapping[str, Any]) -> EmbeddingResponse:
    """The vectors of a reply; the tokens are 0 where the API does not count them.

    Raises:
        ValueError: it is not such a reply.
    """
    try:
        return EmbeddingResponse(
            vectors=tuple(tuple(each["values"]) for each in body["embeddings"]),
            prompt_tokens=(body.get("usageMetadata") or {}).get("promptTokenCount") or 0,
        )
    except (AttributeError, TypeError, KeyError) as error:
        raise ValueError(f"the reply holds no embeddings: {error!r}") from error
