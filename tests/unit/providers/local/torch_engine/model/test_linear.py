"""Every kind of weights: close to the exact product, and little or nothing of it the batch's."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.types import TopPSamplingStrategy
from providers.base import ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.devices import lacks_fp8
from providers.local.torch_engine.loading import loader
from providers.local.torch_engine.model import linear
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, opened, running
from tests.unit.providers.local.torch_engine.test_engine import PROMPTS

pytestmark = pytest.mark.skipif(
    not (linear.fbgemm_available() and linear.kernels_possible()),
    reason="needs x86 with AVX2, Linux and llvmlite",
)


FURTHEST_OFF = {"none": 1e-6, "float16": 1e-3, "int8": 1e-2, "int4": 0.2}


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", linear.ON_CPUS)
def test_every_kind_is_close(name: str, with_bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 256, generator=generator)
    bias = torch.randn(96, generator=generator) if with_bias else None
    rows = torch.randn(5, 256, generator=generator)
    # An activation far from the others takes their precision away where there are 7 bits alone.
    rows[0, 3] = 500.0
    with torch.inference_mode():
        exact = torch.nn.functional.linear(rows.double(), weight.double())
        wanted = exact if bias is None else exact + bias
        found = linear.ON_CPUS[name](weight, bias)(rows)
    error = (found - wanted).norm(dim=1) / exact.norm(dim=1)
    assert found.dtype == torch.float32
    # And it is not another kind's: none is better than it says.
    assert FURTHEST_OFF[name] / 100 < float(error.max()) < FURTHEST_OFF[name]


def test_float32_is_the_same_in_any_batch_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(37, 192, generator=generator)
    with torch.inference_mode():
        product = linear.plain(torch.randn(130, 192, generator=generator), None)
        together = product(rows)
        for count in (1, 2, 3, 5, 8, 16, 31):
            apart = torch.cat([product(part) for part in rows.split(count)])
            assert torch.equal(apart, together), count


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_onednn_it_is_pytorchs_product(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    if dtype == torch.float32:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    weight, rows = torch.randn(24, 16).to(dtype), torch.randn(3, 16).to(dtype)
    assert torch.equal(linear.plain(weight, None)(rows), torch.nn.functional.linear(rows, weight))


@pytest.mark.parametrize("make", [linear.int8, linear.int4])
def test_a_row_does_not_know_the_others(make: linear.Make) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(9, 64, generator=generator)
    rows[4] *= 1000
    rows[5] = 0
    rows = torch.cat([rows, rows.flip(0), rows])
    with torch.inference_mode():
        product = make(torch.randn(48, 64, generator=generator), None)
        together = product(rows)
        for row in range(len(rows)):
            assert torch.equal(product(rows[row : row + 1])[0], together[row])
    assert not together[5].any()


@pytest.mark.parametrize("name", linear.APART)
def test_a_row_is_the_same_in_any_batch_where_it_has_to_be(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 256, generator=generator)
    bias = torch.randn(96, generator=generator)
    rows = torch.randn(80, 256, generator=generator)
    with torch.inference_mode():
        multiply = linear.APART[name](weight, bias)
        alone = torch.cat([multiply(row) for row in rows.split(1)])
        for count in range(1, 81):
            assert torch.equal(multiply(rows[:count].contiguous()), alone[:count]), count


@pytest.mark.parametrize("name", linear.ON_CPUS)
async def test_a_seed_gives_the_same_alone_and_in_a_batch(tmp_path: Path, name: str) -> None:
    make_model(tmp_path)
    strategy = TopPSamplingStrategy(1.0, 0.9)
    async with running(tmp_path, quantization=name, max_step_tokens=32) as engine:
        assert engine.loaded.quantization == name
        alone = [
            await generate(engine, prompt, 16, strategy=strategy, seed=7) for prompt in PROMPTS[:12]
        ]
        together = await asyncio.gather(
            *(generate(engine, prompt, 16, strategy=strategy, seed=7) for prompt in PROMPTS[:12])
        )
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]


@pytest.mark.parametrize(
    ("wanted", "dtype", "got"),
    [
        ("auto", "auto", "int8"),
        ("float16", "auto", "float16"),
        ("auto", "float32", "none"),
        ("auto", "bfloat16", "none"),
        ("none", "auto", "none"),
        ("int8", "float32", "int8"),
        ("int4", "auto", "int4"),
    ],
)
def test_the_kind_that_a_template_gets(tmp_path: Path, wanted: str, dtype: str, got: str) -> None:
    make_model(tmp_path)
    engine = opened(tmp_path, quantization=wanted, dtype=dtype)
    engine.stop()
    assert engine.loaded.quantization == got


def test_auto_does_with_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path)
    for missing, taken in (("kernels_possible", "float16"), ("fbgemm_available", "none")):
        monkeypatch.setattr(linear, missing, lambda: False)
        engine = opened(tmp_path, quantization="auto")
        engine.stop()
        assert engine.loaded.quantization == taken
    # Without kernels of our own, PyTorch's operations are taken in their place too.
    assert engine.loaded.kernels == "sdpa"


def test_experts_stay_as_they_are_where_the_others_are_fp8() -> None:
    assert linear.leaves(linear.fp8, torch.zeros(4, 16, 16, dtype=torch.bfloat16))
    assert not linear.leaves(linear.int8, torch.zeros(4, 16, 16, dtype=torch.bfloat16))


GPU = torch.device("cuda")


@pytest.mark.parametrize(
    ("wanted", "dtype", "block_size", "got"),
    [
        ("auto", "auto", None, "fp8"),
        ("auto", "auto", [128, 128], "none"),
        ("fp8", "auto", [128, 128], "fp8"),
        ("auto", "bfloat16", None, "none"),
        ("none", "auto", None, "none"),
    ],
)
def test_fp8_in_the_files_stays_fp8_on_a_gpu_that_can(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: str,
    dtype: str,
    block_size: list[int] | None,
    got: str,
) -> None:
    monkeypatch.setattr(loader, "lacks_fp8", lambda _: None)
    settings = {"quant_method": "fp8", "weight_block_size": block_size}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": settings}))
    config = TorchConfig.model_validate({"quantization": wanted, "dtype": dtype})
    found = loader.chosen_quantization("tiny", tmp_path, config, GPU, torch.bfloat16)
    assert found == got
    (tmp_path / "config.json").write_text("{}")
    plain = loader.chosen_quantization("tiny", tmp_path, config, GPU, torch.bfloat16)
    assert plain == ("fp8" if wanted == "fp8" else "none")


def test_what_a_gpu_lacks_for_fp8_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TorchConfig.model_validate({"quantization": "fp8"})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    words = r"capability 8.9 or more.*'cuda' in bfloat16.*quantization: none"
    with pytest.raises(ProviderStartError, match=words):
        loader.chosen_quantization("tiny", tmp_path, config, GPU, torch.bfloat16)
    assert "this has 8.0" in str(lacks_fp8(GPU))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert lacks_fp8(GPU) is None or "Triton" in str(lacks_fp8(GPU))


@pytest.mark.parametrize("name", ["float16", "int8", "fp8"])
def test_a_kind_is_refused_where_it_can_not_be(tmp_path: Path, name: str) -> None:
    make_model(tmp_path)
    with pytest.raises(ProviderStartError, match=f"(?s){name}.*quantization: none"):
        opened(tmp_path, quantization=name, dtype="bfloat16")
