"""A model that guesses by its own MTP head says what it says without, in fewer steps."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from llama_compat.types import SamplingParams
from providers.local.engine import Generation
from providers.local.torch_engine.heads.guesser import HeadGuesser
from providers.local.torch_engine.model import linear
from tests.tiny_adapters import make_adapter
from tests.unit.providers.local.engines import (
    GREEDY,
    REPLY,
    generate,
    opened,
    running,
    until,
)
from tests.unit.providers.local.torch_engine.guessing import (
    SAMPLINGS,
    draw_as_the_model_says,
    guessed_for_the_same_reply,
)
from tests.unit.providers.local.torch_engine.heads.mtp_heads import HYBRID, KINDS, publish
from tests.unit.providers.local.torch_engine.test_engine import ENDLESS, random_prompt
from tests.unit.providers.local.torch_engine.test_engine_hybrid import of_state

PROMPTS = [random_prompt(length, length) for length in (40, 21, 33, 17)]
MTP = {"speculation": {"mtp": True, "tokens": 4}, "kernels": "sdpa"}
PLAIN = {"speculation": "none", "kernels": "sdpa"}
MIXING = 0.002


@pytest.fixture(autouse=True)
def costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is as small as its head, so that it would never pay."""
    monkeypatch.setattr(HeadGuesser, "_cost", lambda self, usual: 0.05)
    monkeypatch.setattr(HeadGuesser, "_pay", lambda self, asked: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("telling"), HYBRID, MIXING).folder


@pytest.fixture(scope="module")
def engines(folder: Path) -> Any:
    """Without its head, and with it."""
    made = [opened(folder, **each) for each in (PLAIN, MTP)]
    yield made
    for engine in made:
        engine.stop()


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_the_reply_is_the_same_in_fewer_steps(engines: Any, name: str) -> None:
    guessed = await guessed_for_the_same_reply(engines, PROMPTS[0], 60, name)
    assert guessed.steps == 60 - guessed.right
    if "penalised" in name:
        assert 0 < guessed.right < guessed.tokens
    else:
        assert guessed.right > 0.5 * guessed.tokens
    assert all_is_given_back_with_tried(engines[1])


def all_is_given_back_with_tried(engine: Any) -> bool:
    slots = engine.loaded.states
    kept = slots.states.slots - engine.sequences - len(slots._tried)
    return len(slots._free) == engine.sequences and len(slots._spare) + slots.kept == kept


@pytest.mark.parametrize("name", KINDS)
async def test_of_every_kind_the_reply_is_the_same(tmp_path: Path, name: str) -> None:
    published, said = publish(tmp_path, name, MIXING), []
    for settings in (PLAIN, MTP):
        async with running(published.folder, **settings) as engine:
            said.append([(await generate(engine, each, REPLY)).token_ids for each in PROMPTS])
            stats = engine.stats
    assert said[0] == said[1]
    assert stats.guessed_right_tokens > 0


@pytest.mark.parametrize("name", ["deepseek_v3", HYBRID])
async def test_with_several_heads_the_reply_is_the_same(tmp_path: Path, name: str) -> None:
    """Alone, four at a time, and what a conversation goes on from."""
    published, said = publish(tmp_path, name, MIXING, heads=3), []
    for settings in (PLAIN, MTP):
        async with running(published.folder, **settings) as engine:
            alone = [(await generate(engine, each, 40)).token_ids for each in PROMPTS]
            more = [(*each, *of, 7) for each, of in zip(PROMPTS, alone, strict=True)]
            beside = await asyncio.gather(*(generate(engine, each, 40) for each in more))
            said.append([*alone, *(each.token_ids for each in beside)])
            stats = engine.stats
    assert said[0] == said[1]
    assert stats.guessed_right_tokens > 0.5 * stats.guessed_tokens > 50


async def test_adapters_are_guessed_for_beside_their_model(tmp_path: Path) -> None:
    """What the head sees is made with the adapter."""
    published, said = publish(tmp_path, "glm4_moe", MIXING), []
    modules = ("q_proj", "k_proj", "v_proj", "o_proj")
    adapter = str(
        make_adapter(tmp_path / "adapter", published.folder, modules=modules, strength=0.3)
    )
    for settings in (PLAIN, MTP):
        async with running(published.folder, **settings) as engine:
            engine.load_adapter(adapter)
            asked = ((prompt, each) for prompt in PROMPTS[:2] for each in (None, adapter))
            replies = [generate(engine, prompt, 40, adapter=each) for prompt, each in asked]
            said.append([each.token_ids for each in await asyncio.gather(*replies)])
            stats = engine.stats
    assert said[0] == said[1]
    assert said[0][0] != said[0][1], "the adapter changes nothing"
    assert stats.guessed_tokens > 40


@pytest.mark.parametrize("name", ["deepseek_v3", HYBRID])
async def test_guesses_that_are_all_wrong_change_nothing(tmp_path: Path, name: str) -> None:
    published, said = publish(tmp_path, name), []
    for settings in (PLAIN, MTP):
        async with running(published.folder, **settings) as engine:
            said.append([(await generate(engine, each, REPLY)).token_ids for each in PROMPTS])
            stats = engine.stats
    assert said[0] == said[1]
    assert stats.guessed_tokens - stats.guessed_right_tokens > 10


async def test_four_at_a_time_cold_and_warm(engines: Any) -> None:
    """And what a conversation goes on from is the state behind guesses that were right."""
    plain, guessing = engines
    prompts = PROMPTS
    for turn in range(2):
        expected = [await generate(plain, each, 50, **ENDLESS) for each in prompts]
        before = guessing.stats.guessed_right_tokens
        said = await asyncio.gather(*(generate(guessing, each, 50, **ENDLESS) for each in prompts))
        assert [each.token_ids for each in said] == [each.token_ids for each in expected]
        assert guessing.stats.guessed_right_tokens - before > 20
        if turn:
            ends = [(len(each) - 2) // 16 * 16 for each in prompts]
            assert [each.cached_tokens for each in said] == ends
        prompts = [(*each, *of.token_ids, 7) for each, of in zip(prompts, expected, strict=True)]
    assert all_is_given_back_with_tried(guessing)


async def test_what_is_drawn_is_distributed_as_the_model_says(engines: Any) -> None:
    await draw_as_the_model_says(engines, PROMPTS[0])


async def test_those_that_give_way_are_guessed_for_again(engines: Any, folder: Path) -> None:
    """And with nothing computed otherwise than if each were alone."""
    prompts = PROMPTS[::2]
    expected = [await generate(engines[0], each, 35, **ENDLESS) for each in prompts]
    state = of_state(engines[1])
    settings = {**MTP, "kv_cache": 2 * 24 * state, "deterministic": linear.has_onednn()}
    async with running(folder, **settings, max_sequences=4) as engine:
        asked = (generate(engine, each, 35, **ENDLESS) for each in prompts)
        said = await asyncio.gather(*asked)
        stats = engine.stats
        assert all_is_given_back_with_tried(engine)
    assert [each.token_ids for each in said] == [each.token_ids for each in expected]
    # Both come to five blocks.
    assert stats.total_blocks == 9
    assert stats.preempted > 0
    assert stats.guessed_right_tokens > 15
    assert stats.used_blocks == 0


async def test_a_client_that_leaves_amid_guesses_leaves_nothing_behind(engines: Any) -> None:
    guessing = engines[1]
    expected = await generate(engines[0], PROMPTS[1], 40, **ENDLESS)
    for tokens in (1, 5, 9):
        stream = guessing.generate(
            Generation(PROMPTS[0], SamplingParams(strategy=GREEDY, ignore_eos=True), 500)
        )
        seen = 0
        async for outputs in stream:
            seen += len(outputs)
            if seen > tokens:
                break
        await stream.aclose()
    said = await generate(guessing, PROMPTS[1], 40, **ENDLESS)
    assert said.token_ids == expected.token_ids
    await until(lambda: bool(guessing.stats.used_blocks == 0))
    assert all_is_given_back_with_tried(guessing)


@pytest.mark.skipif(not linear.kernels_possible(), reason="needs x86 with AVX2")
async def test_in_8_bits_and_in_kernels(folder: Path) -> None:
    said, right = [], 0
    for speculation in ("none", MTP["speculation"]):
        settings = {"quantization": "int8", "kernels": "llvm", "speculation": speculation}
        async with running(folder, **settings) as engine:
            said.append((await generate(engine, PROMPTS[0], 40, **ENDLESS)).token_ids)
            right = engine.stats.guessed_right_tokens
    assert said[0] == said[1]
    assert right > 10
