"""Rows with adapters, several of them in one batch, say what models with merged weights say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from providers.local.torch_engine.engine import TorchEngine
from tests.tiny_adapters import EVERY_MODULE, make_adapter, merged
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import (
    Result,
    generate,
    make_architecture,
    reference,
    running,
    until,
)

PROMPTS = [
    [5, 6, 7, 8, 9],
    list(range(20, 61)),
    [*range(20, 52), 7, 8],
    [11, 11, 11, *range(100, 150)],
]

FUSED = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")


async def said(
    engine: TorchEngine, asked: Sequence[tuple[Sequence[int], Path | None]], **options: Any
) -> list[Result]:
    return await asyncio.gather(
        *(
            generate(engine, prompt, adapter=None if adapter is None else str(adapter), **options)
            for prompt, adapter in asked
        )
    )


def tokens(results: Sequence[Result]) -> list[list[int]]:
    return [each.token_ids for each in results]


class Adapted(NamedTuple):
    """A model with two adapters, and what each says to the prompts once it is merged."""

    model: Path
    adapters: list[Path]
    wanted: dict[Path | None, list[list[int]]]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Adapted]:
    """Made once for each architecture."""

    @cache
    def of(name: str) -> Adapted:
        folder = tmp_path_factory.mktemp(name)
        model = make_architecture(folder / "model", name)
        modules = FUSED if name == "phi3" else EVERY_MODULE
        adapters = [
            make_adapter(folder / "one", model, seed=1, modules=modules),
            make_adapter(
                folder / "two", model, seed=2, rank=2, modules=modules[:2], use_rslora=True
            ),
        ]
        wanted: dict[Path | None, list[list[int]]] = {None: reference(model, PROMPTS, 12)}
        for each in adapters:
            whole = merged(folder / f"merged-{each.name}", model, each)
            wanted[each] = reference(whole, PROMPTS, 12)
        return Adapted(model, adapters, wanted)

    return of


@pytest.mark.parametrize(
    "name",
    ["llama", "qwen3", "phi3", "granite", "gemma3_text", "olmo2", "smollm3", "gemma2", "cohere2"],
)
@pytest.mark.parametrize("kernels", ["auto", "sdpa"])
async def test_a_batch_of_several_adapters_says_what_merged_models_say(
    adapted: Callable[[str], Adapted], name: str, kernels: str
) -> None:
    """Cold and warm; the prompts of two begin alike, and what one computed is not the other's."""
    if name in ("gemma2", "cohere2") and kernels == "auto":
        pytest.skip("it runs on PyTorch's operations either way")
    model, adapters, wanted = adapted(name)
    assert len({str(each) for each in wanted.values()}) == 3, "the adapters change nothing"
    asked = [(number, each) for number in range(len(PROMPTS)) for each in (None, *adapters)]
    expected = [wanted[each][number] for number, each in asked]
    async with running(model, kernels=kernels, max_step_tokens=32) as engine:
        for each in adapters:
            engine.load_adapter(str(each))
        requests = [(PROMPTS[number], each) for number, each in asked]
        cold = await said(engine, requests, max_tokens=12)
        warm = await said(engine, requests, max_tokens=12)
        alone = [await said(engine, [each], max_tokens=12) for each in requests]
    assert tokens(cold) == expected
    assert tokens(warm) == expected
    assert [each.token_ids for [each] in alone] == expected
    # Of each prompt of 41 tokens two blocks were there, computed with the same adapter.
    assert {each.cached_tokens for each in warm[3:6]} == {32}


async def test_the_prefix_of_another_adapter_is_not_taken(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    one, two = (make_adapter(tmp_path / f"{n}", model, seed=n) for n in (1, 2))
    prompt = list(range(20, 90))
    async with running(model) as engine:
        for each in (one, two):
            engine.load_adapter(str(each))
        cached = []
        for each in (None, one, two, None, one, two):
            [result] = await said(engine, [(prompt, each)])
            cached.append(result.cached_tokens)
    assert cached == [0, 0, 0, 64, 64, 64]


async def test_an_adapter_that_is_read_again_is_another_one(tmp_path: Path) -> None:
    """Its files may have changed, and what was computed with them before is of no use."""
    model = make_model(tmp_path / "model")
    adapter = make_adapter(tmp_path / "adapter", model, seed=1)
    prompt = list(range(20, 90))
    async with running(model) as engine:
        engine.load_adapter(str(adapter))
        [first] = await said(engine, [(prompt, adapter)])
        make_adapter(adapter, model, seed=2)
        engine.unload_adapter(str(adapter))
        assert not engine.adapters
        engine.load_adapter(str(adapter))
        [second] = await said(engine, [(prompt, adapter)])
    assert second.cached_tokens == 0
    whole = merged(tmp_path / "merged", model, adapter)
    assert [second.token_ids] == reference(whole, [prompt], 16) != [first.token_ids]


async def test_what_runs_with_an_adapter_that_is_unloaded_goes_on(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    adapter = make_adapter(tmp_path / "adapter", model, seed=1)
    whole = merged(tmp_path / "merged", model, adapter)
    [wanted] = reference(whole, PROMPTS[:1], 200)
    async with running(model) as engine:
        engine.load_adapter(str(adapter))
        asked = asyncio.create_task(said(engine, [(PROMPTS[0], adapter)], max_tokens=200))
        await until(lambda: engine.stats.generated_tokens > 0)
        engine.unload_adapter(str(adapter))
        [result] = await asked
    assert result.token_ids == wanted


async def test_preempted_sequences_keep_their_adapter(tmp_path: Path) -> None:
    """A KV cache for two of the six, so that they take turns."""
    model = make_model(tmp_path / "model")
    one, two = (make_adapter(tmp_path / f"{n}", model, seed=n) for n in (1, 2))
    wanted = {
        each: reference(
            model if each is None else merged(tmp_path / f"m{each.name}", model, each),
            PROMPTS[:2],
            40,
        )
        for each in (None, one, two)
    }
    async with running(model, kv_cache=12 * 16 * 2 * 2 * 2 * 16 * 4.0, context_length=96) as engine:
        for each in (one, two):
            engine.load_adapter(str(each))
        asked = [(number, each) for number in (0, 1) for each in (None, one, two)]
        results = await said(
            engine, [(PROMPTS[number], each) for number, each in asked], max_tokens=40
        )
        assert engine.stats.preempted > 0
    assert tokens(results) == [wanted[each][number] for number, each in asked]


async def test_guesses_are_checked_with_the_adapter(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    adapter = make_adapter(tmp_path / "adapter", model, seed=1)
    whole = merged(tmp_path / "merged", model, adapter)
    prompt = [7, 8, 9, 10] * 8
    [wanted] = reference(whole, [prompt], 100)
    async with running(model, speculation="ngram") as engine:
        engine.load_adapter(str(adapter))
        [result] = await said(engine, [(prompt, adapter)], max_tokens=100)
        assert engine.stats.guessed_tokens > 0
    assert result.token_ids == wanted


async def test_a_batch_without_adapters_is_computed_as_if_there_were_none(tmp_path: Path) -> None:
    """Weights of 8 bits: the model's rows are the same to the bit beside rows with an adapter."""
    model = make_model(tmp_path / "model")
    adapter = make_adapter(tmp_path / "adapter", model, seed=1)
    async with running(model, quantization="int8", prefix_cache=False) as engine:
        [alone] = await said(engine, [(PROMPTS[0], None)], logprobs=2)
        engine.load_adapter(str(adapter))
        beside, other = await said(engine, [(PROMPTS[0], None), (PROMPTS[0], adapter)], logprobs=2)
    assert (beside.token_ids, beside.scores) == (alone.token_ids, alone.scores)
    assert other.token_ids != alone.token_ids
