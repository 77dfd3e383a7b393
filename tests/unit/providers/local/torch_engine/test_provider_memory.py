"""Models that share memory: loaded when asked for, gone when they make room, and on a reload."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from llama_compat.distribution.residency import ModelStay, ResidencySettings
from llama_compat.types import (
    ChatCompletionRequest,
    EmbeddingRequest,
    RerankRequest,
    SamplingParams,
    StreamComplete,
    TextDelta,
    UserMessage,
)
from providers.base import ProviderModel, ProviderStartError
from providers.local.residency.host import EngineHost, Footprint
from providers.local.residency.residency import Residency
from providers.local.residency.resident import Resident, Whereabouts
from providers.local.torch_engine import parking
from providers.local.torch_engine.config import CUDA_BYTES, TorchConfig
from providers.local.torch_engine.loading import loader
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_embedder, make_model, make_reranker

MB = 10**6


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    path = tmp_path_factory.mktemp("models")
    return str(make_model(path / "a", seed=1)), str(make_model(path / "b", seed=2))


def provider_of(
    residency: Residency | None, *models: ProviderModel, **config: Any
) -> TorchProvider:
    settings = {"device": "cpu", "quantization": "none", "kernels": "sdpa", "max_sequences": 4}
    provider = TorchProvider(
        "local", TorchConfig.model_validate({**settings, **config}), list(models)
    )
    if residency is not None:
        provider.share_memory(residency)
    return provider


def room_for(provider: TorchProvider, *names: str) -> int:
    return sum(provider.footprint(name).needs["cpu"] for name in names)


@asynccontextmanager
async def started(provider: TorchProvider) -> AsyncGenerator[TorchProvider, None]:
    try:
        await provider.start()
        yield provider
    finally:
        await provider.stop()


def resident_of(provider: TorchProvider, name: str) -> Resident:
    resident = provider.resident(name)
    assert resident is not None
    return resident


async def say(provider: TorchProvider, name: str, tokens: int = 3) -> None:
    asked = ChatCompletionRequest(
        name, (UserMessage("Hi"),), SamplingParams(max_tokens=tokens, ignore_eos=True)
    )
    *_, last = [event async for event in provider.chat_completion(asked)]
    assert isinstance(last, StreamComplete)
    assert last.usage.completion_tokens == tokens


def residency(bound: int, **settings: float) -> Residency:
    return Residency({"cpu": bound}, ResidencySettings.model_validate(settings))


async def test_two_models_take_turns_in_the_room_of_one(folders: tuple[str, str]) -> None:
    a, b = folders
    bound = room_for(provider_of(None), a)
    models = ProviderModel(a), ProviderModel(b)
    async with started(provider_of(residency(bound, stay_seconds=0), *models)) as provider:
        assert not provider.engines
        gone: list[weakref.ref[object]] = []
        for name in (a, b, a):
            lease = await resident_of(provider, name).lease()
            assert list(provider.engines) == [name]
            assert all(each() is None for each in gone), "what made room is still there"
            await say(provider, name)
            taken = resident_of(provider, name).snapshot().sizes["cpu"]
            assert 0.9 * bound < taken <= bound
            gone.append(weakref.ref(provider.engines[name]))
            lease.release()
        assert provider.engine_stats()[a].generated_tokens == 6
        assert provider.engine_stats()[b].generated_tokens == 3
        assert provider.stats() == {"running": 0, "waiting": 0}


async def test_what_can_not_be_is_told_before_anything_is_loaded(
    folders: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading large models takes minutes."""
    a, b = folders
    models = (
        ProviderModel(a, stay=ModelStay("always", preload=True)),
        ProviderModel(b, stay=ModelStay(park=True)),
    )
    provider = provider_of(residency(10**9), *models)
    loads: list[str] = []

    async def load(host: EngineHost) -> None:
        loads.append(host.name)

    monkeypatch.setattr(EngineHost, "load", load)
    with pytest.raises(ProviderStartError, match=f"'{b}' of 'local' can't be parked"):
        await provider.start()
    await provider.stop()
    assert not loads


async def test_one_answers_while_another_is_loaded(
    folders: tuple[str, str], tmp_path: Path
) -> None:
    a = folders[0]
    large = str(make_model(tmp_path / "large", hidden_size=256, num_hidden_layers=12))
    models = ProviderModel(a), ProviderModel(large)
    async with started(provider_of(residency(10**9), *models)) as provider:
        lease = await resident_of(provider, a).lease()
        await say(provider, a)
        loading = asyncio.create_task(resident_of(provider, large).load())
        await asyncio.sleep(0)
        assert resident_of(provider, large).state is Whereabouts.loading
        said_meanwhile = 0
        while not loading.done():
            await say(provider, a)
            said_meanwhile += resident_of(provider, large).state is Whereabouts.loading
        # Each is 3 steps; where loading has the thread for computing, the first waits for its end.
        assert said_meanwhile > 1
        await loading
        lease.release()


async def test_embedders_and_rerankers_share_it_too(tmp_path: Path) -> None:
    embeds, ranks = str(make_embedder(tmp_path / "e")), str(make_reranker(tmp_path / "r"))
    models = ProviderModel(embeds), ProviderModel(ranks)
    bound = max(room_for(provider_of(None), each) for each in (embeds, ranks))
    async with started(provider_of(residency(bound, stay_seconds=0), *models)) as provider:
        lease = await resident_of(provider, embeds).lease()
        await provider.embed(EmbeddingRequest(embeds, ("a",)))
        assert 0 < resident_of(provider, embeds).snapshot().sizes["cpu"] <= bound
        lease.release()
        lease = await resident_of(provider, ranks).lease()
        assert not provider.embedders
        await provider.rerank(RerankRequest(ranks, "a", ("b", "c")))
        assert 0 < resident_of(provider, ranks).snapshot().sizes["cpu"] <= bound
        lease.release()


async def test_a_load_that_is_cancelled_leaves_no_engine_running(folders: tuple[str, str]) -> None:
    provider = provider_of(residency(10**9), ProviderModel(folders[0]))
    await provider.start()
    resident = resident_of(provider, folders[0])
    asked = asyncio.create_task(resident.lease())
    await asyncio.sleep(0)
    assert resident.state is Whereabouts.loading
    await provider.stop()
    assert resident.state is Whereabouts.out
    assert (await asyncio.gather(asked, return_exceptions=True))[0] is not None
    assert not provider.engine_stats()


# Another provider in its place --------------------------------------------------------------------


async def test_another_time_to_stay_loads_nothing_anew(folders: tuple[str, str]) -> None:
    a, b = folders
    shared = residency(10**9)
    provider = provider_of(shared, ProviderModel(a), ProviderModel(b))
    await provider.start()
    lease = await resident_of(provider, a).lease()
    engine = provider.engines[a]
    kept = ProviderModel(a, None, ModelStay("idle 10m"))
    assert not provider.serves(provider.config, [kept])
    other = provider_of(shared, kept)
    other.adopt(provider)
    await other.start()
    assert other.engines[a] is engine
    assert resident_of(other, a) is resident_of(provider, a)
    assert resident_of(other, a).snapshot().keep == "idle 10m"
    lease.release()
    await provider.stop()
    assert [each.model for each in shared.snapshots()] == [a]
    await say(other, a)
    await other.stop()
    assert shared.ledger.used == {"cpu": 0}


async def test_memory_that_is_shared_from_now_on_has_what_was_there(
    folders: tuple[str, str],
) -> None:
    a, b = folders
    provider = provider_of(None, ProviderModel(a))
    await provider.start()
    engine = provider.engines[a]
    shared = residency(10**9)
    other = provider_of(shared, ProviderModel(a), ProviderModel(b))
    other.adopt(provider)
    await other.start()
    # It is there with a cache of the length that it has where memory is not shared.
    shared.settle(shared.ledger.used, ResidencySettings(stay_seconds=0))
    await provider.stop()
    assert other.engines[a] is engine
    assert resident_of(other, a).state is Whereabouts.ready
    lease = await resident_of(other, b).lease()
    assert list(other.engines) == [b]
    lease.release()
    await other.stop()


async def test_memory_that_is_shared_no_more_has_all_of_them(folders: tuple[str, str]) -> None:
    a, b = folders
    provider = provider_of(residency(10**9), ProviderModel(a), ProviderModel(b))
    await provider.start()
    (await resident_of(provider, a).lease()).release()
    engine = provider.engines[a]
    other = provider_of(None, ProviderModel(a), ProviderModel(b))
    other.adopt(provider)
    await other.start()
    await provider.stop()
    assert set(other.engines) == {a, b}
    assert other.engines[a] is engine
    assert other.resident(a) is None
    await say(other, b)
    await other.stop()


async def test_what_is_answered_where_memory_is_not_shared_goes_on_where_it_is(
    folders: tuple[str, str],
) -> None:
    """A stream that has begun before the reload has no lease."""
    a, b = folders
    provider = provider_of(None, ProviderModel(a))
    await provider.start()
    shared = residency(10**9)
    other = provider_of(shared, ProviderModel(a), ProviderModel(b))
    other.adopt(provider)
    await other.start()
    shared.settle(shared.ledger.used, ResidencySettings(stay_seconds=0))
    waits = asyncio.create_task(resident_of(other, b).lease())
    await asyncio.sleep(0.1)
    assert (list(other.engines), waits.done()) == ([a], False)
    await say(provider, a)
    await provider.stop()
    (await waits).release()
    assert list(other.engines) == [b]
    await other.stop()


async def test_memory_that_is_shared_no_more_has_room_for_those_that_had_none(
    folders: tuple[str, str],
) -> None:
    a, b = folders
    alone = provider_of(None, ProviderModel(a))
    await alone.start()
    bound = room_for(alone, a)
    await alone.stop()
    shared = residency(bound, stay_seconds=0)
    provider = provider_of(shared, ProviderModel(a), ProviderModel(b))
    await provider.start()
    await resident_of(provider, a).load()
    engine = provider.engines[a]
    other = provider_of(None, ProviderModel(a), ProviderModel(b))
    other.adopt(provider)
    await other.start()
    assert set(other.engines) == {a, b}
    assert other.engines[a] is engine
    await provider.stop()
    assert shared.snapshots() == []
    await say(other, a)
    await other.stop()


@pytest.mark.parametrize("shares", [True, False])
async def test_a_reload_that_fails_leaves_models_as_they_were(
    folders: tuple[str, str], shares: bool
) -> None:
    a, b = folders
    alone = provider_of(None, ProviderModel(a))
    await alone.start()
    bound = room_for(alone, a)
    await alone.stop()
    shared = residency(bound, stay_seconds=0)
    provider = provider_of(shared, ProviderModel(a), ProviderModel(b))
    await provider.start()
    await resident_of(provider, a).load()
    always = ProviderModel(a, None, ModelStay("always"))
    other = provider_of(shared if shares else None, always)
    other.adopt(provider)
    await other.start()
    await other.stop()  # another provider of the template could not start
    assert [each.keep for each in shared.snapshots()] == ["on_demand", "on_demand"]
    await resident_of(provider, b).load()
    assert list(provider.engines) == [b]
    await provider.stop()


# Waiting in main memory ---------------------------------------------------------------------------


class OnGPU(TorchProvider):
    """As if the models' memory were a GPU's: all else is as it is there but where tensors are."""

    def footprint(self, name: str) -> Footprint:
        found = super().footprint(name)
        return found._replace(
            needs={"cuda:0": found.needs["cpu"] + CUDA_BYTES}, parks=found.weights
        )


def parking_provider(residency: Residency, *names: str) -> OnGPU:
    # bfloat16, which PyTorch's own products compute, as on a GPU.
    config = {"device": "cpu", "dtype": "bfloat16", "kernels": "sdpa", "max_sequences": 4}
    models = [ProviderModel(name, None, ModelStay(park=True)) for name in names]
    provider = OnGPU("local", TorchConfig.model_validate(config), models)
    provider.share_memory(residency)
    return provider


async def said(provider: TorchProvider, name: str) -> tuple[str, int]:
    """A greedy reply, and how much of its prompt was cached."""
    lease = await resident_of(provider, name).lease()
    asked = ChatCompletionRequest(
        name, (UserMessage("Hi there"),), SamplingParams(max_tokens=30, ignore_eos=True)
    )
    events = [event async for event in provider.chat_completion(asked)]
    lease.release()
    text = "".join(each.text for each in events if isinstance(each, TextDelta))
    assert isinstance(events[-1], StreamComplete)
    return text, events[-1].usage.cached_tokens or 0


def bits_of(weights: object) -> list[bytes]:
    empty = torch.empty(0, dtype=torch.uint8)
    return [empty.set_(each).clone().numpy().tobytes() for each in parking.storages_of(weights)]


@pytest.fixture
def gpu_bound(folders: tuple[str, str]) -> int:
    unbound = parking_provider(residency(0), *folders)
    return max(unbound.footprint(each).needs["cuda:0"] for each in folders)


async def test_weights_wait_in_main_memory_and_come_back_the_same(
    folders: tuple[str, str], gpu_bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = folders
    shared = Residency({"cuda:0": gpu_bound, "cpu": 10**9}, ResidencySettings(stay_seconds=0))
    async with started(parking_provider(shared, a, b)) as provider:
        first = await said(provider, a)
        weights = provider.engines[a].loaded.weights
        before = bits_of(weights)
        other = await said(provider, b)
        resident = resident_of(provider, a)
        assert resident.state is Whereabouts.parked
        # The ledger has what main memory has, which is all that there is of it.
        [(place, size)] = resident.snapshot().sizes.items()
        assert place == "cpu"
        assert size >= sum(map(len, before))
        assert not parking.storages_of(weights), "some of the weights are still on the device"
        with monkeypatch.context() as patch:
            patch.setattr(loader, "read_model", None)  # nothing is read of files
            assert await said(provider, a) == first
        assert bits_of(provider.engines[a].loaded.weights) == before
        assert provider.engines[a].loaded.weights is weights
        assert await said(provider, b) == other
        assert shared.ledger.used["cuda:0"] <= gpu_bound
        resident.dismiss()
        assert resident.task is not None
        await resident.task
        assert not shared.ledger.taken_by(resident)
        assert (await said(provider, a))[0] == first[0]
    assert shared.ledger.used == {"cuda:0": 0, "cpu": 0}


async def test_where_main_memory_is_short_weights_are_read_anew(
    folders: tuple[str, str], gpu_bound: int
) -> None:
    a, b = folders
    shared = Residency({"cuda:0": gpu_bound, "cpu": 1000}, ResidencySettings(stay_seconds=0))
    async with started(parking_provider(shared, a, b)) as provider:
        first = await said(provider, a)
        await said(provider, b)
        assert resident_of(provider, a).state is Whereabouts.out
        assert not shared.ledger.used["cpu"]
        assert await said(provider, a) == first


async def test_weights_that_fail_to_wait_are_read_anew(
    folders: tuple[str, str], gpu_bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = folders

    def refuse(size: int, *, locked: bool) -> None:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(parking, "_main_memory", refuse)
    shared = Residency({"cuda:0": gpu_bound, "cpu": 10**9}, ResidencySettings(stay_seconds=0))
    async with started(parking_provider(shared, a, b)) as provider:
        first = await said(provider, a)
        await said(provider, b)
        assert resident_of(provider, a).state is Whereabouts.out
        assert shared.ledger.used["cpu"] == 0
        assert await said(provider, a) == first


async def test_what_is_in_main_memory_already_is_not_parked_there(
    folders: tuple[str, str],
) -> None:
    provider = provider_of(residency(10**9), ProviderModel(folders[0], None, ModelStay(park=True)))
    with pytest.raises(ProviderStartError, match="it is in main memory already"):
        await provider.start()
    await provider.stop()


async def test_main_memory_that_nobody_gave_is_not_parked_in(
    folders: tuple[str, str], gpu_bound: int
) -> None:
    provider = parking_provider(Residency({"cuda:0": gpu_bound}), folders[0])
    with pytest.raises(ProviderStartError, match="add 'cpu: SIZE'"):
        await provider.start()
    await provider.stop()
