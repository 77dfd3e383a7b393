"""FP8 checkpoints stand for what transformers, and their definition, say."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from safetensors.torch import load_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

from tests.unit.providers.local.engines import make_architecture
from tests.unit.providers.local.torch_engine.formats.checkpoints import (
    Pair,
    Tensors,
    assert_same,
    make_pair,
    set_quantization,
    write,
)

F8 = torch.float8_e4m3fn


def by_blocks(name: str, weight: Any, rows: int, columns: int) -> tuple[Tensors, Any]:
    """Each block by itself, the last ones as small as they are."""
    height, width = weight.shape
    scales = torch.zeros(-(-height // rows), -(-width // columns))
    stored, plain = torch.zeros_like(weight, dtype=F8), torch.zeros_like(weight)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            scales[i, j] = weight[at].abs().max() / 448
            stored[at] = (weight[at] / scales[i, j]).to(F8)
            plain[at] = stored[at].float() * scales[i, j]
    if height % rows == width % columns == 0:
        torch.testing.assert_close(
            plain, Fp8Dequantize(None)._dequantize_one(stored, scales), rtol=0, atol=0
        )
    return {f"{name}.weight": stored, f"{name}.weight_scale_inv": scales}, plain


@pytest.mark.parametrize("block", [(128, 128), (64, 32)])
async def test_blocks_the_last_of_which_are_smaller(tmp_path: Path, block: tuple[int, int]) -> None:
    pair = make_pair(
        tmp_path,
        lambda name, weight: by_blocks(name, weight, *block),
        {"quant_method": "fp8", "weight_block_size": list(block), "activation_scheme": "dynamic"},
        shards=3,
    )
    await assert_same(pair)


@pytest.mark.parametrize("shape", [(), (1,), "rows"])
@pytest.mark.parametrize("ending", ["scale", "scale_inv"])
async def test_one_scale_for_a_weight_or_for_each_row(
    tmp_path: Path, shape: Any, ending: str
) -> None:
    def quantize(name: str, weight: Any) -> tuple[Tensors, Any]:
        largest = weight.abs().amax(1, keepdim=True) if shape == "rows" else weight.abs().max()
        scale = largest / 448
        stored = (weight / scale).to(F8)
        kept = scale if shape == "rows" else scale.reshape(shape)
        parts = {
            f"{name}.weight": stored,
            f"{name}.weight_{ending}": kept,
            # Of activations, which are not quantized here.
            f"{name}.input_scale": torch.tensor(0.5),
            f"{name}.activation_scale": torch.tensor(0.5),
        }
        return parts, stored.float() * scale

    method = "fbgemm_fp8" if shape == "rows" else "fp8"
    await assert_same(make_pair(tmp_path, quantize, {"quant_method": method}))


async def test_scales_that_are_exponents(tmp_path: Path) -> None:
    def quantize(name: str, weight: Any) -> tuple[Tensors, Any]:
        exponent = (weight.abs().max() / 448).log2().ceil()
        stored = (weight / exponent.exp2()).to(F8)
        scale = (exponent + 127).to(torch.uint8).reshape(1, 1)
        parts = {f"{name}.weight": stored, f"{name}.weight_scale_inv": scale}
        return parts, stored.float() * exponent.exp2()

    await assert_same(make_pair(tmp_path, quantize, {"quant_method": "fp8"}))


@pytest.mark.parametrize("name", ["qwen3_moe", "phi3"])
async def test_what_transformers_puts_together_otherwise(tmp_path: Path, name: str) -> None:
    """Experts have a tensor each in a file, and one together in the model."""
    plain = make_architecture(tmp_path / "plain", name)
    pair = Pair(tmp_path / "quantized", plain)
    shutil.copytree(plain, pair.quantized)
    tensors = load_file(plain / "model.safetensors")
    stored = dict(tensors)
    products = [each for each in tensors if each.endswith("_proj.weight")]
    assert any("experts.0." in each for each in products) == (name == "qwen3_moe")
    for each in products:
        parts, tensors[each] = by_blocks(each.removesuffix(".weight"), tensors[each], 32, 24)
        stored |= parts
    write(pair.plain, tensors)
    write(pair.quantized, stored, shards=2)
    set_quantization(pair.quantized, {"quant_method": "fp8", "weight_block_size": [32, 24]})
    await assert_same(pair)
