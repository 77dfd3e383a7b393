"""A GPU that is lost to the process: all that there is on it ends, and nothing asks it any more.

There is none here, so that a device of a model that runs on the CPU is called one, and what is
asked of CUDA itself is stood in for: to be made current, and to answer. What fails is the model,
with the errors that PyTorch and Triton have for it. `tests/integration/test_cuda_faults.py` loses a
real one.
"""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.errors import APIError
from llama_compat.types import EmbeddingRequest
from providers.base import ProviderModel, ProviderStartError
from providers.local.engine import Embedder
from providers.local.torch_engine import devices, lost_devices
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.provider import TorchProvider
from providers.local.torch_engine.scheduling.sampler import NO_TOKEN
from tests.tiny_models import make_embedder, make_model
from tests.unit.providers.local.engines import generate, running, until

PROMPT = (5, 6, 7, 8)
ENDLESS: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True}

FAULTS = [
    torch.AcceleratorError("CUDA error: device-side assert triggered"),
    RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


class GPUs:
    """What is asked of CUDA: whether a device answers."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.asked: list[str] = []

    def answers(self, device: Any) -> bool:
        place = devices.place_of(device)
        self.asked.append(place)
        return place not in self.broken


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> GPUs:
    stand_in = GPUs()
    monkeypatch.setattr(devices, "_answers", stand_in.answers)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(lost_devices, "_lost", {})
    return stand_in


def move(engine: TorchEngine, device: str) -> None:
    """Have the device of a model called otherwise."""
    engine.loaded = replace(engine.loaded, device=torch.device(device))


def failing(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch, after: int, fail: Callable[[], Any]
) -> list[int]:
    """Have the model fail after so many steps; how large each was, those that failed too."""
    forward, steps = engine._runner.forward, []

    def fails(chunks: Any, *more: Any) -> Any:
        steps.append(len(chunks))
        if len(steps) > after:
            fail()
        return forward(chunks, *more)

    monkeypatch.setattr(engine._runner, "forward", fails)
    return steps


@pytest.mark.parametrize("error", FAULTS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("overlap", [False, True])
async def test_all_that_there_is_ends_and_nobody_is_let_in(
    folder: Path, gpus: GPUs, monkeypatch: pytest.MonkeyPatch, error: Exception, overlap: bool
) -> None:
    async with running(folder, max_sequences=2) as engine:
        if overlap:
            engine._fast = engine._sampler._fast = Likeliest()
        move(engine, "cuda:0")

        def fail() -> None:
            gpus.broken.add("cuda:0")
            raise error

        steps = failing(engine, monkeypatch, 5, fail)
        done = await asyncio.gather(
            *(generate(engine, PROMPT, **ENDLESS) for _ in range(5)), return_exceptions=True
        )
        assert {(each.status, each.code) for each in done if isinstance(each, APIError)} == {
            (503, "device_lost")
        }
        assert (engine.stats.failed, engine.stats.running, engine.stats.waiting) == (5, 0, 0)
        assert engine.stats.used_blocks == 0
        assert (len(steps), gpus.asked) == (6, ["cuda:0"])

        with pytest.raises(APIError, match="until this server's process is started again"):
            await generate(engine, PROMPT)
        # Neither the model nor CUDA was asked for that.
        assert (len(steps), gpus.asked) == (6, ["cuda:0"])
        assert engine._thread.is_alive()
    assert not engine._thread.is_alive()
    assert lost_devices.lost() == ("cuda:0",)


class Likeliest:
    """A sampler for greedy requests that needs no GPU, so that steps overlap."""

    def sample(self, logits: Any, sequences: Any) -> Any:
        largest, likeliest = logits.max(-1)
        return torch.where(largest.isfinite(), likeliest, NO_TOKEN)


async def test_it_is_found_out_when_tokens_are_read(
    folder: Path, gpus: GPUs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel's fault is told by whatever is asked of the device next."""

    class Copied:
        def synchronize(self) -> None:
            gpus.broken.add("cuda:0")
            raise FAULTS[0]

    async with running(folder) as engine:
        engine._fast = engine._sampler._fast = Likeliest()
        move(engine, "cuda:0")
        launch, launched = engine._launch, []

        def launches(*arguments: Any) -> Any:
            launched.append(launch(*arguments))
            copied = Copied() if len(launched) == 4 else None
            return launched[-1]._replace(copied=copied)

        monkeypatch.setattr(engine, "_launch", launches)
        with pytest.raises(APIError) as caught:
            await generate(engine, PROMPT, **ENDLESS)
        assert caught.value.code == "device_lost"
        # The step after was under way, and is not read.
        assert len(launched) == 5
        assert (engine.stats.running, engine.stats.used_blocks) == (0, 0)


async def test_what_only_says_that_it_is_lost_is_an_error_like_any_other(
    folder: Path, gpus: GPUs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(folder) as engine:
        move(engine, "cuda:0")

        def fail() -> None:
            raise torch.AcceleratorError("CUDA error: invalid configuration argument")

        with monkeypatch.context() as patch:
            failing(engine, patch, 0, fail)
            with pytest.raises(APIError) as caught:
                await generate(engine, PROMPT)
        assert caught.value.status == 500
        assert (await generate(engine, PROMPT)).token_ids
    assert lost_devices.lost() == ()


async def test_another_model_there_ends_too_and_one_elsewhere_goes_on(
    folder: Path, gpus: GPUs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(folder) as first, running(folder) as second, running(folder) as other:
        move(first, "cuda:1")
        move(second, "cuda:1")
        move(other, "cuda:0")

        def fail() -> None:
            gpus.broken.add("cuda:1")
            raise FAULTS[0]

        beside = asyncio.ensure_future(generate(second, PROMPT, **ENDLESS))
        going_on = asyncio.ensure_future(generate(other, PROMPT, **ENDLESS))
        await until(lambda: bool(second.stats.generated_tokens and other.stats.generated_tokens))
        failing(first, monkeypatch, 0, fail)
        with pytest.raises(APIError, match="'cuda:1' has failed"):
            await generate(first, PROMPT)
        with pytest.raises(APIError, match="'cuda:1' has failed"):
            await beside
        with pytest.raises(APIError, match="'cuda:1' has failed"):
            await generate(second, PROMPT)
        assert len((await going_on).token_ids) == 400
        assert (await generate(other, PROMPT)).token_ids


async def test_no_model_is_loaded_there(
    folder: Path, gpus: GPUs, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_devices.lose("cuda:0", FAULTS[0])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config = TorchConfig(device="cuda", dtype="float32")
    provider = TorchProvider("local", config, [ProviderModel(str(folder))])
    with pytest.raises(ProviderStartError, match=r"can't be loaded: 'cuda:0' has failed"):
        await provider.start()
    await provider.stop()
    assert provider.lost_devices() == ("cuda:0",)
    assert gpus.asked == []


async def test_texts_are_refused_as_well(tmp_path: Path, gpus: GPUs) -> None:
    name = str(make_embedder(tmp_path / "embedder"))
    provider = TorchProvider("local", TorchConfig(device="cpu"), [ProviderModel(name)])
    await provider.start()
    embedder: Any = provider.embedders[name]
    assert isinstance(embedder, Embedder)

    class Broken:
        device = torch.device("cuda:0")

        def __call__(self, **given: Any) -> Any:
            gpus.broken.add("cuda:0")
            raise FAULTS[0]

    embedder.loaded = replace(embedder.loaded, model=Broken())
    with pytest.MonkeyPatch.context() as patch:
        # What goes to the device stays here.
        patch.setattr(torch, "tensor", lambda data, device=None, made=torch.tensor: made(data))
        patch.setattr(torch, "arange", lambda end, device=None, made=torch.arange: made(end))
        for _ in range(2):
            with pytest.raises(APIError, match="'cuda:0' has failed"):
                await provider.embed(EmbeddingRequest(name, ("a text",)))
    assert gpus.asked == ["cuda:0"]
    await provider.stop()
