"""Which prompts the torch engine's cache holds, as gateways know them: what is said to be held is
not computed again, and what is said to be gone is."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from llama_compat.dialects.openai.operations import COMPLETIONS
from llama_compat.exchange import Call, Target
from llama_compat.prefixes.chain import Chain, chain_of
from llama_compat.prefixes.held import HeldPrompts, blocks_in
from providers.base import ProviderModel
from providers.local.block_manager import BLOCK_SIZE
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_model
from tests.unit.calls import call_of

TEXT = "You are told at length what to do, and what not. " * 60

ROOM = 600 * BLOCK_SIZE * 512
"""Bytes of the cache: of three prompts, as a token takes 512."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny"
    return str(make_model(path, max_position_embeddings=4096))


@pytest.fixture
async def provider(folder: str) -> AsyncIterator[TorchProvider]:
    config = TorchConfig(device="cpu", dtype="float32", max_sequences=2, kv_cache=ROOM)
    provider = TorchProvider("local", config, [ProviderModel(folder)])
    await provider.start()
    yield provider
    await provider.stop()


@pytest.fixture
def held(provider: TorchProvider, folder: str) -> HeldPrompts:
    found = provider.held_prompts(folder)
    assert found is not None
    return found


def chat(text: str, **body: Any) -> Call:
    return call_of({"messages": [{"role": "user", "content": text}], "max_tokens": 1, **body})


def completion(text: str, **body: Any) -> Call:
    return call_of({"prompt": text, "max_tokens": 1, **body}, COMPLETIONS)


async def cached(provider: TorchProvider, call: Call) -> int:
    """Ask it; how many of the prompt's tokens were in the cache."""
    target = Target(provider.models[0].name)
    answer = provider.openai_completion if "prompt" in call.fields else None
    reply = await (answer or provider.openai_chat_completion)(call, target)
    await reply.aclose()
    assert reply.usage is not None
    return reply.usage.cached_tokens or 0


def leading(held: HeldPrompts, chain: Chain) -> int:
    """How many blocks at the beginning of a prompt are said to be held."""
    stored = set(blocks_in(held.news().stored))
    return next((at for at, block in enumerate(chain) if block not in stored), len(chain))


@pytest.mark.parametrize("make", [chat, completion])
async def test_a_prompt_that_was_computed_is_held(
    provider: TorchProvider, held: HeldPrompts, make: Any
) -> None:
    call = make(TEXT)
    assert leading(held, chain_of(call)) == 0
    assert await cached(provider, call) == 0
    assert leading(held, chain_of(call)) == len(chain_of(call)) == (len(TEXT) + 40) // 512
    other = make(f"x{TEXT}")
    assert leading(held, chain_of(other)) == 0
    assert await cached(provider, other) < 2 * BLOCK_SIZE


async def test_what_a_prompt_shares_is_held_and_not_computed_again(
    provider: TorchProvider, held: HeldPrompts
) -> None:
    one, other = chat(TEXT + "first " * 20), chat(TEXT + "second " * 20)
    await cached(provider, one)
    shared = leading(held, chain_of(other))
    assert shared == len(TEXT) // 512
    assert await cached(provider, other) * 2 >= shared * 512 // 5


async def test_another_salt_holds_nothing(provider: TorchProvider, held: HeldPrompts) -> None:
    await cached(provider, chat(TEXT, cache_salt="one"))
    assert leading(held, chain_of(chat(TEXT, cache_salt="one"))) > 2
    assert leading(held, chain_of(chat(TEXT, cache_salt="two"))) == 0
    assert leading(held, chain_of(chat(TEXT))) == 0


async def test_what_is_said_to_be_held_is_there_whatever_made_room(
    provider: TorchProvider, held: HeldPrompts
) -> None:
    dice = random.Random(1)
    prompts: Sequence[Call] = [completion(f"{number} {TEXT}") for number in range(6)]
    prompts = [*prompts, *(completion(f"{number} {TEXT[:1200]}") for number in range(6))]
    found = set()
    for _ in range(60):
        call = dice.choice(prompts)
        said, chain = leading(held, chain_of(call)), chain_of(call)
        got = await cached(provider, call)
        found.add(said)
        [engine] = provider.engines.values()
        text = json.loads(bytes(call.fields["prompt"]))
        tokens = engine.model.tokenizer.encode(text, add_special_tokens=True)
        sizes = accumulate(len(engine.model.vocabulary.token_bytes(each)) for each in tokens)
        inside = sum(size < said * 512 for size in sizes)
        # All that lies before the end of what is held, to the block; and hardly more.
        assert got >= inside // BLOCK_SIZE * BLOCK_SIZE
        if said < len(chain):
            assert got <= inside + 512 + BLOCK_SIZE
    assert len(found) > 3


async def test_nobody_who_asks_has_nothing_noted(provider: TorchProvider) -> None:
    await cached(provider, chat(TEXT))
    [engine] = provider.engines.values()
    assert engine.loaded.blocks.held is None  # type: ignore[attr-defined]
