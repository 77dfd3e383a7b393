"""A vLLM that tells what its cache holds: what a gateway comes to know of prompts by that."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("zmq", reason="needs the extra 'kv-events'")

from llama_compat.dialects.openai.operations import COMPLETIONS
from llama_compat.exchange import Call, Target
from llama_compat.prefixes.chain import chain_of
from llama_compat.prefixes.held import CacheNews, blocks_in
from providers.base import ProviderModel
from providers.registry import provider_type
from providers.remote.vllm.provider import VLLMProvider
from tests.local_server import Handler, send, serving
from tests.unit.calls import call_of
from tests.unit.providers.remote.vllm.publisher import (
    CLEARED,
    Publisher,
    publishing,
    removed,
    stored,
)

PATIENCE = 20.0
SIZE = 4
TEXT = "You are told at length what to do, and what not. " * 60


def tokens_of(text: str) -> list[str]:
    """Words, as a tokenizer of GPT-2's kind writes them."""
    return [each.replace(" ", "Ġ").replace("\n", "Ċ") for each in re.findall(r"\s?\S+|\s", text)]


class VLLM:
    """Its HTTP side: `/tokenize`, and chats that say nothing of interest."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.tokenizes = True

    def __call__(self, handler: Handler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        if handler.path != "/tokenize":
            choice = {"index": 0, "finish_reason": "stop", "text": "x"}
            choice["message"] = {"role": "assistant", "content": "x"}
            reply = {"id": "c", "object": "chat.completion", "choices": [choice], "model": "own"}
            send(handler, 200, json.dumps(reply).encode())
            return
        self.asked.append(body)
        if not self.tokenizes:
            send(handler, 404, b'{"detail":"Not Found"}')
            return
        texts = tokens_of(self.read(body))
        ids = [self.id_of(each) for each in texts]
        told = {"count": len(ids), "max_model_len": 9999, "tokens": ids, "token_strs": texts}
        send(handler, 200, json.dumps(told).encode())

    @staticmethod
    def read(body: dict[str, Any]) -> str:
        if "prompt" in body:
            return str(body["prompt"])
        said = [f"<|{each['role']}|>\n{each['content']}" for each in body["messages"]]
        return "".join([*said, "<|assistant|>\n"])

    @staticmethod
    def id_of(text: str) -> int:
        return sum(ord(character) * 257**place for place, character in enumerate(text)) % 50_000

    def tokens(self, call: Call) -> list[int]:
        """The tokens of a prompt, as the cache has them."""
        body = {name: json.loads(bytes(value)) for name, value in call.fields.items()}
        return [self.id_of(each) for each in tokens_of(self.read(body))]


class Knows:
    """What a gateway has been told."""

    def __init__(self) -> None:
        self.held: set[bytes] = set()
        self._told = asyncio.Event()

    def __call__(self, model: str, place: str, news: CacheNews) -> None:
        assert (model, place) == ("own", "")
        if news.is_all:
            self.held = set()
        self.held |= set(blocks_in(news.stored))
        self.held -= set(blocks_in(news.removed))
        self._told.set()

    async def until(self, is_so: Callable[[set[bytes]], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so(self.held):
                self._told.clear()
                await self._told.wait()


@pytest.fixture
def server() -> Iterator[tuple[VLLM, str]]:
    vllm = VLLM()
    with serving(vllm) as url:
        yield vllm, url


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with publishing() as publisher:
        yield publisher


@asynccontextmanager
async def provider_at(url: str, publisher: Publisher) -> AsyncIterator[VLLMProvider]:
    kind = provider_type("remote::vllm")
    events = {"endpoint": publisher.endpoint, "replay_endpoint": publisher.replay}
    config = kind.config.validate({"base_url": f"{url}/v1", "kv_events": events})
    provider = kind.make("vllm", config, [ProviderModel("own")])
    assert isinstance(provider, VLLMProvider)
    await provider.start()
    try:
        assert await asyncio.to_thread(publisher.subscribed.wait, PATIENCE)
        yield provider
    finally:
        await provider.stop()


def chat(text: str, **body: Any) -> Call:
    return call_of({"messages": [{"role": "user", "content": text}], **body})


async def ask(provider: VLLMProvider, call: Call) -> None:
    reply = await provider.relay(call, Target("own"))
    await reply.aclose()


def blocks_published(publisher: Publisher, tokens: list[int], first: int = 1) -> list[int]:
    """Publish that all full blocks of these tokens are there; what they are called."""
    names = list(range(first, first + len(tokens) // SIZE))
    publisher.publish(stored(names, tokens[: len(names) * SIZE], size=SIZE))
    return names


@pytest.mark.parametrize("kind", ["chat", "completions"])
async def test_a_prompt_is_held_as_far_as_its_tokens_are(
    server: tuple[VLLM, str], publisher: Publisher, kind: str
) -> None:
    vllm, url = server
    call = chat(TEXT) if kind == "chat" else call_of({"prompt": TEXT}, COMPLETIONS)
    chain = chain_of(call)
    async with provider_at(url, publisher) as provider:
        knows = Knows()
        leave = provider.follow_caches(knows)
        await ask(provider, call)
        names = blocks_published(publisher, vllm.tokens(call))
        await knows.until(lambda held: held == set(chain))
        # The last blocks go first.
        publisher.publish(removed(*names[len(names) // 2 :]))
        await knows.until(lambda held: len(held) < len(chain))
        assert 0 < len(knows.held) < len(chain)
        assert knows.held == set(chain[: len(knows.held)])
        publisher.publish(CLEARED)
        await knows.until(lambda held: not held)
        leave()
    assert vllm.asked[0]["model"] == "own"
    assert vllm.asked[0]["return_token_strs"] is True


async def test_a_prompt_that_is_known_is_not_asked_for_again(
    server: tuple[VLLM, str], publisher: Publisher
) -> None:
    vllm, url = server
    async with provider_at(url, publisher) as provider:
        knows = Knows()
        provider.follow_caches(knows)
        for _ in range(3):
            await ask(provider, chat(TEXT))
            blocks_published(publisher, vllm.tokens(chat(TEXT)))
            await knows.until(bool)
        assert len(vllm.asked) == 1
        await ask(provider, chat(f"other {TEXT}"))
        await ask(provider, chat(f"{TEXT} and more" * 2))
        blocks_published(publisher, vllm.tokens(chat(f"{TEXT} and more" * 2)), first=1000)
        await knows.until(lambda held: chain_of(chat(f"{TEXT} and more" * 2))[-1] in held)
        assert len(vllm.asked) == 3


async def test_who_follows_later_is_told_all(
    server: tuple[VLLM, str], publisher: Publisher
) -> None:
    vllm, url = server
    async with provider_at(url, publisher) as provider:
        first, second = Knows(), Knows()
        provider.follow_caches(first)
        await ask(provider, chat(TEXT))
        blocks_published(publisher, vllm.tokens(chat(TEXT)))
        await first.until(bool)
        provider.follow_caches(second)
        await second.until(lambda held: held == first.held)


@pytest.mark.parametrize("body", [{"cache_salt": "mine"}, {"n": 1}])
async def test_what_has_a_salt_is_known_by_what_was_sent_alone(
    server: tuple[VLLM, str], publisher: Publisher, body: dict[str, Any]
) -> None:
    vllm, url = server
    async with provider_at(url, publisher) as provider:
        knows = Knows()
        provider.follow_caches(knows)
        await ask(provider, chat(TEXT, **body))
        await ask(provider, chat(f"next {TEXT}"))
        blocks_published(publisher, vllm.tokens(chat(f"next {TEXT}")))
        await knows.until(bool)
        assert len(vllm.asked) == (1 if "cache_salt" in body else 2)


async def test_a_server_that_tells_no_tokens_answers_all_the_same(
    server: tuple[VLLM, str], publisher: Publisher
) -> None:
    vllm, url = server
    vllm.tokenizes = False
    async with provider_at(url, publisher) as provider:
        knows = Knows()
        provider.follow_caches(knows)
        await ask(provider, chat(TEXT))
        blocks_published(publisher, vllm.tokens(chat(TEXT)))
        await knows.until(lambda held: not held) if knows.held else None
        vllm.tokenizes = True
        await ask(provider, chat(TEXT))
        blocks_published(publisher, [1, 2, 3, 4], first=500)
        await knows.until(bool)


async def test_nobody_who_follows_has_no_prompt_asked_for(
    server: tuple[VLLM, str], publisher: Publisher
) -> None:
    vllm, url = server
    async with provider_at(url, publisher) as provider:
        await ask(provider, chat(TEXT))
        knows = Knows()
        provider.follow_caches(knows)()
        await ask(provider, chat(TEXT))
    assert vllm.asked == []
