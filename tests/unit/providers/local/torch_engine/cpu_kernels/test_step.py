"""A step in kernels for CPUs: the same as in PyTorch's operations, and tried before it is used."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.types import SamplingParams
from providers.base import ProviderStartError
from providers.local.engine import Generation
from providers.local.torch_engine.cpu_thread import on_cpu_thread
from providers.local.torch_engine.loading import self_check
from providers.local.torch_engine.loading.weights import decoder_of
from providers.local.torch_engine.model import kv_cache, linear
from providers.local.torch_engine.model.attention import Scores, SequenceSpan, attend
from providers.local.torch_engine.model.decoder import Layer
from providers.local.torch_engine.model.torch_step import TorchStep
from providers.local.torch_engine.model_runner import PagedRunner
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import (
    ARCHITECTURES,
    FURTHER,
    make_architecture,
    opened,
)

if not linear.kernels_possible():
    pytest.skip("needs x86 with AVX2, Linux and llvmlite", allow_module_level=True)

from providers.local.torch_engine.cpu_kernels import step as cpu_step
from providers.local.torch_engine.cpu_kernels.step import CPUKernels, DecodingSpans, step_of

BLOCK_SIZE = 16


def decoder_in(folder: Path, **settings: Any) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **settings).eval()
    decoder = decoder_of(model, linear.plain)
    decoder.reach(512)
    return decoder


@pytest.mark.parametrize("name", [*ARCHITECTURES, *FURTHER])
def test_every_operation_of_every_architecture(tmp_path: Path, name: str) -> None:
    decoder = decoder_in(make_architecture(tmp_path, name))
    assert cpu_step.supports(decoder)
    assert self_check.find_fault(decoder, BLOCK_SIZE, step_of) is None


@pytest.mark.parametrize("make", [linear.int8, linear.int4])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_layer_with_packed_weights(tmp_path: Path, name: str, make: linear.Make) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(make_architecture(tmp_path, name))
    decoder = decoder_of(model.eval(), make)
    decoder.reach(512)
    kernels = CPUKernels(decoder, BLOCK_SIZE)
    assert len(kernels.weights) == len(decoder.layers)
    assert self_check.find_fault(decoder, BLOCK_SIZE, step_of) is None


@pytest.mark.parametrize(
    ("name", "make"),
    [("qwen3", linear.plain), ("mistral", linear.int8), ("gemma3_text", linear.int8)],
)
def test_a_packed_cache(tmp_path: Path, name: str, make: linear.Make) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(make_architecture(tmp_path, name))
    decoder = decoder_of(model.eval(), make)
    decoder.reach(512)
    # They are packed as PyTorch does it, to the bit, or their attention would differ by more.
    packing = partial(step_of, packed=True)
    assert self_check.find_fault(decoder, BLOCK_SIZE, packing, cached=torch.int8) is None
    if name == "qwen3":
        kernels = CPUKernels(decoder, BLOCK_SIZE, packed=True)
        cached = kv_cache.packed(torch.zeros(1, 2 * decoder.kv_heads, decoder.head_dim), torch.int8)
        heads = torch.zeros(1, (decoder.heads + 2 * decoder.kv_heads) * decoder.head_dim)
        heads[0, -1] = torch.nan
        expected = cached.clone()
        where = torch.tensor([0]), torch.tensor([0]), []
        for step, into in ((kernels(*where), cached), (TorchStep(decoder, *where), expected)):
            step.turn_and_write(heads.clone(), decoder.layers[0], into)
        for found in map(kv_cache.unpacked, (cached, expected)):
            # Zeros are zeros, and what is no number is none.
            assert not found[0, :-1].any()
            assert found[0, -1].isnan().all()


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 64, "intermediate_size": 48},
        {"hidden_size": 48, "head_dim": 16},
        {"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8},
        {"hidden_size": 64, "num_key_value_heads": 1, "num_attention_heads": 1, "head_dim": 8},
    ],
)
def test_layers_whose_sizes_do_not_fit_are_computed_one_operation_after_the_other(
    tmp_path: Path, sizes: dict[str, int]
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(make_model(tmp_path, **sizes))
    decoder = decoder_of(model.eval(), linear.int8)
    decoder.reach(512)
    assert CPUKernels(decoder, BLOCK_SIZE).weights == {}
    assert self_check.find_fault(decoder, BLOCK_SIZE, step_of) is None


def decoded(folder: Path, *, whole: bool) -> list[torch.Tensor]:
    """The logits of three sequences that have been read and then decode two tokens together."""
    engine = opened(folder, quantization="int8")
    engine.stop()
    runner = engine.loaded.runner
    assert isinstance(runner, PagedRunner)
    kernels = runner._make_step
    assert isinstance(kernels, CPUKernels)
    if not whole:
        kernels.weights.clear()
    sequences, free = [], list(range(8))
    for length in (3, 18, 42):
        generation = Generation(tuple(range(5, 5 + length)), SamplingParams(), 1)
        sequence = TorchSequence(generation, lambda _: None)
        sequence.blocks = [free.pop() for _ in range(-(-length // BLOCK_SIZE))]
        sequences.append(sequence)
        on_cpu_thread(runner.forward, [Chunk(sequence, length - 2)])
        sequence.computed = length - 2
    steps = []
    for _ in range(2):
        steps.append(on_cpu_thread(runner.forward, [Chunk(each, 1) for each in sequences]))
        for each in sequences:
            each.computed += 1
    return steps


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "mistral", "gemma3_text", "phi3"])
def test_a_layer_in_one_kernel_is_the_same_to_the_bit(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_architecture(tmp_path, name)
    monkeypatch.setattr(Chunk, "logits", property(lambda chunk: chunk.tokens))
    for apart, together in zip(
        decoded(tmp_path, whole=False), decoded(tmp_path, whole=True), strict=True
    ):
        assert len(together) == 3
        assert torch.equal(apart, together)


# Attention ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 1, 7, 16, 17, 1000])
@pytest.mark.parametrize("heads", [(6, 2), (4, 4), (3, 1)])
@pytest.mark.parametrize("head_dim", [8, 24, 64, 96, 128])
def test_attention(
    heads: tuple[int, int], head_dim: int, window: int | None, tmp_path: Path
) -> None:
    lengths = [1, 2, 15, 16, 17, 64, 100]
    queries_heads, kv_heads = heads
    generator = torch.Generator().manual_seed(0)
    needed = [-(-length // BLOCK_SIZE) for length in lengths]
    order = torch.randperm(sum(needed), generator=generator).tolist()
    # What is no number may lie in slots that no sequence has.
    cached = torch.full((sum(needed) * BLOCK_SIZE, 2 * kv_heads, head_dim), torch.nan)
    spans = []
    for row, (length, blocks) in enumerate(zip(lengths, needed, strict=True)):
        table = [order.pop() for _ in range(blocks)]
        for place in range(length):
            slot = table[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE
            cached[slot] = torch.randn(2 * kv_heads, head_dim, generator=generator)
        cpu = torch.device("cpu")
        spans.append(SequenceSpan(row, 1, length, table, BLOCK_SIZE, cpu))
    queries = torch.randn(len(spans), queries_heads + 2 * kv_heads, head_dim, generator=generator)[
        :, :queries_heads
    ]
    kernels = _kernels(queries_heads, kv_heads, head_dim, scale=0.3)
    expected = attend(queries, cached, spans, Scores(0.3, window))
    found = attend(queries, cached, [DecodingSpans(spans, kernels)], Scores(0.3, window))
    assert torch.allclose(found, expected, atol=2e-5)
    # Some of the rows, in another order.
    some = [spans[5], spans[0], spans[3]]
    few = DecodingSpans(some, kernels)
    apart = few.attend(queries, cached, Scores(0.3, window))
    assert torch.equal(apart, found[torch.tensor([5, 0, 3])])


def _kernels(heads: int, kv_heads: int, head_dim: int, scale: float) -> CPUKernels:
    class Model:
        norm = type("", (), {"epsilon": 1e-5})
        ropes = layers = ()
        activation = "silu"
        attention_scale = scale

    model = Model()
    model.heads, model.kv_heads, model.head_dim = heads, kv_heads, head_dim  # type: ignore[attr-defined]
    return CPUKernels(model, BLOCK_SIZE)  # type: ignore[arg-type]


# Which models get them ---------------------------------------------------------------------------


def test_models_that_there_are_no_kernels_for(tmp_path: Path) -> None:
    assert cpu_step.supports(decoder_in(make_model(tmp_path)))
    assert not cpu_step.supports(decoder_in(tmp_path, dtype=torch.bfloat16))
    for change in ({"hidden_size": 36, "head_dim": 16}, {"head_dim": 12}, {"hidden_act": "gelu"}):
        folder = tmp_path / next(iter(change))
        config = transformers.AutoConfig.from_pretrained(make_model(folder))
        for name, value in change.items():
            setattr(config, name, value)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        assert not cpu_step.supports(decoder_in(folder)), change
        engine = opened(folder)
        engine.stop()
        assert engine.loaded.kernels == "sdpa"


def test_who_asks_for_them_where_they_do_not_fit_is_told(tmp_path: Path) -> None:
    make_model(tmp_path)
    with pytest.raises(ProviderStartError, match=r"in float32.*kernels: sdpa"):
        opened(tmp_path, kernels="llvm", dtype="bfloat16")


def _idle(*arguments: int) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ("norm", "'norm' is off"),
        ("add_and_norm", "'add and norm' is off"),
        ("gate", "'gate' is off"),
        ("attend", "'attention' is off"),
    ],
)
def test_kernels_that_do_nothing_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, fault: str
) -> None:
    made = CPUKernels.__init__

    def init(self: CPUKernels, *arguments: Any, **settings: Any) -> None:
        made(self, *arguments, **settings)
        setattr(self, broken, _idle)

    monkeypatch.setattr(CPUKernels, "__init__", init)
    make_model(tmp_path)
    with pytest.raises(ProviderStartError, match=rf"(?s)llvm.*{fault}.*kernels: sdpa"):
        opened(tmp_path, kernels="llvm")


def test_results_that_are_no_numbers_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = decoder_in(make_model(tmp_path))
    monkeypatch.setattr(
        cpu_step.CPUStep, "norm", lambda step, x, norm: torch.full_like(x, torch.nan)
    )
    assert self_check.find_fault(decoder, BLOCK_SIZE, step_of) == (
        "'norm' is off by nan of its result"
    )


def test_a_layer_of_every_kind_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = decoder_in(make_model(tmp_path))
    decoder.layers[1] = replace(decoder.layers[1], window=20)
    assert self_check.find_fault(decoder, BLOCK_SIZE, step_of) is None
    right = cpu_step.CPUStep.attend

    def without_window(step: Any, queries: Any, cached: Any, layer: Layer) -> Any:
        return right(step, queries, cached, replace(layer, window=None))

    monkeypatch.setattr(cpu_step.CPUStep, "attend", without_window)
    assert "'attention' is off" in str(self_check.find_fault(decoder, BLOCK_SIZE, step_of))


def test_a_layer_that_does_nothing_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = CPUKernels.__init__

    def init(self: CPUKernels, *arguments: Any, **settings: Any) -> None:
        made(self, *arguments, **settings)
        self.layer = [_idle for _ in self.layer]

    monkeypatch.setattr(CPUKernels, "__init__", init)
    make_model(tmp_path)
    engine = opened(tmp_path, quantization="int8")
    engine.stop()
    assert engine.loaded.kernels == "sdpa"
    assert "'layer' is off" in caplog.text


def test_a_machine_that_can_not_run_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: Any, **settings: Any) -> Any:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(cpu_step, "CPUKernels", refuse)
    make_model(tmp_path)
    with pytest.raises(ProviderStartError, match=r"no such instruction.*kernels: sdpa"):
        opened(tmp_path, kernels="llvm")
    with caplog.at_level(logging.WARNING):
        engine = opened(tmp_path)
    engine.stop()
    assert engine.loaded.kernels == "sdpa"
    assert "no such instruction" in caplog.text


@pytest.mark.parametrize("lacking", ["llvmlite", "GNU's OpenMP"])
def test_without_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    from providers.local.torch_engine.cpu_kernels import library

    if lacking == "llvmlite":
        monkeypatch.setitem(
            __import__("sys").modules, "providers.local.torch_engine.cpu_kernels.library", None
        )
    else:
        monkeypatch.setattr(library, "openmp", lambda: None)
    assert not linear.kernels_possible()
    make_model(tmp_path)
    engine = opened(tmp_path, quantization="auto")
    engine.stop()
    assert (engine.loaded.kernels, engine.loaded.quantization) == ("sdpa", "float16")
    with pytest.raises(ProviderStartError, match=r"'quantization: int8': .*llvmlite"):
        opened(tmp_path, quantization="int8")
