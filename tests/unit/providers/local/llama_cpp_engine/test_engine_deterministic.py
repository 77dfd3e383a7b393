"""`deterministic: true` on llama.cpp: a request gets the same tokens and the same scores, to the
bit, alone and beside others, cold and warm, and where it had to give way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to make models")
pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")

from llama_compat.types import CAN_WAIT, TopPSamplingStrategy
from providers.local.llama_cpp_engine import loader
from tests.tiny_ggufs import gguf_of
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import GREEDY, Result, generate, tried_once, until
from tests.unit.providers.local.llama_cpp_engine.test_engine import running

STEP = 16


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    return gguf_of(make_model(folder / "tiny"), folder / "tiny.gguf")


@pytest.fixture(scope="module", autouse=True)
def trials_are_remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "try_out", tried_once())
        yield


def requests() -> list[tuple[list[int], dict[str, Any]]]:
    chosen = random.Random(1)
    begun = [chosen.randrange(3, 390) for _ in range(70)]
    made = []
    for number in range(24):
        own = [chosen.randrange(3, 390) for _ in range(chosen.randrange(1, 90))]
        prompt = (begun[: chosen.randrange(20, 70)] if number % 3 else []) + own
        options: dict[str, Any] = {"strategy": GREEDY}
        if number % 2:
            strategy = TopPSamplingStrategy(temperature=1.0, top_p=0.95)
            options = {"strategy": strategy, "seed": number}
        made.append((prompt, options))
    return made


def told(result: Result) -> Any:
    return result.token_ids, result.scores


async def one(engine: Any, number: int, **more: Any) -> Any:
    prompt, options = requests()[number]
    return told(await generate(engine, prompt, 24, logprobs=3, ignore_eos=True, **options, **more))


async def alone(engine: Any) -> list[Any]:
    return [await one(engine, number) for number in range(24)]


async def together(engine: Any) -> list[Any]:
    return await asyncio.gather(*(one(engine, number) for number in range(24)))


async def test_the_same_request_gets_the_same_reply(gguf: Path) -> None:
    settings = {"deterministic": True, "max_step_tokens": STEP}
    async with running(gguf, prefix_cache=False, **settings) as engine:
        expected = await alone(engine)
        assert await together(engine) == expected, "together, without a cache"
        assert engine.stats.cached_tokens == 0
    async with running(gguf, **settings) as engine:
        assert await together(engine) == expected, "together and cold"
        assert await together(engine) == expected, "together and warm"
        assert await alone(engine) == expected, "alone and warm"
        cached = engine.stats.cached_tokens
        assert cached > 0
        assert cached % STEP == 0
    async with running(gguf, max_sequences=2, **settings) as engine:
        assert await together(engine) == expected, "two at a time"


async def test_what_had_to_give_way_is_computed_again_as_it_was(gguf: Path) -> None:
    settings = {"deterministic": True, "max_step_tokens": STEP, "max_sequences": 4}
    async with running(gguf, **settings) as engine:
        expected = await alone(engine)
        patient = [
            asyncio.create_task(one(engine, number, priority=CAN_WAIT)) for number in range(4)
        ]
        await until(lambda: engine.stats.generated_tokens > 24 * 24 + 8)
        others = await asyncio.gather(*(one(engine, number) for number in range(4, 24)))
        assert [*await asyncio.gather(*patient), *others] == expected
        assert engine.stats.preempted > 0
