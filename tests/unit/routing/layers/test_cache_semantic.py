"""Replies to questions that are alike: which are, for whom, and what it costs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.distribution import (
    CacheSettings,
    ExactCacheSettings,
    SemanticCacheSettings,
    ServerSettings,
)
from llama_compat.errors import upstream_error
from llama_compat.exchange import Principal, Reply
from llama_compat.types import Usage
from llama_compat.wire.json_fields import from_raw
from routing.cache.exact import ExactCache
from routing.layers.cache import CacheLayer
from routing.layers.chain import Owner
from routing.policy.attempts import Attempts
from routing.request import Request
from tests.unit.calls import call_of
from tests.unit.routing.layers.test_cache import ROUTE

VECTORS = {
    "What is the capital of France?": [1.0, 0.0],
    "Tell me the capital of France.": [0.99, 0.1],
    "What is the capital of Finland?": [0.97, 0.2],
    "How do I bake bread?": [0.0, 1.0],
}
FRANCE, TELL, FINLAND, BREAD = VECTORS


class Models:
    """A cache in front of three models: one chats, one makes vectors, one compares."""

    def __init__(self, **settings: Any) -> None:
        self.asked: list[str] = []
        self.compared: list[str] = []
        self.embedded = 0
        self.says = "yes"
        self.away = False
        self.begun: list[Request] = []
        semantic = SemanticCacheSettings.model_validate({"model": "vectors", **settings})
        exact = ExactCacheSettings(sampled=True)
        cache = ExactCache.of(CacheSettings(exact=exact, semantic=semantic), ServerSettings(), "")
        self.questions = cache.questions
        owner = Owner(self.begun.append, self._route, lambda: None, lambda: None)
        self.layer = CacheLayer(self._answer, {"": cache}, owner)

    def _route(self, request: Request) -> None:
        request.route = ROUTE

    async def _answer(self, request: Request) -> Reply:
        call = request.call
        assert call is not None
        members = {name: from_raw(raw) for name, raw in call.fields.items()}
        if call.model == "vectors":
            self.embedded += 1
            if self.away:
                raise upstream_error("vectors", "is down")
            data = [{"index": 0, "embedding": VECTORS[members["input"]]}]
            body = {"data": data, "usage": {"prompt_tokens": 7}}
            return Reply(json.dumps(body).encode(), read_usage=lambda: Usage(prompt_tokens=7))
        last = members["messages"][-1]["content"]
        if call.model == "judge":
            self.compared.append(last)
            return self._said(self.says)
        await asyncio.sleep(0)
        self.asked.append(last)
        return self._said(f"reply to {last}")

    def _said(self, text: str) -> Reply:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return Reply(json.dumps({"choices": [choice]}).encode(), read_usage=lambda: Usage(20, 3))

    async def ask(
        self,
        text: str,
        key: str = "a",
        operation: Operation = CHAT,
        before: tuple[dict[str, Any], ...] = (),
        **more: Any,
    ) -> Reply:
        messages = [*before, {"role": "user", "content": text}]
        call = call_of({"model": "m", "messages": messages, **more}, operation)
        request = Request(call.operation, "req", Principal(key), Attempts())
        request.call, request.route = replace(call, principal=Principal(key)), ROUTE
        reply = await self.layer(request)
        assert request.cached is (reply.headers["x-llama-compat-cache"] == "hit")
        return reply


def similarity(reply: Reply) -> str | None:
    return reply.headers.get("x-llama-compat-cache-similarity")


def text(reply: Reply) -> Any:
    assert isinstance(reply.body, bytes)
    told = json.loads(reply.body)
    return (told.get("content") or told["choices"])[0].get("text") or told["choices"][0]["message"][
        "content"
    ]


async def test_a_question_that_is_alike_is_given_the_same_reply() -> None:
    models = Models()
    first = await models.ask(FRANCE)
    assert (first.headers["x-llama-compat-cache"], similarity(first)) == ("miss", None)
    alike = await models.ask(TELL)
    assert text(alike) == f"reply to {FRANCE}"
    assert similarity(alike) == "0.9949"
    assert alike.usage == Usage(20, 3)
    assert int(alike.headers["age"]) >= 0
    same = await models.ask(FRANCE)
    assert (same.headers["x-llama-compat-cache"], similarity(same)) == ("hit", None)
    assert text(await models.ask(BREAD)) == f"reply to {BREAD}"
    assert models.asked == [FRANCE, BREAD]
    # It stays what it is: alike, and not the same.
    again = await models.ask(TELL)
    assert similarity(again) == "0.9949"
    # What it costs has records of its own.
    assert {each.model for each in models.begun} == {"vectors"}
    assert len(models.begun) == models.embedded == 4
    assert all(each.ended and each.reply is not None for each in models.begun)
    assert {None if each.reply is None else each.reply.usage for each in models.begun} == {
        Usage(prompt_tokens=7)
    }


async def test_another_api_is_told_too() -> None:
    models = Models()
    await models.ask(FRANCE, max_tokens=9)
    alike = await models.ask(TELL, operation=MESSAGES, max_tokens=9)
    assert text(alike) == f"reply to {FRANCE}"
    assert similarity(alike) == "0.9949"


async def test_what_is_less_alike_is_asked() -> None:
    models = Models(threshold=0.99)
    await models.ask(FRANCE)
    assert text(await models.ask(FINLAND)) == f"reply to {FINLAND}"
    assert similarity(await models.ask(TELL)) is not None


@pytest.mark.parametrize(
    "other",
    [
        {"key": "b"},
        {"temperature": 0.5},
        {"before": ({"role": "system", "content": "Be short."},)},
        {"before": ({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})},
        {"unknown": 1},
    ],
    ids=str,
)
async def test_all_else_has_to_be_the_same(other: dict[str, Any]) -> None:
    models = Models()
    await models.ask(FRANCE)
    assert (await models.ask(TELL, **other)).headers["x-llama-compat-cache"] == "miss"
    assert models.asked == [FRANCE, TELL]


async def test_another_model_has_the_last_word() -> None:
    models = Models(verify="judge")
    await models.ask(FRANCE)
    assert similarity(await models.ask(TELL)) is not None
    models.says = "No."
    assert text(await models.ask(FINLAND)) == f"reply to {FINLAND}"
    assert [json.loads(each) for each in models.compared] == [
        {"first": FRANCE, "second": TELL},
        {"first": FRANCE, "second": FINLAND},
    ]


async def test_without_a_vector_it_is_asked() -> None:
    models = Models()
    await models.ask(FRANCE)
    models.away = True
    assert text(await models.ask(TELL)) == f"reply to {TELL}"
    assert models.begun[-1].error is not None
    assert models.begun[-1].ended


async def test_what_is_asked_at_the_same_time_is_asked_once() -> None:
    models = Models()
    replies = await asyncio.gather(*(models.ask(FRANCE) for _ in range(5)))
    assert {text(each) for each in replies} == {f"reply to {FRANCE}"}
    assert models.asked == [FRANCE]


async def test_no_more_are_known_than_may_be() -> None:
    models = Models(max_questions=2)
    for each in (FRANCE, BREAD, FINLAND):
        await models.ask(each, temperature=0.1)
    assert models.questions is not None
    assert len(models.questions) == 2


def test_it_stands_beside_the_exact_one() -> None:
    with pytest.raises(ValueError, match="needs 'exact'"):
        CacheSettings(semantic=SemanticCacheSettings(model="x"))
