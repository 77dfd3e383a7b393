"""OpenAI's embeddings for a provider that answers in the vocabulary."""

from __future__ import annotations

import base64
import struct
from typing import Any

import msgspec
import pytest

from llama_compat.dialects.openai.embeddings import parse_reply
from llama_compat.dialects.openai.operations import EMBEDDINGS
from llama_compat.errors import APIError
from llama_compat.exchange import Call
from llama_compat.mixins import OpenAIEmbeddingsUnsupportedMixin
from llama_compat.types import EmbeddingRequest, EmbeddingResponse
from providers.base import Provider, ProviderConfig
from tests.unit.calls import OWN, call_of


class Lengths(OpenAIEmbeddingsUnsupportedMixin, Provider):
    """Embeds a text as its length."""

    embedding_parameters = frozenset({"dimensions"})

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        self.asked = request
        vectors = tuple((float(len(text)),) * (request.dimensions or 1) for text in request.inputs)
        return EmbeddingResponse(vectors, prompt_tokens=len(request.inputs))


def provider(**settings: Any) -> Lengths:
    return Lengths("lengths", ProviderConfig(**settings), ())


def call(**body: Any) -> Call:
    return call_of(body, EMBEDDINGS, request_id="r1")


async def embedded(one: Lengths, request: Call) -> Any:
    reply = await one.openai_embeddings(request, OWN)
    assert isinstance(reply.body, bytes)
    assert reply.headers["content-type"] == "application/json"
    return msgspec.json.decode(reply.body)


async def test_one_vector_a_text() -> None:
    one = provider()
    assert await embedded(one, call(input=["a", "bb"], dimensions=2, user="u")) == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [1.0, 1.0]},
            {"object": "embedding", "index": 1, "embedding": [2.0, 2.0]},
        ],
        "model": "public",
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    }
    assert one.asked == EmbeddingRequest("own", ("a", "bb"), 2, "r1")


async def test_base64_holds_32_bit_floats() -> None:
    reply = await embedded(provider(), call(input="abc", encoding_format="base64"))
    assert struct.unpack("<f", base64.b64decode(reply["data"][0]["embedding"])) == (3.0,)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [1, 2]}, "input"),
        ({"input": [[1, 2]]}, "input"),
        ({"input": {"a": 1}}, "input"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "truncate": True}, "truncate"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        await provider().openai_embeddings(call(**body), OWN)
    assert (refused.value.status, refused.value.param) == (400, param)


async def test_what_can_t_be_honoured_is_dropped_where_the_template_says_so() -> None:
    request = call(input="a", truncate=True, encoding_format=None)
    reply = await provider(unsupported="drop").openai_embeddings(request, OWN)
    assert isinstance(reply.body, bytes)
    assert msgspec.json.decode(reply.body)["data"][0]["embedding"] == [1.0]
    assert reply.dropped == ("truncate",)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 3}, 3),
        ({"prompt_tokens": "3"}, 3),
        ({"prompt_tokens": None}, 0),
        ({"prompt_tokens": -3}, 0),
        ("many", 0),
        (None, 0),
    ],
)
def test_a_vendor_s_vectors_are_not_lost_to_its_counts(usage: Any, tokens: int) -> None:
    reply = {"data": [{"embedding": [0.5], "index": 0}], "usage": usage}
    assert parse_reply(reply) == EmbeddingResponse(((0.5,),), tokens)
