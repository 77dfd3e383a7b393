"""Vectors from the cache: what of a list is asked for, and what comes back."""

from __future__ import annotations

import asyncio
import base64
import json
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini.operations import BATCH_EMBED
from llama_compat.dialects.ollama.operations import EMBED
from llama_compat.dialects.openai.operations import EMBEDDINGS
from llama_compat.distribution import CacheSettings, ExactCacheSettings, ServerSettings
from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import Principal, Reply
from llama_compat.types import Usage
from llama_compat.wire.json_fields import from_raw
from routing.cache.embeddings import shares
from routing.cache.exact import ExactCache
from routing.layers.cache import CacheLayer
from routing.layers.chain import Owner
from routing.policy.attempts import FIRST, Attempt, Attempts
from routing.request import Request
from tests.unit.calls import call_of
from tests.unit.routing.layers.test_cache import ROUTE


def vector_of(text: str) -> list[float]:
    return [len(text) / 3, 0.1, -1e-9]


class Vendor:
    """A cache in front of one who makes vectors; OpenAI's API is all that it hears."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.dimensions: list[Any] = []
        self.go: asyncio.Event | None = None
        self.error: APIError | None = None
        self.odd: Any = None
        self.loading = 0.0
        cache = ExactCache.of(CacheSettings(exact=ExactCacheSettings()), ServerSettings(), "")
        owner = Owner(lambda _: None, lambda _: None, lambda: None, lambda: None)
        self.layer = CacheLayer(self._answer, {"": cache}, owner)

    async def _answer(self, request: Request) -> Reply:
        call = request.call
        assert call is not None
        assert call.operation is EMBEDDINGS
        request.attempts.add(Attempt(ROUTE.targets[0].state, FIRST, False))
        members = {name: from_raw(raw) for name, raw in call.fields.items()}
        texts = members["input"]
        texts = [texts] if isinstance(texts, str) else texts
        self.asked.append(texts)
        self.dimensions.append(members.get("dimensions"))
        if self.go is not None:
            await self.go.wait()
        if self.error is not None:
            raise self.error
        as_base64 = members.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(array("f", vector_of(text)).tobytes()).decode()
                if as_base64
                else vector_of(text),
            }
            for index, text in enumerate(texts)
        ]
        if self.odd is not None:
            data[0]["embedding"] = self.odd
        tokens = sum(map(len, texts))
        told = {"object": "list", "data": data[::-1], "model": "m", "usage": usage_of(tokens)}
        usage = Usage(prompt_tokens=tokens)
        return Reply(json.dumps(told).encode(), read_usage=lambda: usage, loading=self.loading)

    async def ask(
        self,
        body: dict[str, Any],
        operation: Operation = EMBEDDINGS,
        key: str = "a",
        control: bytes = b"",
    ) -> tuple[dict[str, Any], Request, Reply]:
        call = replace(call_of({"model": "m", **body}, operation), principal=Principal(key))
        headers = [(b"cache-control", control)] if control else []
        request = Request(call.operation, "req", Principal(key), Attempts(headers))
        request.call, request.route = call, ROUTE
        reply = await self.layer(request)
        assert isinstance(reply.body, bytes)
        return json.loads(reply.body), request, reply


def usage_of(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def vectors(told: dict[str, Any]) -> list[Any]:
    return [each["embedding"] for each in sorted(told["data"], key=lambda each: each["index"])]


async def test_of_a_list_only_what_is_new_is_asked_for() -> None:
    vendor = Vendor()
    first, request, reply = await vendor.ask({"input": ["one", "three"]})
    assert (request.cached, reply.headers["x-llama-compat-cache"]) == (False, "miss")
    texts = ["three", "fourth", "one", "two"]
    told, request, reply = await vendor.ask({"input": texts})
    assert vendor.asked == [["one", "three"], ["fourth", "two"]]
    assert vectors(told) == [vector_of(text) for text in texts]
    assert [each["index"] for each in told["data"]] == [0, 1, 2, 3]
    # The client is told what all texts were counted for, and pays for those that were asked.
    assert told["usage"] == usage_of(sum(map(len, texts)))
    assert reply.usage == Usage(prompt_tokens=len("fourth" + "two"))
    assert (request.cached, reply.headers["x-llama-compat-cache"]) == (False, "miss")
    assert int(reply.headers["age"]) >= 0
    again, request, reply = await vendor.ask({"input": ["one", "three"]})
    assert (again["data"], again["usage"]) == (
        sorted(first["data"], key=lambda each: each["index"]),
        first["usage"],
    )
    assert (request.cached, reply.headers["x-llama-compat-cache"]) == (True, "hit")
    assert reply.usage == Usage(prompt_tokens=8)
    assert len(vendor.asked) == 2


async def test_that_the_model_had_to_be_loaded_is_told_of_what_was_asked() -> None:
    vendor = Vendor()
    vendor.loading = 1.5
    told, _, reply = await vendor.ask({"input": ["one"]}, EMBED)
    assert (told["load_duration"], reply.loading) == (1_500_000_000, 1.5)
    assert told["total_duration"] > told["load_duration"]
    told, _, reply = await vendor.ask({"input": ["one"]}, EMBED)
    assert (told["load_duration"], reply.loading) == (0, 0.0)


async def test_a_text_alone_is_one_of_a_list() -> None:
    vendor = Vendor()
    await vendor.ask({"input": ["one", "two"]})
    told, _, reply = await vendor.ask({"input": "two"})
    assert vectors(told) == [vector_of("two")]
    assert reply.headers["x-llama-compat-cache"] == "hit"


@pytest.mark.parametrize("first", ["float", "base64"])
async def test_each_is_told_in_the_form_that_it_wants(first: str) -> None:
    vendor = Vendor()
    for form in (first, "float", "base64"):
        told, _, _ = await vendor.ask({"input": "one", "encoding_format": form})
        (found,) = vectors(told)
        if form == "base64":
            numbers = array("f")
            numbers.frombytes(base64.b64decode(found))
            found = list(numbers)
        assert found == pytest.approx(vector_of("one"), rel=1e-6)
        if first == form == "float":
            assert found == vector_of("one")
    assert len(vendor.asked) == 1


@pytest.mark.parametrize(
    "other", [{"dimensions": 2}, {"dimensions": 3}, {"unknown": 1}, {"input_type": "query"}]
)
async def test_what_is_asked_besides_makes_another(other: dict[str, Any]) -> None:
    vendor = Vendor()
    for body in ({}, other, {}, other, {"dimensions": 2, "x": 1}):
        await vendor.ask({"input": "one", **body})
    assert len(vendor.asked) == 3


async def test_keys_have_their_own_and_clients_may_want_none() -> None:
    vendor = Vendor()
    for key in ("a", "b"):
        await vendor.ask({"input": "one"}, key=key)
    assert len(vendor.asked) == 2
    outcomes = []
    for control in (b"no-store", b"no-cache", b"max-age=60", b""):
        _, _, reply = await vendor.ask({"input": "one"}, control=control)
        outcomes.append(reply.headers["x-llama-compat-cache"])
    assert outcomes == ["bypass", "bypass", "hit", "hit"]
    assert len(vendor.asked) == 4


async def test_token_ids_pass() -> None:
    vendor = Vendor()
    for _ in range(2):
        _, _, reply = await vendor.ask({"input": [[1, 2], [3]]})
        assert reply.headers["x-llama-compat-cache"] == "bypass"
    assert len(vendor.asked) == 2


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (EMBED, {"input": ["one", "two"]}),
        (
            BATCH_EMBED,
            {
                "requests": [
                    {"model": "models/m", "content": {"parts": [{"text": text}]}}
                    for text in ("one", "two")
                ]
            },
        ),
    ],
    ids=["ollama", "gemini"],
)
async def test_other_apis_have_the_same(operation: Operation, body: dict[str, Any]) -> None:
    vendor = Vendor()
    await vendor.ask({"input": ["two", "three"]})
    told, _, _ = await vendor.ask(body, operation)
    assert vendor.asked == [["two", "three"], ["one"]]
    found = told["embeddings"]
    found = [each["values"] if isinstance(each, dict) else each for each in found]
    assert found == [vector_of("one"), vector_of("two")]
    _, request, _ = await vendor.ask(body, operation)
    assert request.cached
    assert len(vendor.asked) == 2


async def test_what_is_asked_at_the_same_time_is_asked_once() -> None:
    vendor = Vendor()
    vendor.go = asyncio.Event()
    lists: list[Sequence[str]] = [["one", "two"], ["two", "one"], ["two", "three"]]
    asking = [asyncio.ensure_future(vendor.ask({"input": list(each)})) for each in lists]
    for _ in range(20):
        await asyncio.sleep(0)
    assert vendor.asked == [["one", "two"]]
    vendor.go.set()
    for texts, each in zip(lists, asking, strict=True):
        told, _, _ = await each
        assert vectors(told) == [vector_of(text) for text in texts]
    assert vendor.asked == [["one", "two"], ["three"]]


@pytest.mark.parametrize("odd", ["AAA", "A", "AAAA", [True], ["x"]])
async def test_what_is_no_vector_is_not_kept(odd: Any) -> None:
    vendor = Vendor()
    vendor.odd = odd
    for times in (1, 2):
        told, _, _ = await vendor.ask({"input": ["a", "b"]})
        assert (vectors(told)[0], len(vendor.asked)) == (odd, times)
    with pytest.raises(APIError, match="The model 'm' gave no reply with as many") as caught:
        await vendor.ask({"input": ["a", "b"]}, EMBED)
    assert caught.value.status == 502


async def test_one_that_fails_is_nobodys_vector() -> None:
    vendor = Vendor()
    vendor.error = upstream_error("up", "is down")
    for _ in range(2):
        with pytest.raises(APIError, match="is down"):
            await vendor.ask({"input": ["one"]})
    vendor.error = None
    told, _, _ = await vendor.ask({"input": ["one"]})
    assert vectors(told) == [vector_of("one")]


@pytest.mark.parametrize("tokens", [0, 1, 7, 1000])
def test_the_shares_are_what_was_counted(tokens: int) -> None:
    texts = ["", "a", "bcd", "é" * 50]
    assert sum(shares(tokens, texts)) == tokens
    assert min(shares(tokens, texts)) >= 0
    assert shares(tokens, ["alone"]) == [tokens]
