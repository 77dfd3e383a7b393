"""Adapters on llama.cpp, where a batch has one: they take turns, and say what merged models say."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to compare with")
pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")

from providers.base import ProviderStartError
from providers.local.llama_cpp_engine import loader
from providers.local.llama_cpp_engine.bindings.library import lib
from tests.tiny_adapters import make_adapter, merged
from tests.tiny_ggufs import gguf_of, lora_gguf_of
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, reference, tried_once, until
from tests.unit.providers.local.llama_cpp_engine.test_engine import kv_bytes, running

PROMPTS = [
    (5, 6, 7, 8, 9),
    tuple(range(30, 100)),
    (*range(30, 80), 7, 8),
]
TOKENS = 16


class Made:
    """A model with two adapters, as GGUF files, and what each of the three says of the prompts."""

    def __init__(self, folder: Path) -> None:
        self.folder = make_model(folder / "model")
        self.model = gguf_of(self.folder, folder / "model.gguf")
        self.expected = {"": reference(self.folder, PROMPTS, TOKENS)}
        self.sources = []
        for seed, name in enumerate(("one", "two")):
            adapter = make_adapter(folder / name, self.folder, seed=seed, rank=4 - seed)
            whole = merged(folder / f"merged-{name}", self.folder, adapter)
            source = str(lora_gguf_of(adapter, self.folder, folder / f"{name}.gguf"))
            self.sources.append(source)
            self.expected[source] = reference(whole, PROMPTS, TOKENS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module", autouse=True)
def trials_are_remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "try_out", tried_once())
        yield


async def all_said(engine: Any, made: Made) -> list[list[int]]:
    asked = [(prompt, source) for prompt in PROMPTS for source in made.expected]
    results = await asyncio.gather(
        *(generate(engine, prompt, TOKENS, adapter=source or None) for prompt, source in asked)
    )
    return [each.token_ids for each in results]


def expected(made: Made) -> list[list[int]]:
    return [made.expected[source][at] for at in range(len(PROMPTS)) for source in made.expected]


@pytest.mark.parametrize("options", [{}, {"max_step_tokens": 16}, {"max_sequences": 2}], ids=str)
async def test_several_at_the_same_time_cold_and_warm(made: Made, options: dict[str, Any]) -> None:
    assert len({str(each) for each in made.expected.values()}) == 3, "the adapters change nothing"
    async with running(made.model, **options) as engine:
        for source in made.sources:
            engine.load_adapter(source)
        for _ in range(2):
            assert await all_said(engine, made) == expected(made)


async def test_what_another_adapter_computed_is_not_taken(made: Made) -> None:
    one, two = made.sources
    async with running(made.model) as engine:
        for source in made.sources:
            engine.load_adapter(source)
        cached = [
            (await generate(engine, PROMPTS[1], 4, adapter=source)).cached_tokens
            for source in (None, one, two, None, one, two)
        ]
    assert cached == [0, 0, 0, 69, 69, 69]


async def test_those_that_give_way_keep_their_adapter(made: Made) -> None:
    async with running(
        made.model, kv_cache=kv_bytes(made.model, 256), context_length=120
    ) as engine:
        for source in made.sources:
            engine.load_adapter(source)
        assert await all_said(engine, made) == expected(made)
        assert engine.stats.preempted > 0


async def test_one_goes_when_nobody_has_it_any_more(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed = []
    free = lib.llama_adapter_lora_free

    def noticed(pointer: Any) -> None:
        freed.append(pointer)
        free(pointer)

    monkeypatch.setattr(lib, "llama_adapter_lora_free", noticed)
    one, two = made.sources
    async with running(made.model) as engine:
        for source in (one, two):
            engine.load_adapter(source)
        asked = asyncio.create_task(generate(engine, PROMPTS[0], 300, adapter=one, ignore_eos=True))
        await until(lambda: engine.stats.generated_tokens > 0)
        engine.unload_adapter(one)
        assert list(engine.adapters) == [two]
        assert not freed
        result = await asked
        assert result.token_ids[: len(made.expected[one][0])] == made.expected[one][0]
        del result, asked
        gc.collect()
        assert (await generate(engine, PROMPTS[0], 2, adapter=two)).token_ids
        await until(lambda: len(freed) == 1)
        engine.load_adapter(one)
        again = await generate(engine, PROMPTS[1], TOKENS, adapter=one)
        assert (again.cached_tokens, again.token_ids) == (0, made.expected[one][1])


async def test_files_that_are_no_adapters_for_the_model(made: Made, tmp_path: Path) -> None:
    other = make_model(tmp_path / "other", hidden_size=96)
    wrong = lora_gguf_of(make_adapter(tmp_path / "a", other), other, tmp_path / "wrong.gguf")
    damaged = tmp_path / "damaged.gguf"
    whole = await asyncio.to_thread(Path(made.sources[0]).read_bytes)
    damaged.write_bytes(whole[:2000])
    async with running(made.model) as engine:
        for path in (wrong, damaged, made.model):
            with pytest.raises(ProviderStartError, match="can't be used with the model"):
                engine.load_adapter(str(path))
        with pytest.raises(ProviderStartError, match="There is no GGUF file at"):
            engine.load_adapter(str(tmp_path / "none.gguf"))
        assert not engine.adapters
        assert (await generate(engine, PROMPTS[0], TOKENS)).token_ids == made.expected[""][0]
