"""`deterministic: true`: a request gets the same tokens and the same scores, to the bit, alone and
beside others, cold and warm, and where it had to give way."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from llama_compat.types import TopPSamplingStrategy
from providers.base import ProviderStartError
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.footprint import cache_shape
from providers.local.torch_engine.model import linear
from tests.tiny_adapters import make_adapter
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import (
    GREEDY,
    REPLY,
    Result,
    generate,
    make_architecture,
    opened,
    running,
)

needs_kernels = pytest.mark.skipif(
    not linear.kernels_possible(), reason="needs x86 with AVX2, Linux and llvmlite"
)

WAYS = [
    pytest.param({"quantization": "int8"}, marks=needs_kernels, id="int8"),
    pytest.param({"quantization": "none", "kernels": "llvm"}, marks=needs_kernels, id="float32"),
    pytest.param({"quantization": "none", "kernels": "sdpa"}, id="sdpa"),
    pytest.param({"quantization": "float16"}, marks=needs_kernels, id="float16"),
]


FEW = 12
"""Requests, of each kind that `Asked` makes: where other tests ask the same kernels with more."""


class Asked:
    """Requests, and how each is asked: greedily, or drawn with a seed; some with an adapter."""

    def __init__(self, adapter: Path | None, count: int) -> None:
        chosen = random.Random(1)
        begun = [chosen.randrange(3, 390) for _ in range(70)]
        self.requests: list[tuple[list[int], dict[str, Any]]] = []
        for number in range(count):
            own = [chosen.randrange(3, 390) for _ in range(chosen.randrange(1, 90))]
            prompt = (begun[: chosen.randrange(20, 70)] if number % 3 else []) + own
            prompt = [7, 8, 9] * 12 if number == 4 else prompt  # where there is much to guess
            options: dict[str, Any] = {"strategy": GREEDY}
            if number % 2:
                strategy = TopPSamplingStrategy(temperature=1.0, top_p=0.95)
                options = {"strategy": strategy, "seed": number}
            if adapter is not None and number % 4 < 2:
                options["adapter"] = str(adapter)
            self.requests.append((prompt, options))

    async def one(self, engine: TorchEngine, number: int) -> Result:
        prompt, options = self.requests[number]
        return await generate(engine, prompt, REPLY, logprobs=3, ignore_eos=True, **options)

    async def all(self, engine: TorchEngine, order: list[int] | None = None) -> list[Any]:
        """What is said in reply to each, all at the same time."""
        order = order or list(range(len(self.requests)))
        found = await asyncio.gather(*(self.one(engine, number) for number in order))
        by_number = dict(zip(order, found, strict=True))
        return [told(by_number[number]) for number in range(len(order))]

    async def alone(self, engine: TorchEngine) -> list[Any]:
        """What is said in reply to each, one after the other."""
        return [told(await self.one(engine, number)) for number in range(len(self.requests))]


def told(result: Result) -> Any:
    return result.token_ids, result.scores


async def everything(
    folder: Path, adapter: Path | None = None, *, count: int = 20, **options: Any
) -> int:
    """Ask in every way; how many tokens were guessed."""
    asked = Asked(adapter, count)

    async def prepared(engine: TorchEngine) -> TorchEngine:
        if adapter is not None:
            engine.load_adapter(str(adapter))
        return engine

    async with running(folder, deterministic=True, prefix_cache=False, **options) as engine:
        expected = await asked.alone(await prepared(engine))
    async with running(folder, deterministic=True, **options) as engine:
        await prepared(engine)
        assert await asked.all(engine) == expected, "together and cold"
        assert await asked.all(engine) == expected, "together and warm"
        assert await asked.alone(engine) == expected, "alone and warm"
        assert engine.stats.cached_tokens > 0
        guessed = engine.stats.guessed_tokens
    # A step of few tokens cuts prompts elsewhere, and the cache holds a few requests alone.
    config = transformers.AutoConfig.from_pretrained(folder)
    block = 16.0 * cache_shape(config, torch.float32).bytes_per_token
    few: dict[str, Any] = {
        "max_step_tokens": 24,
        "kv_cache": 20 * block,
        "context_length": 250,
        # Prompts come in at once, so that there are as many at a time as fill the cache.
        "prompt_slowdown": 1000.0,
    }
    if options.get("kernels") != "sdpa":
        few["threads"] = 1  # fewer than the others had, or as many
    async with running(folder, deterministic=True, **options, **few) as engine:
        await prepared(engine)
        order = list(range(len(expected)))
        random.Random(2).shuffle(order)
        assert await asked.all(engine, order) == expected, "preempted"
        assert engine.stats.preempted > 0
    return guessed


@pytest.mark.parametrize("options", WAYS)
async def test_the_same_request_gets_the_same_reply(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    assert await everything(make_architecture(tmp_path / "model", "llama"), **options) > 0


OTHERS = [
    pytest.param("qwen3", {"quantization": "int8"}, marks=needs_kernels),
    pytest.param("qwen3_moe", {"quantization": "int8"}, marks=needs_kernels),
    ("gemma2", {"quantization": "none"}),
    ("deepseek_v3", {"quantization": "none"}),
    pytest.param("gpt_oss", {"quantization": "float16"}, marks=needs_kernels),
]


@pytest.mark.parametrize(("name", "options"), OTHERS)
async def test_other_architectures(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    await everything(make_architecture(tmp_path / "model", name), count=FEW, **options)


@pytest.mark.parametrize("options", [WAYS[0], WAYS[2]])
async def test_beside_others_with_adapters(tmp_path: Path, options: dict[str, Any]) -> None:
    model = make_architecture(tmp_path / "model", "llama")
    adapter = make_adapter(tmp_path / "adapter", model)
    await everything(model, adapter, count=FEW, **options)


@pytest.mark.parametrize("size", [72, 100])
async def test_rows_that_are_no_whole_vectors(tmp_path: Path, size: int) -> None:
    """PyTorch's operations compute what is left over of vectors otherwise."""
    model = make_model(tmp_path / "model", intermediate_size=size)
    await everything(model, count=FEW, kernels="sdpa")


async def test_rows_of_many_inputs(tmp_path: Path) -> None:
    """oneDNN sums them up in parts, others for one row than for more."""
    model = make_model(tmp_path / "model", intermediate_size=2048)
    await everything(model, quantization="none")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "bfloat16"}, "it would run on 'cpu' in bfloat16"),
    ],
)
def test_what_can_t_be_deterministic_is_refused(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ProviderStartError, match=reason):
        opened(make_model(tmp_path / "model"), deterministic=True, **options)
