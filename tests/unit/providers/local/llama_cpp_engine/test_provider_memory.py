"""GGUF models that share memory: what they will take, told by their files, and what they take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("gguf", reason="needs the extra 'torch'")

from llama_compat.distribution.residency import ModelStay, ResidencySettings
from llama_compat.types import (
    ChatCompletionRequest,
    EmbeddingRequest,
    SamplingParams,
    StreamComplete,
    UserMessage,
)
from providers.base import ProviderModel, ProviderStartError
from providers.local.llama_cpp_engine import loader
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.provider import LlamaCppProvider
from providers.local.residency.residency import Residency
from tests.tiny_ggufs import gguf_of
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import tried_once

TOKEN = 2 * 2 * (16 + 16) * 2
"""Bytes of the tiny model's cache: layers, heads of keys, width of key and value, 16 bits."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = make_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=2048)
    return (
        gguf_of(folder, folder.with_suffix(".gguf")),
        gguf_of(folder, folder.with_suffix(".embeds.gguf"), pooling=1),
    )


@pytest.fixture(scope="module")
def tried() -> Callable[..., bool]:
    return tried_once()


def provider_of(*models: ProviderModel, bound: int, **config: object) -> LlamaCppProvider:
    settings = LlamaCppConfig.model_validate(
        {"threads": 1, "max_sequences": 4, "n_gpu_layers": 0, **config}
    )
    provider = LlamaCppProvider("local", settings, models)
    provider.share_memory(Residency({"cpu": bound}, ResidencySettings(stay_seconds=0)))
    return provider


@pytest.mark.parametrize(
    ("config", "length", "tokens"),
    [
        ({"kv_cache": 1000 * TOKEN}, None, 1000),
        ({"kv_cache": 1e9}, None, 4 * 2048),
        ({"kv_cache": 1e9}, 512, 4 * 512),
        ({"kv_cache": 1000 * TOKEN}, 2000, 2000),
    ],
)
def test_what_a_file_will_take(
    files: tuple[Path, Path], config: dict[str, float], length: int | None, tokens: int
) -> None:
    path = files[0]
    provider = provider_of(ProviderModel(str(path), length), bound=10**9, **config)
    found = provider.footprint(str(path))
    assert found.kv_cache == tokens * TOKEN
    assert found.needs == {"cpu": path.stat().st_size + (tokens + 256) * TOKEN}


def test_a_share_is_one_of_the_weights(files: tuple[Path, Path]) -> None:
    path = files[0]
    provider = provider_of(ProviderModel(str(path)), bound=10**9, kv_cache=0.25)
    assert provider.footprint(str(path)).kv_cache == path.stat().st_size // 4


def test_a_damaged_file_is_told_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    provider = provider_of(ProviderModel(str(path)), bound=10**9)
    with pytest.raises(ProviderStartError, match=r"takes of memory: its header is cut off"):
        provider.footprint(str(path))


async def test_two_take_turns_and_take_no_more_than_was_thought(
    files: tuple[Path, Path], tried: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "try_out", tried)
    says, embeds = (str(each) for each in files)
    models = [ProviderModel(says), ProviderModel(embeds, 512)]
    one = max(provider_of(*models, bound=1).footprint(name).needs["cpu"] for name in (says, embeds))
    provider = provider_of(*models, bound=one)
    await provider.start()
    resident = provider.resident(says)
    other = provider.resident(embeds)
    assert resident is not None
    assert other is not None
    try:
        assert not provider.engine_stats()
        for _ in range(2):
            lease = await resident.lease()
            assert resident.snapshot().sizes["cpu"] <= resident.model.needs["cpu"]
            asked = ChatCompletionRequest(
                says, (UserMessage("Hi"),), SamplingParams(max_tokens=3, ignore_eos=True)
            )
            *_, last = [event async for event in provider.chat_completion(asked)]
            assert isinstance(last, StreamComplete)
            lease.release()
            lease = await other.lease()
            assert not provider.engines
            assert other.snapshot().sizes["cpu"] <= other.model.needs["cpu"]
            assert len((await provider.embed(EmbeddingRequest(embeds, ("a", "b")))).vectors) == 2
            lease.release()
        # What an engine has done is not forgotten with it.
        assert provider.engine_stats()[says].finished == 2
        assert provider.stats()["running"] == 0
    finally:
        await provider.stop()


async def test_what_is_preloaded_is_there_when_the_provider_has_started(
    files: tuple[Path, Path], tried: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "try_out", tried)
    name = str(files[0])
    stay = ModelStay("always", preload=True)
    provider = provider_of(ProviderModel(name, None, stay), bound=10**9)
    await provider.start()
    assert list(provider.engines) == [name]
    await provider.stop()
