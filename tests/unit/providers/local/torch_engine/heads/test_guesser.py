"""A head that guesses changes nothing but how many steps there are."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.heads.guesser import HeadGuesser
from providers.local.torch_engine.model import linear
from tests.tiny_adapters import make_adapter
from tests.unit.providers.local.engines import generate, opened, running
from tests.unit.providers.local.torch_engine.guessing import (
    SAMPLINGS,
    draw_as_the_model_says,
    guessed_for_the_same_reply,
    pay_what_was_expected,
)
from tests.unit.providers.local.torch_engine.heads.eagle_heads import random_pair, telling_pair
from tests.unit.providers.local.torch_engine.test_engine import ENDLESS, kv_bytes, random_prompt

PROMPTS = [random_prompt(length, length) for length in (40, 21, 33, 17)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return telling_pair(tmp_path_factory.mktemp("telling"))


def with_head(head: Path, **settings: Any) -> dict[str, Any]:
    speculation = {"eagle": str(head), "tokens": 4, "quantization": "none"}
    return {"speculation": speculation, "kernels": "sdpa", **settings}


@pytest.fixture(autouse=True)
def costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is as small as its head, so that it would never pay."""
    monkeypatch.setattr(HeadGuesser, "_cost", lambda self, usual: 0.05)
    monkeypatch.setattr(HeadGuesser, "_pay", lambda self, asked: None)


@pytest.fixture(scope="module")
def engines(pair: tuple[Path, Path]) -> Any:
    """Without a head, and with one that knows what comes."""
    model, head = pair
    made = [opened(model, speculation="none", kernels="sdpa"), opened(model, **with_head(head))]
    yield made
    for engine in made:
        engine.stop()


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_the_reply_is_the_same_in_fewer_steps(engines: Any, name: str) -> None:
    guessed = await guessed_for_the_same_reply(engines, PROMPTS[0], 60, name)
    assert guessed.steps == 60 - guessed.right
    if "penalised" not in name:
        assert guessed.right > 0.8 * guessed.tokens


@pytest.mark.parametrize("strength", [0.02, 0.3])
async def test_adapters_are_guessed_for_beside_their_model(
    engines: Any, pair: tuple[Path, Path], tmp_path: Path, strength: float
) -> None:
    """By what goes on inside the model with each: little changed the head is right, much it is
    wrong, and either way a reply is what it is without."""
    adapters = [
        None,
        *(
            str(make_adapter(tmp_path / f"{seed}", pair[0], seed=seed, strength=strength))
            for seed in (1, 2)
        ),
    ]
    said = []
    for engine in engines:
        for each in adapters[1:]:
            engine.load_adapter(each)
        before = engine.stats
        alone = [await generate(engine, PROMPTS[1], 40, adapter=each) for each in adapters]
        beside = await asyncio.gather(
            *(generate(engine, PROMPTS[2], 40, adapter=each) for each in adapters)
        )
        said.append([each.token_ids for each in (*alone, *beside)])
        right = engine.stats.guessed_right_tokens - before.guessed_right_tokens
        guessed = engine.stats.guessed_tokens - before.guessed_tokens
        for each in adapters[1:]:
            engine.unload_adapter(each)
    assert said[0] == said[1]
    assert len({tuple(each) for each in said[0]}) == 6, "the adapters change nothing"
    assert guessed > 40
    assert right > 20 if strength < 0.1 else right < guessed


async def test_four_at_a_time_cold_and_warm(engines: Any) -> None:
    guessing = engines[1]
    expected = [await generate(engines[0], each, 50, **ENDLESS) for each in PROMPTS]
    for turn in range(2):
        before = guessing.stats
        prompts = PROMPTS if not turn else [(*each, 7) for each in PROMPTS]
        if turn:
            expected = [await generate(engines[0], each, 50, **ENDLESS) for each in prompts]
        said = await asyncio.gather(*(generate(guessing, each, 50, **ENDLESS) for each in prompts))
        assert [each.token_ids for each in said] == [each.token_ids for each in expected]
        guessed = guessing.stats.guessed_tokens - before.guessed_tokens
        right = guessing.stats.guessed_right_tokens - before.guessed_right_tokens
        assert guessed > 20
        assert right > 0.8 * guessed
    assert [each.cached_tokens for each in said] == [32, 16, 32, 16]


async def test_what_is_drawn_is_distributed_as_the_model_says(engines: Any) -> None:
    await draw_as_the_model_says(engines, PROMPTS[0])


async def test_those_that_give_way_are_guessed_for_again(
    engines: Any, pair: tuple[Path, Path]
) -> None:
    """And with nothing computed otherwise than if each were alone."""
    model, head = pair
    prompts = PROMPTS[:2]
    expected = [await generate(engines[0], each, 35, **ENDLESS) for each in prompts]
    # Of nine blocks seven; each has the head's layer, twice as wide, beside the four of the model.
    room = kv_bytes(model, 7) * 6 / 4
    settings = with_head(head, kv_cache=room, deterministic=linear.has_onednn())
    async with running(model, **settings) as engine:
        said = await asyncio.gather(*(generate(engine, each, 35, **ENDLESS) for each in prompts))
        stats = engine.stats
    assert [each.token_ids for each in said] == [each.token_ids for each in expected]
    assert stats.total_blocks == 7
    assert stats.preempted > 0
    assert stats.guessed_right_tokens > 15
    assert stats.used_blocks == 0


async def test_a_head_that_knows_nothing_is_left_alone_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, head = random_pair(tmp_path)
    # What it takes is not measured here, but said: a tenth of a step for each token.
    monkeypatch.setattr(HeadGuesser, "_cost", lambda self, usual: 0.1)
    monkeypatch.setattr(HeadGuesser, "_pay", pay_what_was_expected)
    expected = []
    for settings in ({"speculation": "none", "kernels": "sdpa"}, with_head(head)):
        async with running(model, **settings) as engine:
            said = await generate(engine, PROMPTS[0], 60, **ENDLESS)
            expected.append(said.token_ids)
            stats = engine.stats
    assert expected[0] == expected[1]
    # Of 1.5 steps at first and 0.02 for each, at 0.35 a guess; those that are right bring in one.
    assert 0.35 * stats.guessed_tokens - stats.guessed_right_tokens <= 1.5 + 60 * 0.02
    assert stats.guessed_tokens > 0


@pytest.mark.skipif(not linear.kernels_possible(), reason="needs x86 with AVX2")
async def test_in_8_bits_and_in_kernels(pair: tuple[Path, Path]) -> None:
    model, head = pair
    said, right = [], 0
    for speculation in ("none", {"eagle": str(head), "quantization": "int8"}):
        settings = {"quantization": "int8", "kernels": "llvm", "speculation": speculation}
        async with running(model, **settings) as engine:
            said.append((await generate(engine, PROMPTS[0], 40, **ENDLESS)).token_ids)
            right = engine.stats.guessed_right_tokens
    assert said[0] == said[1]
    assert right > 15
