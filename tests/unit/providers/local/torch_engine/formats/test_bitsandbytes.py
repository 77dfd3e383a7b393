"""What transformers writes with bitsandbytes stands for what bitsandbytes itself makes of it."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from safetensors.torch import load_file

from tests.tiny_models import make_model
from tests.unit.providers.local.torch_engine.formats.checkpoints import Pair, assert_same, write


@pytest.fixture(scope="module")
def bitsandbytes() -> Any:
    """Imported by the one process that needs it."""
    return pytest.importorskip("bitsandbytes", reason="has no wheels for this system")


def dequantised(bitsandbytes: Any, weight: Any) -> Any:
    functional = bitsandbytes.functional
    if isinstance(weight, bitsandbytes.nn.Params4bit):
        return functional.dequantize_4bit(weight.data, weight.quant_state)
    return functional.int8_vectorwise_dequant(weight.CB, weight.SCB)


@pytest.mark.parametrize(
    "settings",
    [
        {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
        {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
        {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_quant_storage": "bfloat16"},
        {"load_in_8bit": True},
    ],
    ids=["nf4", "nf4-nested", "fp4", "nf4-in-bfloat16", "int8"],
)
async def test_what_transformers_writes(
    tmp_path: Path, bitsandbytes: Any, settings: dict[str, Any]
) -> None:
    shape = {"hidden_size": 192, "intermediate_size": 320}
    pair = Pair(tmp_path / "quantized", make_model(tmp_path / "plain", **shape))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        pair.plain,
        dtype=torch.float32,
        device_map="cpu",
        quantization_config=transformers.BitsAndBytesConfig(**settings),
    )
    transformers.AutoTokenizer.from_pretrained(pair.plain).save_pretrained(pair.quantized)
    model.save_pretrained(pair.quantized)
    config = json.loads((pair.quantized / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "bitsandbytes"
    plain = load_file(pair.plain / "model.safetensors")
    quantized = 0
    for name, module in model.named_modules():
        if isinstance(module, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)):
            plain[f"{name}.weight"] = dequantised(bitsandbytes, module.weight).float().clone()
            quantized += 1
    assert quantized == 2 * 7
    write(pair.plain, plain)
    # Of a nested scale theirs adds in another order.
    await assert_same(pair, tolerance=1e-6)
