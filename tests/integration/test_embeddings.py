"""Embeddings, where the model has them."""

from __future__ import annotations

import base64
import struct
from typing import Any

import openai
import pytest
from openai.types import CreateEmbeddingResponse

from tests.integration.expectations import honoured_or_refused

pytestmark = pytest.mark.capability("embeddings")

TEXTS = ["The cat sat on the mat.", "Stock markets fell."]


def embed(client: openai.OpenAI, model: str, inputs: Any, **options: Any) -> Any:
    with honoured_or_refused("embedding"):
        return client.embeddings.create(
            model=model, input=inputs, **{"encoding_format": "float", **options}
        )


def test_texts_have_vectors_in_their_order(client: openai.OpenAI, model: str) -> None:
    both: CreateEmbeddingResponse = embed(client, model, TEXTS)
    assert both.object == "list"
    assert [item.index for item in both.data] == [0, 1]
    assert [item.object for item in both.data] == ["embedding"] * 2
    assert len(both.data[0].embedding) == len(both.data[1].embedding) > 1
    assert both.usage.prompt_tokens > 0
    second: CreateEmbeddingResponse = embed(client, model, TEXTS[1])
    assert second.data[0].embedding == pytest.approx(both.data[1].embedding, abs=1e-2)


def test_vectors_come_in_base64_where_asked(client: openai.OpenAI, model: str) -> None:
    numbers = embed(client, model, TEXTS[0]).data[0].embedding
    raw = client.embeddings.with_raw_response.create(
        model=model, input=TEXTS[0], encoding_format="base64"
    )
    encoded = raw.http_response.json()["data"][0]["embedding"]
    packed = base64.b64decode(encoded)
    assert struct.unpack(f"<{len(packed) // 4}f", packed) == pytest.approx(numbers, abs=1e-2)
