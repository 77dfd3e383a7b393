"""`local::llama_cpp`: adapters as models of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to make models")
pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")

from llama_compat.distribution.adapters import AdapterOf
from llama_compat.types import (
    CompletionRequest,
    GreedySamplingStrategy,
    SamplingParams,
    StreamProgress,
    TextDelta,
)
from providers.base import ProviderModel, ProviderStartError
from providers.local.llama_cpp_engine import loader
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.provider import LlamaCppProvider
from tests.tiny_adapters import make_adapter
from tests.tiny_ggufs import gguf_of, lora_gguf_of
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import tried_once


@pytest.fixture(scope="module", autouse=True)
def trials_are_remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "try_out", tried_once())
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model, and an adapter for it."""
    folder = tmp_path_factory.mktemp("adapters")
    model = make_model(folder / "model")
    adapter = make_adapter(folder / "adapter", model)
    own = gguf_of(model, folder / "model.gguf")
    return str(own), str(lora_gguf_of(adapter, model, folder / "adapter.gguf"))


def provider_of(model: str, *sources: str, **config: bool) -> LlamaCppProvider:
    adapters = tuple(AdapterOf(model, f"a{at}", each) for at, each in enumerate(sources))
    settings = LlamaCppConfig(threads=1, **config)
    return LlamaCppProvider("local", settings, [ProviderModel(model, adapters=adapters)])


async def said(provider: LlamaCppProvider, model: str) -> str:
    sampling = SamplingParams(strategy=GreedySamplingStrategy(), max_tokens=12, ignore_eos=True)
    events = [
        each async for each in provider.completion(CompletionRequest(model, "The quick", sampling))
    ]
    pieces = [each.delta for each in events if isinstance(each, StreamProgress)]
    return "".join(each.text for each in pieces if isinstance(each, TextDelta))


@pytest.mark.parametrize("deterministic", [False, True])
async def test_one_is_a_model_of_its_own(files: tuple[str, str], deterministic: bool) -> None:
    model, adapter = files
    provider = provider_of(model, adapter, deterministic=deterministic)
    await provider.start()
    try:
        own, adapted = await said(provider, model), await said(provider, f"{model}:a0")
        assert own != adapted
        await provider.unload_adapter(f"{model}:a0")
        assert await said(provider, model) == own
        assert await said(provider, f"{model}:a0") == adapted
    finally:
        await provider.stop()


def test_it_counts_as_a_part_of_its_model(files: tuple[str, str]) -> None:
    model, adapter = files
    alone, both = (provider_of(*each).footprint(model) for each in ((model,), files))
    assert both.weights - alone.weights == Path(adapter).stat().st_size
    assert both.kv_cache == alone.kv_cache


async def test_one_that_is_not_there(files: tuple[str, str]) -> None:
    provider = provider_of(files[0], "/no/such.gguf")
    with pytest.raises(ProviderStartError, match="There is no GGUF file at"):
        await provider.start()
    await provider.stop()
