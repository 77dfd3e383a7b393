"""MXFP4 checkpoints stand for what transformers makes of them."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from safetensors.torch import load_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.unit.providers.local.engines import make_architecture
from tests.unit.providers.local.torch_engine.formats.checkpoints import (
    Pair,
    assert_same,
    set_quantization,
    write,
)


async def test_the_experts_of_gpt_oss(tmp_path: Path) -> None:
    plain = make_architecture(tmp_path / "plain", "gpt_oss")
    pair = Pair(tmp_path / "quantized", plain)
    shutil.copytree(plain, pair.quantized)
    tensors = load_file(plain / "model.safetensors")
    stored = dict(tensors)
    quantized = 0
    for name, weight in tensors.items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, inputs, outputs = weight.shape
            # Any bits at all are numbers.
            shape = (experts, outputs, inputs // 32, 16)
            blocks = torch.randint(0, 256, shape, dtype=torch.uint8)
            scales = torch.randint(120, 126, shape[:3], dtype=torch.uint8)
            made = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            assert made.shape == weight.shape
            tensors[name] = made
            del stored[name]
            stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            quantized += 1
    assert quantized == 2 * json.loads((plain / "config.json").read_text())["num_hidden_layers"]
    write(pair.plain, tensors)
    write(pair.quantized, stored, shards=2)
    set_quantization(pair.quantized, {"quant_method": "mxfp4", "modules_to_not_convert": []})
    await assert_same(pair)
