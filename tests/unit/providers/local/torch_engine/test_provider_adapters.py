"""`local::torch`: adapters as models of their own, loaded and unloaded, over reloads and in shared
memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution.adapters import AdapterOf
from llama_compat.distribution.residency import ResidencySettings
from llama_compat.errors import APIError
from llama_compat.types import (
    ChatCompletionRequest,
    GreedySamplingStrategy,
    SamplingParams,
    StreamProgress,
    TextDelta,
    UserMessage,
)
from providers.base import ProviderModel, ProviderStartError
from providers.local.engine import AdaptableEngine
from providers.local.residency.residency import Residency
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_adapters import make_adapter
from tests.tiny_models import make_model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """A model, and two adapters for it."""
    folder = tmp_path_factory.mktemp("adapters")
    model = make_model(folder / "model")
    one, two = (make_adapter(folder / name, model, seed=at) for at, name in enumerate("ab"))
    return str(model), str(one), str(two)


def provider_of(model: str, adapters: Sequence[str], **config: Any) -> TorchProvider:
    named = tuple(AdapterOf(model, Path(each).name, each) for each in adapters)
    settings = TorchConfig(**{"device": "cpu", "dtype": "float32", **config})
    return TorchProvider("local", settings, [ProviderModel(model, adapters=named)])


@asynccontextmanager
async def started(provider: TorchProvider) -> AsyncIterator[TorchProvider]:
    try:
        await provider.start()
        yield provider
    finally:
        await provider.stop()


async def said(provider: TorchProvider, model: str) -> str:
    sampling = SamplingParams(strategy=GreedySamplingStrategy(), max_tokens=12, ignore_eos=True)
    request = ChatCompletionRequest(model, (UserMessage("Hello"),), sampling)
    events = [event async for event in provider.chat_completion(request)]
    pieces = [event.delta for event in events if isinstance(event, StreamProgress)]
    return "".join(each.text for each in pieces if isinstance(each, TextDelta))


def loaded(provider: TorchProvider) -> set[str]:
    [engine] = provider.engines.values()
    assert isinstance(engine, AdaptableEngine)
    return set(engine.adapters)


async def test_adapters_are_models_of_their_own(folders: tuple[str, str, str]) -> None:
    model, one, two = folders
    async with started(provider_of(model, [one, two])) as provider:
        assert loaded(provider) == {one, two}
        texts = [await said(provider, each) for each in (model, f"{model}:a", f"{model}:b")]
        assert len(set(texts)) == 3
        assert provider.context_length(f"{model}:a") == provider.context_length(model) == 512
        assert provider.is_adapted(f"{model}:a")
        assert not provider.is_adapted(model)
        assert list(provider.engine_stats()) == [model]


async def test_one_that_was_unloaded_is_loaded_when_it_is_asked_for(
    folders: tuple[str, str, str],
) -> None:
    model, one, _ = folders
    async with started(provider_of(model, [one])) as provider:
        before = await said(provider, f"{model}:a")
        await provider.unload_adapter(f"{model}:a")
        assert not loaded(provider)
        assert await said(provider, model) != before
        assert await said(provider, f"{model}:a") == before
        assert loaded(provider) == {one}


async def test_one_whose_files_are_gone_is_an_error_of_its_own_requests(
    folders: tuple[str, str, str], tmp_path: Path
) -> None:
    model = folders[0]
    adapter = make_adapter(tmp_path / "a", Path(model))
    async with started(provider_of(model, [str(adapter)])) as provider:
        await provider.unload_adapter(f"{model}:a")
        (adapter / "adapter_model.safetensors").unlink()
        with pytest.raises(APIError, match="is not whole") as raised:
            await said(provider, f"{model}:a")
        assert (raised.value.status, raised.value.code) == (503, "model_not_loaded")
        assert await said(provider, model)


async def test_one_that_can_t_be_loaded_keeps_the_provider_from_starting(
    folders: tuple[str, str, str], tmp_path: Path
) -> None:
    other = make_model(tmp_path / "other", hidden_size=96)
    wrong = make_adapter(tmp_path / "wrong", other)
    with pytest.raises(ProviderStartError, match="it was trained for another model"):
        async with started(provider_of(folders[0], [str(wrong)])):
            pass


async def test_a_reload_changes_the_adapters_of_a_model_that_runs_on(
    folders: tuple[str, str, str],
) -> None:
    model, one, two = folders
    async with started(provider_of(model, [one])) as provider:
        [engine] = provider.engines.values()
        before = await said(provider, model)
        other = provider_of(model, [two])
        other.adopt(provider)
        async with started(other):
            assert other.engines[model] is engine
            assert loaded(other) == {two}
            assert await said(other, f"{model}:b") != before
            # What came before the reload has what it was asked with.
            assert await said(provider, f"{model}:a") != before


async def test_adapters_come_and_go_with_their_model_where_memory_is_shared(
    folders: tuple[str, str, str],
) -> None:
    model, one, two = folders
    alone = provider_of(model, []).footprint(model)
    needs = provider_of(model, [one, two]).footprint(model)
    numbers = 2 * sum(4 * (64 + out) for out in (64, 32, 32, 64, 128, 128)) + 2 * 4 * (128 + 64)
    assert needs.needs["cpu"] - alone.needs["cpu"] == 2 * 4 * numbers
    assert needs.weights - alone.weights == 2 * 4 * numbers
    residency = Residency({"cpu": 10**9}, ResidencySettings())
    provider = provider_of(model, [one, two])
    provider.share_memory(residency)
    async with started(provider):
        assert not provider.engines
        await provider.load_adapter(f"{model}:a")
        assert loaded(provider) == {one, two}
        resident = provider.resident(f"{model}:a")
        assert resident is provider.resident(model) is not None
        texts = {await said(provider, each) for each in (model, f"{model}:a", f"{model}:b")}
        assert len(texts) == 3
