"""The one thread that computes on the CPU: what runs in it, and that nothing else does."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from providers.base import ProviderModel
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import on_cpu_thread, on_device
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, running


def the_thread() -> threading.Thread:
    return on_cpu_thread(threading.current_thread)


async def test_every_caller_gets_the_same_thread() -> None:
    found = await asyncio.gather(*(asyncio.to_thread(the_thread) for _ in range(5)))
    assert len({*found, the_thread()}) == 1
    assert the_thread() is not threading.current_thread()


def test_calls_come_one_after_the_other_with_what_they_were_given() -> None:
    assert on_cpu_thread(divmod, 17, 5) == (3, 2)
    assert on_cpu_thread(int, "z", base=36) == 35
    with pytest.raises(ZeroDivisionError):
        on_cpu_thread(divmod, 1, 0)


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The GPUs that are the current ones, the innermost last; there need not be any."""
    devices: list[torch.device] = []

    @contextmanager
    def enter(device: torch.device) -> Iterator[None]:
        devices.append(device)
        yield
        devices.pop()

    monkeypatch.setattr(torch.cuda, "device", enter)
    return devices


def test_what_a_gpu_computes_is_called_here(entered: list[torch.device]) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda:0")
    assert on_device(cpu, threading.current_thread) is the_thread()
    assert on_device(cuda, threading.current_thread) is threading.current_thread()


def test_a_gpu_is_the_current_one_of_what_it_computes(entered: list[torch.device]) -> None:
    second = torch.device("cuda:1")
    assert on_device(second, entered.copy) == [second]
    assert on_device(torch.device("cpu"), entered.copy) == []
    assert entered == []


def test_a_gpu_is_the_current_one_of_what_is_loaded_on_it(
    entered: list[torch.device], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from providers.local.torch_engine.loading import loader

    second = torch.device("cuda:1")
    monkeypatch.setattr(loader, "choose_device", lambda device: second)
    monkeypatch.setattr(loader, "load_here", lambda *_: entered.copy())
    assert loader.load("a model", tmp_path, TorchConfig()) == [second]


async def test_models_are_loaded_warmed_and_run_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from providers.local.torch_engine.loading import loader

    threads: dict[str, set[threading.Thread]] = {"loaded": set(), "forward": set()}
    paged = loader.paged

    def watched(*args: Any, **settings: Any) -> Any:
        threads["loaded"].add(threading.current_thread())
        made = paged(*args, **settings)
        runner, forward = made.runner, made.runner.forward

        def watched_forward(*args: Any) -> Any:
            threads["forward"].add(threading.current_thread())
            return forward(*args)

        monkeypatch.setattr(runner, "forward", watched_forward)
        return made

    monkeypatch.setattr(loader, "paged", watched)
    make_model(tmp_path)
    async with running(tmp_path) as engine:
        await generate(engine, [5, 6, 7], 4)
    assert threads == {"loaded": {the_thread()}, "forward": {the_thread()}}


async def test_threads_of_a_template_are_those_of_its_operations(tmp_path: Path) -> None:
    before = on_cpu_thread(torch.get_num_threads)
    provider = TorchProvider(
        "local", TorchConfig(device="cpu", threads=1), [ProviderModel(str(make_model(tmp_path)))]
    )
    try:
        await provider.start()
        assert on_cpu_thread(torch.get_num_threads) == 1
        await provider.stop()
    finally:
        on_cpu_thread(torch.set_num_threads, before)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
async def test_nothing_of_the_models_file_stays_mapped(tmp_path: Path) -> None:
    make_model(tmp_path)
    async with running(tmp_path) as engine:
        await generate(engine, [5, 6, 7], 2)
        mapped = await asyncio.to_thread(Path("/proc/self/maps").read_text)
    assert str(tmp_path) not in mapped
