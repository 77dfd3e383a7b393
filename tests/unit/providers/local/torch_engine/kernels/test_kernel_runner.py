"""Whole models in Triton kernels: what `generate` says, and how they are tried before."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from llama_compat.types import SamplingParams, TopPSamplingStrategy
from providers.base import ProviderStartError
from providers.local.engine import Generation
from providers.local.media.pictures import PictureFile
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.kernels import heads, norms, step
from providers.local.torch_engine.kernels import kernel_runner as kernel_runner
from providers.local.torch_engine.kernels.experts import products, router
from providers.local.torch_engine.kernels.kernel_runner import KernelRunner, graph_sizes
from providers.local.torch_engine.loading import paged
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.media.family import Encoding
from providers.local.torch_engine.media.sense import TorchMedium
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.experts import Experts
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk
from tests.unit.providers.local.engines import (
    ARCHITECTURES,
    FURTHER,
    generate,
    make_architecture,
    opened,
    reference,
    running,
)

PROMPTS = [tuple(range(5, 5 + length)) for length in (3, 17, 40)]


def options(device: Any, **settings: Any) -> dict[str, Any]:
    return {"device": device.type, "dtype": "float32", "kernels": "triton", **settings}


@pytest.mark.usefixtures("quick_check")
async def test_with_a_cache_in_fp8_it_says_what_it_says_by_pytorch(
    device: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The interpreter knows it too.
    monkeypatch.setattr(paged, "lacks_fp8", lambda _: None)
    said = []
    for kernels in ("triton", "sdpa"):
        settings = options(device, kernels=kernels, kv_cache_dtype="fp8", max_sequences=3)
        async with running(folder, **settings) as engine:
            assert engine.loaded.kernels == kernels
            said.append([await generate(engine, each, 4, logprobs=400) for each in PROMPTS])
    for ours, theirs in zip(*said, strict=True):
        assert ours.token_ids == theirs.token_ids
        for found, expected in zip(ours.scores, theirs.scores, strict=True):
            own, plain = dict(found.top), dict(expected.top)
            assert max(abs(own[token] - plain[token]) for token in range(300)) < 1e-3


@pytest.mark.usefixtures("quick_check", "tried_once")
async def test_the_tokens_of_generate(device: Any, folder: Path) -> None:
    expected = reference(folder, PROMPTS, 5)
    settings = options(device, max_step_tokens=24, max_sequences=3)
    async with running(folder, **settings) as engine:
        assert engine.loaded.kernels == "triton"
        together = await asyncio.gather(*(generate(engine, prompt, 5) for prompt in PROMPTS))
        again = await generate(engine, PROMPTS[2], 5)
        assert again.cached_tokens == 32
        strategy = TopPSamplingStrategy(1.0, 0.001)
        drawn = await generate(engine, PROMPTS[1], 5, strategy=strategy, seed=3)
        scored = await generate(engine, PROMPTS[1], 2, logprobs=1, min_tokens=1)
    assert [result.token_ids for result in together] == expected
    assert again.token_ids == expected[2]
    assert drawn.token_ids == expected[1]
    assert [score is not None for score in scored.scores] == [True, True]


@pytest.mark.usefixtures("quick_check")
@pytest.mark.parametrize(("name", "layers"), [("qwen3_moe", 2), ("mixtral", 1)])
async def test_the_tokens_of_generate_by_experts(
    device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, layers: int
) -> None:
    """One has a layer without experts too; of the other a second one would show nothing new."""
    # On a CPU, weights of float32 are laid out for its own products.
    monkeypatch.setattr(linear, "has_onednn", lambda: False)
    mixed: list[int] = []
    mix = step.mix_experts

    def watched(x: Any, *arguments: Any) -> Any:
        mixed.append(len(x))
        return mix(x, *arguments)

    monkeypatch.setattr(step, "mix_experts", watched)
    make_architecture(tmp_path, name, num_hidden_layers=layers)
    prompts = PROMPTS[:2]
    expected = reference(tmp_path, prompts, 3)
    async with running(tmp_path, **options(device, max_sequences=2)) as engine:
        runner = engine.loaded.runner
        assert isinstance(runner, KernelRunner)
        assert runner.are_alike
        mixed.clear()
        found = await asyncio.gather(*(generate(engine, prompt, 3) for prompt in prompts))
    assert [result.token_ids for result in found] == expected
    assert max(mixed) >= 17
    # Those of graphs are launched by themselves.
    assert min(mixed) <= 2 or runner.graphs


@pytest.mark.usefixtures("quick_check")
def test_the_host_waits_for_experts_that_no_kernel_computes(
    device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of packed weights here, as of those with biases or with shares of what they take."""
    make_architecture(tmp_path, "mixtral")
    loaded = load(str(tmp_path), tmp_path, TorchConfig(**options(device)))
    decoder = loaded.weights
    assert isinstance(decoder, Decoder)
    assert isinstance(loaded.runner, KernelRunner)
    is_stacked = device.type == "cuda"
    assert loaded.runner.are_alike == is_stacked
    own = decoder.layers[0].mlp
    assert isinstance(own, Experts)
    assert step.mixes(own) == is_stacked
    assert not step.mixes(replace(own, weighs_inputs=True))


def make_known(folder: Path, name: str) -> None:
    """As `make_architecture`: a machine with a GPU may have another transformers."""
    if name.split()[0] not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no '{name}'")
    make_architecture(folder, name)


@pytest.mark.cuda
@pytest.mark.parametrize("name", [*ARCHITECTURES, *FURTHER])
async def test_architectures(device: Any, tmp_path: Path, name: str) -> None:
    if device.type != "cuda":
        pytest.skip("takes too long in the interpreter")
    make_known(tmp_path, name)
    expected = reference(tmp_path, PROMPTS, 40)
    torch.backends.cuda.matmul.allow_tf32 = False
    for settings in ({}, {"cuda_graphs": False}):
        async with running(tmp_path, **options(device, **settings)) as engine:
            found = await asyncio.gather(*(generate(engine, prompt, 40) for prompt in PROMPTS))
        assert [result.token_ids for result in found] == expected


@pytest.mark.cuda
@pytest.mark.parametrize("name", [*ARCHITECTURES, *FURTHER])
def test_logits_in_bfloat16_beside_transformers(device: Any, tmp_path: Path, name: str) -> None:
    if device.type != "cuda":
        pytest.skip("the interpreter multiplies bfloat16 matrices as if they were integers")
    make_known(tmp_path, name)
    prompt = tuple(range(5, 95))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.inference_mode():
        exact = model(torch.tensor([prompt])).logits[0, -1]
        model = model.to(device, torch.bfloat16)
        theirs = model(torch.tensor([prompt], device=device)).logits[0, -1].float().cpu()
    loaded = load(str(tmp_path), tmp_path, TorchConfig(device="cuda", kernels="triton"))
    chunk = chunk_of(prompt, 0, len(prompt), range(6))
    if loaded.long_rope is not None and len(prompt) > loaded.long_rope.after:
        chunk.sequence.turn_from(loaded.long_rope.row)
    ours = loaded.runner.forward([chunk])[0].cpu()
    # As near to the truth as transformers is in these numbers, or nearly so.
    assert (ours - exact).norm() <= 1.5 * (theirs - exact).norm() + 0.01 * exact.norm()


def chunk_of(prompt: tuple[int, ...], computed: int, count: int, blocks: range) -> Chunk:
    sequence = TorchSequence(Generation(prompt, SamplingParams(), 9), lambda _: None)
    sequence.computed, sequence.blocks = computed, list(blocks)
    return Chunk(sequence, count)


@pytest.mark.usefixtures("quick_check", "tried_once")
def test_a_batch_that_is_filled_up_gives_the_same(device: Any, folder: Path) -> None:
    """What a graph computes, computed step by step."""
    loaded = load(str(folder), folder, TorchConfig(**options(device, cuda_graphs=False)))
    runner = loaded.runner
    assert isinstance(runner, KernelRunner)
    runner.forward(
        [chunk_of(PROMPTS[1], 0, 16, range(2)), chunk_of(PROMPTS[2], 0, 39, range(2, 5))]
    )
    replies = [
        chunk_of(PROMPTS[1], 16, 1, range(2)),
        chunk_of(PROMPTS[2], 39, 1, range(2, 5)),
    ]
    expected = runner.forward(replies).clone()
    with torch.inference_mode():
        filled = runner._compute(runner._inputs.load(replies, padded=4))
    assert len(filled) == 4
    assert torch.allclose(filled[:2], expected, atol=1e-4)


@pytest.mark.usefixtures("quick_check", "tried_once")
@pytest.mark.parametrize("grid", [None, (2, 3)])
def test_pictures_beside_pytorchs_own_operations(
    device: Any, folder: Path, grid: tuple[int, int] | None
) -> None:
    """Their tokens are computed in kernels where they turn by one position, in pieces, beside a
    reply; what follows them is, too."""
    features = torch.randn(6, 64, generator=torch.Generator().manual_seed(1))
    picture = TorchMedium(
        PictureFile(b"", "messages", 1, 1), (range(8, 14),), grid, b"key", Encoding(features)
    )
    found = []
    for kernels in ("triton", "sdpa"):
        settings = options(device, cuda_graphs=False) | {"kernels": kernels}
        runner = load(str(folder), folder, TorchConfig(**settings)).runner
        other = chunk_of(PROMPTS[1], 0, 17, range(4, 6))
        generation = Generation(PROMPTS[1], SamplingParams(), 9)
        shown = TorchSequence(generation, lambda _: None, None, [picture])
        shown.blocks = [2, 0]
        other_logits = runner.forward([other])
        shown_logits = []
        for start, end in ((0, 10), (10, 16), (16, 17)):
            shown.computed = start
            shown_logits = [runner.forward([Chunk(shown, end - start)]).cpu()]
        found.append(torch.cat([other_logits.cpu(), *shown_logits]))
        if isinstance(runner, KernelRunner):
            assert (runner._plain is None) == (grid is None)
    assert torch.allclose(*found, atol=1e-3)
    assert not torch.allclose(found[0][0], found[0][1], atol=1e-2)


@pytest.mark.cuda
@pytest.mark.parametrize("name", [None, "qwen3_moe", "mixtral", "glm4_moe"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_graphs_beside_single_launches(
    device: Any, folder: Path, tmp_path: Path, dtype: str, name: str | None
) -> None:
    if device.type != "cuda":
        pytest.skip("graphs need a CUDA GPU")
    if name is not None:
        folder = make_architecture(tmp_path, name)
    settings = options(device, dtype=dtype, max_sequences=9)
    runner = load(str(folder), folder, TorchConfig(**settings)).runner
    assert isinstance(runner, KernelRunner)
    assert runner.graphs == len(graph_sizes(9))
    prompts = [tuple(range(5, 8 + 3 * place)) for place in range(9)]
    blocks = [range(3 * place, 3 * place + 3) for place in range(9)]
    runner.forward(
        [
            chunk_of(prompt, 0, len(prompt) - 1, own)
            for prompt, own in zip(prompts, blocks, strict=True)
        ]
    )
    for count in (9, 1, 3, 8):
        replies = [
            chunk_of(prompt, len(prompt) - 1, 1, own)
            for prompt, own in zip(prompts[:count], blocks, strict=False)
        ]
        found = runner.forward(replies).clone()
        with torch.inference_mode():
            expected = runner._compute(runner._inputs.load(replies))
        assert found.shape == expected.shape
        assert (found - expected).norm() <= 0.02 * expected.norm()


def test_sizes_of_graphs() -> None:
    assert graph_sizes(1) == [1]
    assert graph_sizes(3) == [1, 2, 3]
    assert graph_sizes(8) == [1, 2, 4, 8]
    assert graph_sizes(9) == [1, 2, 4, 8, 9]
    assert graph_sizes(40) == [1, 2, 4, 8, 16, 32, 40]
    assert graph_sizes(48) == [1, 2, 4, 8, 16, 32, 48]


# Tried before ------------------------------------------------------------------------------------


class Idle:
    """A kernel that does nothing."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments, **settings: None


@pytest.mark.usefixtures("quick_check")
@pytest.mark.parametrize(
    ("module", "name", "fault"),
    [
        (norms, "norm_kernel", "'norm' is off"),
        (heads, "heads_kernel", "'turned queries' is off"),
    ],
)
def test_kernels_that_do_nothing_are_found_out(
    device: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    fault: str,
) -> None:
    monkeypatch.setattr(module, name, Idle())
    with pytest.raises(ProviderStartError, match=fault):
        opened(folder, **options(device))


@pytest.mark.usefixtures("quick_check")
@pytest.mark.parametrize(
    ("model", "module", "name", "fault"),
    [
        ("mixtral", router, "route_kernel", "'shares of experts' is off"),
        # Its first layer has none.
        ("glm4_moe", products, "product_kernel", "'experts' is off"),
    ],
)
def test_so_are_those_of_experts(
    device: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    module: Any,
    name: str,
    fault: str,
) -> None:
    monkeypatch.setattr(linear, "has_onednn", lambda: False)
    make_architecture(tmp_path, model)
    monkeypatch.setattr(module, name, Idle())
    with pytest.raises(ProviderStartError, match=fault):
        opened(tmp_path, **options(device))


def test_a_machine_that_can_not_run_them(
    device: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: Any, **settings: Any) -> Any:
        raise RuntimeError("no driver")

    monkeypatch.setattr(kernel_runner, "KernelStep", refuse)
    with pytest.raises(ProviderStartError, match=r"no driver.*kernels: sdpa"):
        opened(folder, **options(device))
    with caplog.at_level(logging.WARNING):
        engine = opened(folder, **options(device, kernels="auto"))
    engine.stop()
    # On a CPU they are not what `auto` would take.
    assert engine.loaded.kernels in (("sdpa",) if device.type == "cuda" else ("llvm", "sdpa"))
    assert ("no driver" in caplog.text) == (device.type == "cuda")
