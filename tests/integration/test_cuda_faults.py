"""`local::torch` on a GPU on which things go wrong: each leaves a server that answers.

The model is a small random one, in float32, so that its replies are transformers' own, whatever
else is computed at the time. What takes the GPU's memory is PyTorch's own bound on it, and tensors
that fill what is below that. The GPU is lost in a process of its own (the last test, which needs
the packages of a server; the others need torch, transformers and triton alone).
"""

# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
if not torch.cuda.is_available():
    pytest.skip(
        f"needs a CUDA GPU; torch {torch.__version__} sees none on this machine",
        allow_module_level=True,
    )

import transformers

from llama_compat.errors import APIError
from llama_compat.types import SamplingParams
from providers.base import ProviderModel, ProviderStartError
from providers.local.engine import Generation, Sampled
from providers.local.torch_engine import devices
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.kernels.kernel_runner import KernelRunner
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.loading.paged import _record
from providers.local.torch_engine.provider import TorchProvider
from tests.integration import wire
from tests.integration.server_process import ServerProcess, write_template
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, reference, running, until

pytestmark = pytest.mark.cuda

CONTEXT = 4096
VOCABULARY = 300
BLOCK_BYTES = 16 * 2 * 2 * 2 * 16 * 4
"""Of the model's KV cache: tokens, layers, keys and values, heads, dimensions, bytes."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models of one shape: kernels are compiled once for both."""
    made = tmp_path_factory.mktemp("models")
    settings: dict[str, Any] = {"max_position_embeddings": CONTEXT}
    return (
        make_model(made / "one", **settings),
        make_model(made / "two", seed=1, **settings),
    )


def random_prompt(length: int, seed: int) -> tuple[int, ...]:
    chosen = random.Random(seed)
    return tuple(chosen.randrange(3, VOCABULARY) for _ in range(length))


PROMPTS = [random_prompt(length, length) for length in (1, 5, 15, 16, 17, 31, 33, 48, 64, 90)]
LONG = random_prompt(3000, 0)


def options(**settings: Any) -> dict[str, Any]:
    return {"device": "cuda", "dtype": "float32", "kernels": "triton", **settings}


@contextmanager
def memory_left(spare: int) -> Iterator[None]:
    """Of the GPU's memory nothing is left to this process but `spare` bytes more: what PyTorch has
    is full, in pieces of each of the sizes that it keeps apart."""
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    taken: list[torch.Tensor] = []
    try:
        torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
        for size in (2**21, 2**20 + 1, 2**18, 2**15, 2**12, 2**9):
            with suppress(torch.OutOfMemoryError):
                while True:
                    taken.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + spare) / total)
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        taken.clear()
        torch.cuda.empty_cache()


def allocated() -> int:
    """Bytes of the GPU that tensors take; what cuBLAS keeps for each thread is made anew."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    return int(torch.cuda.memory_allocated())


MEGABYTE = 2**20


# Memory ------------------------------------------------------------------------------------------


async def test_a_prompt_that_is_too_large_for_what_is_left(folders: tuple[Path, Path]) -> None:
    [expected] = reference(folders[0], [LONG], 8)
    async with running(folders[0], **options(prefix_cache=False)) as engine:
        assert (await generate(engine, LONG, 8)).token_ids == expected
        tokens = engine.loaded.limits.tokens
        with memory_left(2 * MEGABYTE):
            result = await generate(engine, LONG, 8)
        assert result.token_ids == expected
        assert engine.loaded.limits.tokens < tokens
        assert engine.stats.failed == 0


async def test_where_nothing_is_left_requests_say_so(folders: tuple[Path, Path]) -> None:
    expected = reference(folders[0], PROMPTS, 16)
    async with running(folders[0], **options(prefix_cache=False)) as engine:
        before = await asyncio.gather(*(generate(engine, each, 16) for each in PROMPTS))
        with memory_left(0):
            refused = await asyncio.gather(
                *(generate(engine, LONG, 16) for _ in PROMPTS), return_exceptions=True
            )
        codes = {each.code for each in refused if isinstance(each, APIError)}
        assert (codes, len(refused)) == ({"out_of_memory"}, len(PROMPTS))
        assert (engine.stats.running, engine.stats.used_blocks) == (0, 0)
        after = await asyncio.gather(*(generate(engine, each, 16) for each in PROMPTS))
    assert [each.token_ids for each in before] == expected
    assert [each.token_ids for each in after] == expected


async def test_a_second_model_that_does_not_fit(folders: tuple[Path, Path]) -> None:
    [mine], [theirs] = (reference(folder, [PROMPTS[-1]], 16) for folder in folders)
    name = str(folders[1])
    async with running(folders[0], **options()) as engine:
        await generate(engine, PROMPTS[-1], 16)
        taken = allocated()
        await generate(engine, PROMPTS[-1], 16)  # what cuBLAS keeps is there again
        with memory_left(2 * MEGABYTE):
            provider = TorchProvider("local", TorchConfig(**options()), [ProviderModel(name)])
            with pytest.raises(ProviderStartError, match="does not fit into the memory"):
                await provider.start()
            assert (await generate(engine, PROMPTS[-1], 16)).token_ids == mine
        await provider.stop()
        assert allocated() <= taken + MEGABYTE
        async with running(folders[1], **options()) as second:
            assert (await generate(second, PROMPTS[-1], 16)).token_ids == theirs


def test_graphs_for_which_there_is_no_memory(
    folders: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    settings = TorchConfig(**options(cuda_graphs=False))
    runner = load("one", folders[0], settings).runner
    assert isinstance(runner, KernelRunner)
    size = max(runner._sizes)

    def eagerly() -> torch.Tensor:
        with torch.inference_mode():
            return runner._compute(runner._inputs.load((), padded=size)).clone()

    expected, device = eagerly(), torch.device("cuda")
    # So much that the first pass has what it needs, and what is recorded then has not.
    for spare in (2**each for each in range(21, 30)):
        with memory_left(spare):
            try:
                eagerly()
            except torch.OutOfMemoryError:
                continue
            _record("one", runner, device)
            break
    assert runner.graphs == 0
    assert "runs without CUDA graphs" in caplog.text
    assert torch.equal(eagerly(), expected)
    runner.record()
    assert runner.graphs == len(runner._sizes)
    runner._inputs.load((), padded=size)
    runner._graphs[size].graph.replay()
    assert torch.allclose(runner._graphs[size].logits, expected, atol=1e-4)


def test_graphs_that_threads_record_at_the_same_time(folders: tuple[Path, Path]) -> None:
    """As models that share memory are loaded beside each other, while one gives it back."""
    settings = TorchConfig(**options(cuda_graphs=False))
    runners: list[Any] = [load(folder.name, folder, settings).runner for folder in folders]
    with ThreadPoolExecutor() as threads:
        for _ in range(3):
            recordings = [threads.submit(runner.record) for runner in runners]
            while not all(each.done() for each in recordings):
                devices.empty_cache()
                time.sleep(0.001)
            for each in recordings:
                each.result()
    assert [runner.graphs for runner in runners] == [len(runner._sizes) for runner in runners]


# Clients that leave, and too many at once ---------------------------------------------------------


async def opened_stream(
    engine: TorchEngine, prompt: Sequence[int], tokens: int
) -> AsyncGenerator[Any, None]:
    """An endless reply of which so many tokens were read."""
    asked = Generation(tuple(prompt), SamplingParams(ignore_eos=True), CONTEXT - len(prompt))
    outputs = engine.generate(asked)
    read = 0
    while read < tokens:
        read += sum(isinstance(each, Sampled) for each in await anext(outputs))
    return outputs


async def test_streams_that_are_left_give_their_memory_back(folders: tuple[Path, Path]) -> None:
    expected = reference(folders[0], PROMPTS, 24)
    async with running(folders[0], **options(max_sequences=16)) as engine:
        for _ in range(3):
            streams = [await opened_stream(engine, each, 3) for each in PROMPTS[:6]]
            staying = [asyncio.ensure_future(generate(engine, each, 24)) for each in PROMPTS]
            for stream in streams:
                await asyncio.sleep(0.002)
                await stream.aclose()
            assert [each.token_ids for each in await asyncio.gather(*staying)] == expected
        await until(lambda: engine.stats.running == 0)
        stats = engine.stats
        assert (stats.cancelled, stats.failed, stats.used_blocks) == (18, 0, 0)


async def test_more_than_the_cache_holds(folders: tuple[Path, Path]) -> None:
    expected = reference(folders[0], PROMPTS, 24)
    async with running(folders[0], **options(kv_cache=14 * BLOCK_BYTES)) as engine:
        found = await asyncio.gather(*(generate(engine, each, 24) for each in PROMPTS))
        assert engine.stats.preempted > 0
        assert (engine.stats.failed, engine.stats.used_blocks) == (0, 0)
    assert [each.token_ids for each in found] == expected


# Two models on one GPU ----------------------------------------------------------------------------


async def test_two_models_at_the_same_time(folders: tuple[Path, Path]) -> None:
    """Each says what it says alone, while a third is loaded, records its graphs and goes again."""
    expected = [reference(folder, PROMPTS, 24) for folder in folders]
    one, two = folders
    async with running(one, **options()) as first, running(two, **options()) as second:
        coming_and_going = asyncio.ensure_future(come_and_go(two))
        rounds = 0
        while rounds < 3 or not coming_and_going.done():
            replies = [
                asyncio.gather(*(generate(engine, each, 24) for each in PROMPTS))
                for engine in (first, second)
            ]
            for reply, known in zip(replies, expected, strict=True):
                assert [each.token_ids for each in await reply] == known
            rounds += 1
        assert await coming_and_going == [expected[1][-1]] * 2
        assert first.stats.failed == second.stats.failed == 0


async def come_and_go(folder: Path) -> list[list[int]]:
    found = []
    for _ in range(2):
        async with running(folder, **options()) as engine:
            found.append((await generate(engine, PROMPTS[-1], 24)).token_ids)
    return found


async def test_one_goes_amid_its_streams_and_the_other_goes_on(
    folders: tuple[Path, Path],
) -> None:
    expected = reference(folders[0], PROMPTS, 24)
    async with running(folders[0], **options()) as staying:
        await generate(staying, PROMPTS[0], 24)
        taken = allocated()
        name = str(folders[1])
        provider = TorchProvider("local", TorchConfig(**options()), [ProviderModel(name)])
        await provider.start()
        engine: Any = provider.engines[name]
        streams = [await opened_stream(engine, each, 3) for each in PROMPTS]
        del engine
        replies = [asyncio.ensure_future(generate(staying, each, 24)) for each in PROMPTS]
        await provider.stop()
        for stream in streams:
            with pytest.raises(APIError, match="shutting down"):
                async for _ in stream:
                    pass
        assert [each.token_ids for each in await asyncio.gather(*replies)] == expected
        streams.clear()
        assert allocated() <= taken + MEGABYTE


# A GPU that is lost -------------------------------------------------------------------------------


FAULTY_TOKEN = "LLAMA_COMPAT_TESTS_FAULTY_TOKEN"
"""The variable that `tests.integration.faulty_gather` reads."""


@contextmanager
def server_with_a_faulty_token(
    folder: Path, models: tuple[Path, Path], token: int
) -> Iterator[ServerProcess]:
    settings = {"device": "cuda", "max_sequences": 4}
    on_cpu = {"device": "cpu", "kernels": "sdpa", "quantization": "none"}
    template = write_template(
        folder / "faults.yaml",
        providers=[
            {"id": "gpu", "type": "local::torch", "config": settings},
            {"id": "cpu", "type": "local::torch", "config": on_cpu},
            {"id": "echo", "type": "local::echo"},
        ],
        models=[
            {"id": "one", "provider": "gpu", "provider_model": str(models[0])},
            {"id": "two", "provider": "gpu", "provider_model": str(models[1])},
            {"id": "slow", "provider": "cpu", "provider_model": str(models[0])},
            {"id": "echo", "provider": "echo"},
            {
                "id": "either",
                "targets": [
                    {"provider": "gpu", "model": str(models[0])},
                    {"provider": "echo", "model": "echo", "priority": 1},
                ],
            },
        ],
    )
    server = ServerProcess(
        template, env={FAULTY_TOKEN: str(token)}, first="tests.integration.faulty_gather"
    )
    try:
        server.wait_until_ready()
        yield server
        code = server.stop()
        assert code == 0, f"exit code {code} after SIGTERM. The log:\n{server.log}"
    finally:
        server.kill()


def never_said(folder: Path) -> int:
    """A token that the model says by itself at no time: its logit is 0, and others' are not."""
    token = VOCABULARY - 7
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight[token] = 0
    model.save_pretrained(folder)
    return token


def ask(server: ServerProcess, model: str, prompt: Any, **more: Any) -> wire.Reply:
    body = {"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, **more}
    return wire.request("POST", f"{server.base_url}/completions", body)


def streamed(server: ServerProcess, model: str, began: Future[None]) -> str:
    """The code of the error with which an endless stream ends."""
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        stream = client.completions.create(
            model=model,
            prompt="Once",
            max_tokens=CONTEXT - 100,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        try:
            for _ in stream:
                if not began.done():
                    began.set_result(None)
        except openai.APIError as error:
            return str(error.code)
    return "none: it came to its end"


def test_a_server_whose_gpu_is_lost(tmp_path: Path) -> None:
    """All that is on it ends at once, and is refused from then on; all else answers as before."""
    models = [
        make_model(tmp_path / name, max_position_embeddings=CONTEXT, seed=seed)
        for seed, name in enumerate(("one", "two"))
    ]
    one, two = models
    token = never_said(one)
    assert never_said(two) == token
    with (
        server_with_a_faulty_token(tmp_path, (one, two), token) as server,
        ThreadPoolExecutor() as threads,
    ):
        for model in ("one", "two", "slow", "echo", "either"):
            assert ask(server, model, "Once").status == 200, server.log
        # Of both models, and of the one that fails as many as leave a place.
        asked = ("one", "one", "one", "two")
        began: list[Future[None]] = [Future() for _ in asked]
        streams = [
            threads.submit(streamed, server, model, each)
            for model, each in zip(asked, began, strict=True)
        ]
        for each in began:
            each.result(60)
        lost = ask(server, "one", [5, token, 6])
        assert (lost.status, lost.error()["code"]) == (503, "device_lost"), server.log
        assert {each.result(60) for each in streams} == {"device_lost"}

        for model in ("one", "two"):
            refused = ask(server, model, "Once")
            assert (refused.status, refused.error()["code"]) == (503, "device_lost")
        for model in ("slow", "echo", "either"):
            assert ask(server, model, "Once").status == 200
        told = wire.request("GET", f"{server.url}/health")
        assert told.status == 503
        assert told.json()["status"] == "device_lost"
        assert told.json()["lost_devices"] == ["cuda:0"]
        assert server.log.count("is lost to this process") == 1
