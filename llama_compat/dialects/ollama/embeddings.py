"""Embeddings, both ways: `/api/embed`, and `/api/embeddings`, which it replaced."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from llama_compat.dialects.base import Labels
from llama_compat.dialects.counts import count
from llama_compat.dialects.members import optional_text_in
from llama_compat.dialects.ollama.lines import durations
from llama_compat.dialects.openai.parameters import EMBEDDING_CHECKS
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.types import EmbeddingRequest, EmbeddingResponse
from llama_compat.wire.json_fields import encode_json

# --------------------------------------------------------------------------------------------------
# A client's: wire -> vocabulary -> wire
# --------------------------------------------------------------------------------------------------


class EmbedCall(Struct, frozen=True):
    """One request for `/api/embed` as it came, and how to answer it."""

    request: EmbeddingRequest
    began: int = field(default_factory=time.perf_counter_ns)

    def render_reply(self, response: EmbeddingResponse, labels: Labels) -> bytes:
        """The object with all vectors."""
        return encode_json(
            {
                "model": labels.model,
                "embeddings": response.vectors,
                **durations(labels, time.perf_counter_ns() - self.began),
                "prompt_eval_count": response.prompt_tokens,
            }
        )


class EmbeddingsCall(Struct, frozen=True):
    """One request for `/api/embeddings` as it came, and how to answer it."""

    request: EmbeddingRequest

    def render_reply(self, response: EmbeddingResponse, labels: Labels) -> bytes:
        """The object with the one vector."""
        return encode_json({"embedding": response.vectors[0]})


def parse_embed_request(body: Mapping[str, Any], model: str) -> EmbedCall:
    """The request `body` for `/api/embed`.

    Raises:
        APIError: 400 for an `input` that is not text, or `dimensions` that are none.
    """
    value = body.get("input")
    texts = [value] if isinstance(value, str) else value
    if texts is None:
        raise missing_parameter("input")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise invalid_parameter(
            "input", "'input' must be a string or an array of strings.", "invalid_type"
        )
    if "" in texts:
        raise invalid_parameter("input", "'input' can't hold an empty string.")
    dimensions = body.get("dimensions") or None
    if dimensions is not None:
        EMBEDDING_CHECKS["dimensions"]("dimensions", dimensions)
    return EmbedCall(EmbeddingRequest(model, tuple(texts), dimensions))


def parse_embeddings_request(body: Mapping[str, Any], model: str) -> EmbeddingsCall:
    """The request `body` for `/api/embeddings`.

    Raises:
        APIError: 400 for a `prompt` that is not text.
    """
    prompt = optional_text_in(body, "prompt")
    if prompt is None:
        raise missing_parameter("prompt")
    return EmbeddingsCall(EmbeddingRequest(model, (prompt,)))


# --------------------------------------------------------------------------------------------------
# A vendor's: vocabulary -> wire -> vocabulary
# --------------------------------------------------------------------------------------------------


class _Embeddings(Struct):
    embeddings: list[list[float]]
    prompt_eval_count: Any = None


def render_embedding_request(request: EmbeddingRequest) -> dict[str, Any]:
    """The body for `/api/embed`; too long a text is an error instead of being cut."""
    body: dict[str, Any] = {
        "model": request.model,
        "input": list(request.inputs),
        "truncate": False,
    }
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    return body


def parse_embeddings(reply: Mapping[str, Any]) -> EmbeddingResponse:
    """The reply of `/api/embed`.

    Raises:
        ValueError: it is no such reply.
    """
    try:
        parsed = msgspec.convert(reply, _Embeddings)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a reply with embeddings: {error}") from None
    return EmbeddingResponse(
        tuple(tuple(vector) for vector in parsed.embeddings), count(parsed.prompt_eval_count) or 0
    )
