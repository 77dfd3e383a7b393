"""Models whose layers are attention in part only: the same tokens as `generate`, and where a prompt
may be gone on with."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from providers.base import ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.footprint import footprint
from providers.local.torch_engine.model import linear
from tests.tiny_adapters import EVERY_MODULE, make_adapter, merged
from tests.unit.providers.local.engines import (
    HYBRIDS,
    generate,
    make_architecture,
    opened,
    reference,
    running,
    until,
)

ENDLESS: dict[str, Any] = {"ignore_eos": True}


def random_prompt(length: int, seed: int) -> tuple[int, ...]:
    chosen = random.Random(seed)
    return tuple(chosen.randrange(3, 300) for _ in range(length))


# Of one token, of a block and one more, longer than a step, and longer than a chunk.
PROMPTS = [random_prompt(length, length) for length in (1, 17, 40, 75, 150)]


class Model(NamedTuple):
    name: str
    folder: Path
    expected: list[list[int]]


@pytest.fixture(scope="module", params=HYBRIDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = make_architecture(tmp_path_factory.mktemp(request.param), request.param)
    return Model(request.param, folder, reference(folder, PROMPTS, 24))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_architecture(tmp_path_factory.mktemp("models"), "qwen3_5_text")


def of_state(engine: TorchEngine) -> int:
    slots = engine.loaded.states
    assert slots is not None
    return slots.states.nbytes // slots.states.slots


def all_is_given_back(engine: TorchEngine) -> bool:
    """Nobody runs, and what is kept is all that anything is in."""
    slots = engine.loaded.states
    assert slots is not None
    running, kept = engine.sequences, slots.states.slots - engine.sequences
    return len(slots._free) == running and len(slots._spare) + slots.kept == kept


# The tokens of `generate` ------------------------------------------------------------------------


async def test_alone_then_warm_then_together(model: Model) -> None:
    async with running(model.folder, max_step_tokens=90, max_sequences=8) as engine:
        assert engine.stats.batched
        cold = [await generate(engine, prompt, 24) for prompt in PROMPTS]
        warm = [await generate(engine, prompt, 24) for prompt in PROMPTS]
        together = await asyncio.gather(*(generate(engine, prompt, 24) for prompt in PROMPTS))
        assert all_is_given_back(engine)
    assert [result.token_ids for result in cold] == model.expected
    assert [result.token_ids for result in warm] == model.expected
    assert [result.token_ids for result in together] == model.expected
    assert [result.cached_tokens for result in cold] == [0] * len(PROMPTS)
    assert [result.cached_tokens for result in warm] == [0, 16, 32, 64, 144]


async def test_prompts_that_come_in_by_pieces(model: Model) -> None:
    async with running(model.folder, max_sequences=5, max_step_tokens=13, kernels="sdpa") as engine:
        results = await asyncio.gather(*(generate(engine, prompt, 24) for prompt in PROMPTS))
        assert all_is_given_back(engine)
    assert [result.token_ids for result in results] == model.expected


async def test_scores_of_a_prompt(model: Model) -> None:
    prompt = PROMPTS[3]
    module = transformers.AutoModelForCausalLM.from_pretrained(model.folder).eval()
    with torch.inference_mode():
        logprobs = module(torch.tensor([prompt])).logits[0].log_softmax(-1)
    async with running(model.folder, max_step_tokens=32) as engine:
        await generate(engine, prompt, 1)
        result = await generate(engine, prompt, 1, logprobs=0, prompt_logprobs=True, **ENDLESS)
    theirs = [float(logprobs[place, token]) for place, token in enumerate(prompt[1:])]
    assert [score.logprob for score in result.prompt_scores] == pytest.approx(theirs, abs=1e-2)


async def test_after_preemption(model: Model) -> None:
    prompts = [random_prompt(length, length) for length in (15, 16, 17, 31, 33, 46, 47, 48)]
    expected = reference(model.folder, prompts, 24)
    async with running(model.folder, max_sequences=1) as engine:
        state, loaded = of_state(engine), engine.loaded
        assert loaded.states is not None
        assert loaded.cache_bytes is not None
        block = (loaded.cache_bytes - loaded.states.states.nbytes) // loaded.blocks.total
    # Half for states at most, of which half run, and a dozen blocks in the other half; fewer where
    # states are small, of which more are kept.
    kv_cache = 2 * 16 * state if 16 * state > 12 * block else 16 * state + 12 * block
    async with running(model.folder, max_sequences=8, kv_cache=kv_cache) as engine:
        assert 8 <= engine.stats.total_blocks <= 24
        asked = (generate(engine, prompt, 24, **ENDLESS) for prompt in prompts)
        results = await asyncio.gather(*asked)
        assert engine.stats.preempted > 0
        assert all_is_given_back(engine)
    for result, wanted in zip(results, expected, strict=True):
        assert len(result.token_ids) == 24
        assert result.token_ids[: len(wanted)] == wanted


# Where a prompt is gone on with -------------------------------------------------------------------


async def cached(engine: TorchEngine, prompts: Sequence[Sequence[int]], tokens: int) -> list[int]:
    return [(await generate(engine, each, tokens, **ENDLESS)).cached_tokens for each in prompts]


async def test_what_begins_alike_is_gone_on_with_from_the_third_on(folder: Path) -> None:
    """The second finds what the first had in common with it, and no state there; it leaves one."""
    begin = random_prompt(70, 1)
    prompts = [begin + random_prompt(30, seed) for seed in (2, 3, 4)]
    async with running(folder) as engine:
        assert await cached(engine, prompts, 1) == [0, 0, 64]
        fresh = [await generate(engine, each, 8, cache_salt="another") for each in prompts]
        shared = [await generate(engine, each, 8) for each in prompts]
    assert [each.token_ids for each in shared] == [each.token_ids for each in fresh]


async def test_a_conversation_goes_on_behind_its_last_reply(folder: Path) -> None:
    prompt = random_prompt(40, 5)
    async with running(folder) as engine:
        first = await generate(engine, prompt, 60, **ENDLESS)
        following = [*prompt, *first.token_ids, *random_prompt(20, 6)]
        second = await generate(engine, following, 8, **ENDLESS)
        again = await generate(engine, prompt, 60, **ENDLESS)
        slots = engine.loaded.states
        assert slots is not None
        # Of a reply the last one alone: that of both prompts, and of each reply.
        assert slots.kept <= 4
        alone = await generate(engine, following, 8, cache_salt="another", **ENDLESS)
    # The reply's last token was never computed.
    assert (second.cached_tokens, again.cached_tokens) == (96, 32)
    assert (again.token_ids, second.token_ids) == (first.token_ids, alone.token_ids)


async def test_what_is_kept_goes_with_the_blocks_and_is_bounded(folder: Path) -> None:
    async with running(folder, max_sequences=2) as engine:
        state = of_state(engine)
    # Three states to keep, and a cache of few blocks.
    async with running(folder, max_sequences=2, kv_cache=10.9 * state) as engine:
        slots = engine.loaded.states
        assert slots is not None
        assert (engine.sequences, slots.states.slots) == (2, 5)
        prompts = [random_prompt(20, seed) for seed in range(9)]
        assert await cached(engine, prompts, 2) == [0] * 9
        assert slots.kept == 3
        assert await cached(engine, prompts[-3:], 2) == [16] * 3
        assert await cached(engine, prompts[:1], 2) == [0]
        engine.loaded.blocks.unregister(range(engine.loaded.blocks.total))
        assert slots.kept == 0
        assert all_is_given_back(engine)


async def test_without_a_prefix_cache_nothing_is_kept(folder: Path) -> None:
    async with running(folder, prefix_cache=False, max_sequences=4) as engine:
        assert await cached(engine, [PROMPTS[3]] * 2, 20) == [0, 0]
        slots = engine.loaded.states
        assert slots is not None
        assert (slots.kept, slots.states.slots) == (0, 4)


async def test_who_goes_away_leaves_nothing(folder: Path) -> None:
    async with running(folder, max_step_tokens=16, max_sequences=4) as engine:
        tasks = [
            asyncio.create_task(generate(engine, random_prompt(300, seed), 100, **ENDLESS))
            for seed in range(4)
        ]
        await until(lambda: engine.stats.steps > 3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: engine.stats.running == 0)
        assert all_is_given_back(engine)
        assert engine.stats.used_blocks == 0


async def test_nothing_is_guessed(folder: Path) -> None:
    """A state has no way back from a guess that was wrong."""
    async with running(folder) as engine:
        await generate(engine, [5, 6, 7, 8] * 20, 40, **ENDLESS)
        assert engine.stats.guessed_tokens == 0


async def test_adapters_of_attention_and_mlps(folder: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", folder, modules=EVERY_MODULE)
    expected = reference(merged(tmp_path / "merged", folder, adapter), PROMPTS[2:4], 12)
    plain = reference(folder, PROMPTS[2:4], 12)
    assert expected != plain
    async with running(folder, max_step_tokens=32) as engine:
        engine.load_adapter(str(adapter))
        for _ in range(2):
            results = await asyncio.gather(
                *(generate(engine, each, 12, adapter=str(adapter)) for each in PROMPTS[2:4]),
                *(generate(engine, each, 12) for each in PROMPTS[2:4]),
            )
            assert [each.token_ids for each in results] == expected + plain
        assert [each.cached_tokens for each in results] == [32, 64, 32, 64]


async def test_adapters_of_states_are_refused(folder: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", folder, modules=["in_proj_qkv"])
    async with running(folder) as engine:
        with pytest.raises(ProviderStartError, match=r"linear_attn\.in_proj_qkv.*are supported"):
            engine.load_adapter(str(adapter))


@pytest.mark.parametrize("name", ["qwen3_5_moe_text", "lfm2", "lfm2_moe"])
async def test_the_same_to_the_bit_whatever_else_there_is(tmp_path: Path, name: str) -> None:
    model = make_architecture(tmp_path, name)
    options = {"deterministic": True, "quantization": "none"}
    if linear.kernels_possible():
        options["quantization"] = "int8"

    async def said(engine: TorchEngine, prompt: Sequence[int]) -> Any:
        result = await generate(engine, prompt, 20, logprobs=2, **ENDLESS)
        return result.token_ids, result.scores

    async with running(model, prefix_cache=False, **options) as engine:
        expected = [await said(engine, prompt) for prompt in PROMPTS]
    # Its weights are read from where the first start kept them.
    async with running(model, max_step_tokens=24, **options) as engine:
        for _ in range(2):
            assert await asyncio.gather(*(said(engine, each) for each in PROMPTS)) == expected
        assert [await said(engine, prompt) for prompt in PROMPTS] == expected
        assert engine.stats.cached_tokens > 0


# Memory -------------------------------------------------------------------------------------------


async def test_fewer_run_where_their_states_do_not_fit(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(folder, max_sequences=1) as engine:
        state = of_state(engine)
    async with running(folder, max_sequences=8, kv_cache=6.5 * state) as engine:
        assert engine.sequences == 3
        prompts = [random_prompt(8, seed) for seed in range(5)]
        results = await asyncio.gather(*(generate(engine, each, 4) for each in prompts))
    assert "3 requests run at a time, since the state of each takes" in caplog.text
    assert [each.token_ids for each in results] == reference(folder, prompts, 4)
    with pytest.raises(ProviderStartError, match="a request's state takes"):
        opened(folder, kv_cache=1.9 * state)


@pytest.mark.parametrize("kv_cache", [300_000.0, 1e9])
async def test_what_is_told_beforehand_is_what_is_taken(model: Model, kv_cache: float) -> None:
    config = TorchConfig(device="cpu", quantization="none", kv_cache=kv_cache, max_sequences=8)
    told = footprint("tiny", model.folder, config, 256, generates=True).kv_cache
    async with running(
        model.folder, kv_cache=kv_cache, max_sequences=8, context_length=256
    ) as engine:
        taken = engine.loaded.cache_bytes
    assert taken is not None
    assert 0.9 * told < taken <= told
