"""What configs say of how weights are quantized, wherever they say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from providers.local.models.quantized import is_fp8, is_int4, method_of, settings_of


def test_where_a_config_says_it() -> None:
    inner = {"quant_method": "fp8"}
    assert settings_of({"quantization_config": inner}) == inner
    assert settings_of({"text_config": {"quantization_config": inner}}) == inner
    assert settings_of({"compression_config": inner, "text_config": None}) == inner
    assert settings_of({"quantization_config": None, "text_config": "odd"}) is None
    assert settings_of({}) is None


def test_what_it_is_called() -> None:
    assert method_of({"quant_method": "hqq"}) == "hqq"
    assert method_of({"load_in_8bit": True}) == "bitsandbytes"
    assert method_of({"config_groups": {}}) == "compressed-tensors"
    assert method_of({"bits": 4}) == "unknown"


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
INT4 = {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"}


def packed(**weights: Any) -> dict[str, Any]:
    """As compressed-tensors says it."""
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": INT4 | weights}},
        "ignore": ["lm_head"],
    }


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (AWQ, True),
        (AWQ | {"group_size": -1}, True),
        (AWQ | {"group_size": 16}, False),
        (AWQ | {"modules_to_not_convert": None}, True),
        (AWQ | {"modules_to_not_convert": ["model.layers.0.self_attn.o_proj"]}, False),
        (AWQ | {"modules_to_not_convert": ["visual", "model.layers.3.mlp.gate"]}, True),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, True),
        (GPTQ, True),
        (GPTQ | {"bits": 8}, False),
        (GPTQ | {"desc_act": True}, False),
        (packed(), True),
        (packed(strategy="channel", group_size=None), True),
        (packed(num_bits=8), False),
        (packed(type="float"), False),
        (packed(actorder="group"), False),
        (packed(actorder="weight"), True),
        (packed() | {"ignore": ["re:.*down_proj"]}, False),
        (packed() | {"config_groups": {}}, False),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, False),
        (None, False),
    ],
)
def test_what_keeps_its_4_bits(
    tmp_path: Path, settings: dict[str, Any] | None, expected: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": settings}))
    assert is_int4(tmp_path) is expected


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (FP8, True),
        (FP8 | {"weight_block_size": None}, True),
        (FP8 | {"weight_block_size": [128, 128]}, False),
        ({"quant_method": "fbgemm_fp8"}, True),
        (packed(num_bits=8, type="float", strategy="channel"), True),
        (packed(num_bits=8, type="float", strategy="tensor"), True),
        (packed(num_bits=8, type="float", strategy="block"), False),
        (packed(num_bits=8, strategy="channel"), False),
        (packed() | {"config_groups": {}}, False),
        (AWQ, False),
        (None, False),
    ],
)
def test_what_keeps_its_fp8(
    tmp_path: Path, settings: dict[str, Any] | None, expected: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": settings}))
    assert is_fp8(tmp_path) is expected


def test_a_folder_without_a_config_has_neither(tmp_path: Path) -> None:
    assert not is_int4(tmp_path)
    assert not is_fp8(tmp_path)
