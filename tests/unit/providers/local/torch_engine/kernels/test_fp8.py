"""Weights in FP8: what is lost of them, products with them, and models that run on them."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.local.torch_engine.kernels.fp8 import (
    FEW_ROWS,
    FP8Linear,
    quantised_rows,
    quantised_weight,
)
from providers.local.torch_engine.kernels.kernel_runner import KernelRunner
from providers.local.torch_engine.loading import loader
from providers.local.torch_engine.loading.checkpoint import read_model
from providers.local.torch_engine.model import linear
from tests.unit.providers.local.engines import generate, running
from tests.unit.providers.local.torch_engine.formats.checkpoints import Tensors, make_pair

F8 = torch.float8_e4m3fn
PROMPTS = [tuple(range(5, 5 + length)) for length in (3, 17, 90)]


def off(found: Any, expected: Any) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def test_a_scale_for_each_output_that_loses_little() -> None:
    torch.manual_seed(0)
    weight = torch.randn(40, 96) * torch.logspace(-6, 4, 40)[:, None]
    weight[7] = 0.0
    values, scales = quantised_weight(weight)
    assert values.dtype == F8
    widened = values.float() * scales[:, None]
    assert not widened[7].any()
    lost = (widened - weight).norm(dim=1) / weight.norm(dim=1).clamp_min(1e-30)
    plain = weight.abs().amax(1, keepdim=True).clamp_min(1e-30) / 448
    usual = (weight / plain).to(F8).float() * plain
    usually_lost = (usual - weight).norm(dim=1) / weight.norm(dim=1).clamp_min(1e-30)
    assert 0.01 < lost.max() < 0.035
    assert (lost <= usually_lost + 1e-6).all()


@pytest.mark.parametrize("scale_of", ["output", "weight"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_was_fp8_keeps_its_numbers(dtype: Any, scale_of: str) -> None:
    torch.manual_seed(0)
    weight = torch.randn(64, 128) * torch.logspace(-2, 0, 64)[:, None]
    most = weight.abs().amax(1, keepdim=True) if scale_of == "output" else weight.abs().max()
    stored = (weight / (most / 448)).to(F8)
    plain = stored.float() * (most / 448)
    values, scales = quantised_weight(plain.to(dtype))
    # With another scale they may be some powers of 2 further up in what a byte can say.
    times = values.float().abs().amax(1) / stored.float().abs().amax(1)
    assert torch.equal(times.log2(), times.log2().round())
    assert torch.equal(values.float(), stored.float() * times[:, None])
    assert times.max() > 1 or scale_of == "output"
    assert off(values.float() * scales[:, None], plain) < (1e-6 if dtype == torch.float32 else 1e-3)


def test_a_model_in_fp8_has_the_numbers_of_its_files(tmp_path: Path) -> None:
    stored: dict[str, Any] = {}

    def quantize(name: str, weight: Any) -> tuple[Tensors, Any]:
        scale = weight.abs().amax(1, keepdim=True) / 448
        stored[name] = (weight / scale).to(F8)
        parts = {f"{name}.weight": stored[name], f"{name}.weight_scale": scale}
        return parts, stored[name].float() * scale

    pair = make_pair(tmp_path, quantize, {"quant_method": "fbgemm_fp8"})
    model = read_model(transformers.AutoModelForCausalLM, pair.quantized, dtype=torch.bfloat16)
    layer = loader.decoder_of(model.eval(), linear.fp8, linear.plain).layers[1]
    # Those of one tensor, whose outputs are in their order.
    for name, product in (("self_attn.o_proj", layer.out), ("mlp.down_proj", layer.mlp.down)):
        assert isinstance(product, FP8Linear)
        assert torch.equal(product.weight.float(), stored[f"model.layers.1.{name}"].float())


@pytest.mark.parametrize("size", [16, 100, 5000])
def test_rows_are_rounded_each_by_its_own_scale(device: Any, size: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(7, size).to(device) * torch.logspace(-6, 6, 7).to(device)[:, None]
    x[3] = 0.0
    values, scales = quantised_rows(x)
    expected = x.abs().amax(1, keepdim=True).clamp_min(448e-30) / 448
    torch.testing.assert_close(scales, expected, rtol=1e-6, atol=0)
    by_torch = (x / scales).clamp(-448, 448)
    apart = (values.float() - by_torch.to(F8).float()).abs()
    # Where a quotient is just between two numbers the last bit of it decides.
    assert (apart <= by_torch.abs() / 7 + 2**-8).all()
    assert float((apart > 0).float().mean()) < 0.01
    assert not values[3].float().any()


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 5, FEW_ROWS + 1])
def test_products(device: Any, rows: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    weight = torch.randn(48, 96).to(device, dtype)
    x, bias = torch.randn(rows, 96).to(device, dtype), torch.randn(48).to(device, dtype)
    product = linear.fp8(weight, bias if with_bias else None)
    assert isinstance(product, FP8Linear)
    found = product(x)
    assert found.dtype == dtype
    assert found.shape == (rows, 48)
    if not rows:
        return
    widened = product.weight.double() * product.scales[:, None].double()
    expected = x.double() @ widened.T + (bias.double() if with_bias else 0)
    exact = 1e-6 if dtype == torch.float32 else 1e-2
    # Of many rows the activations are rounded too.
    assert off(found, expected) < (exact if rows <= FEW_ROWS else 4e-2)


def test_what_tensor_cores_do_not_take_stays_as_it_is() -> None:
    for shape in ((40, 32), (32, 40)):
        assert not isinstance(linear.fp8(torch.randn(shape), None), FP8Linear)


def widened(weight: Any, bias: Any) -> linear.Linear:
    """As `linear.fp8`, of weights that were rounded and are plain again."""
    values, scales = quantised_weight(weight)
    plain = (values.float() * scales[:, None]).to(weight.dtype)
    return linear.PlainLinear(plain, bias)


@pytest.mark.usefixtures("quick_check", "tried_once")
async def test_a_model_says_what_its_widened_self_says(device: Any, folder: Path) -> None:
    said, made = [], loader.decoder_of
    for way in (linear.fp8, widened):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                loader, "decoder_of", lambda module, *_, way=way: made(module, way, linear.plain)
            )
            async with running(
                folder, device=device.type, dtype="float32", kernels="triton", max_sequences=3
            ) as engine:
                assert isinstance(engine.loaded.runner, KernelRunner)
                layer = engine.loaded.weights.layers[0]
                assert isinstance(layer.qkv, FP8Linear) == (way is linear.fp8)
                # The last one comes in more rows at once than those that are not rounded.
                said.append(
                    await asyncio.gather(
                        *(generate(engine, prompt, 5, logprobs=400) for prompt in PROMPTS[:2])
                    )
                )
                said[-1].append(await generate(engine, PROMPTS[2], 5, logprobs=400))
    for ours, theirs, tolerance in zip(*said, (1e-4, 1e-4, 1.5), strict=True):
        own, plain = dict(ours.scores[0].top), dict(theirs.scores[0].top)
        apart = max(abs(own[token] - plain[token]) for token in range(300))
        assert apart < tolerance
        assert apart > 1e-3 or tolerance < 1
    assert said[0][0].token_ids == said[1][0].token_ids


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [1, 2, 8, 32, 33, 300, 2048])
@pytest.mark.parametrize(
    ("outputs", "inputs"), [(6144, 4096), (4096, 14336), (28672, 4096), (3072, 1024)]
)
def test_large(device: Any, outputs: int, inputs: int, rows: int) -> None:
    if device.type != "cuda":
        pytest.skip("takes too long in the interpreter")
    torch.manual_seed(0)
    weight = torch.randn(outputs, inputs).to(device, torch.bfloat16)
    x = torch.randn(rows, inputs).to(device, torch.bfloat16)
    product = linear.fp8(weight, None)
    assert isinstance(product, FP8Linear)
    plain = product.weight.float() * product.scales[:, None]
    assert off(plain, weight) < 0.03
    expected = x.float() @ plain.T
    assert off(product(x), expected) < (1e-2 if rows <= FEW_ROWS else 4e-2)
