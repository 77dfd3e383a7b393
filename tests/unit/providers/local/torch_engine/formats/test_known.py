"""Which quantized checkpoints can't be read, and what is said of them."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from providers.base import ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.formats.known import FORMATS, quantized_in
from providers.local.torch_engine.loading.footprint import footprint
from providers.local.torch_engine.loading.loader import load
from tests.tiny_models import make_model
from tests.unit.providers.local.torch_engine.formats.checkpoints import set_quantization

OTHERS = sorted({*AUTO_QUANTIZATION_CONFIG_MAPPING, "modelopt", "unheard-of"} - {*FORMATS})

SETTINGS = TorchConfig(device="cpu", quantization="none")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


def refusal(folder: Path, settings: dict[str, Any]) -> str:
    set_quantization(folder, settings)
    with pytest.raises(ProviderStartError) as counted:
        footprint("tiny", folder, SETTINGS, None, generates=True)
    with pytest.raises(ProviderStartError) as caught:
        load("tiny", folder, SETTINGS)
    said = str(caught.value)
    assert f"'tiny' in {folder}" in said
    # Both say it in the same words.
    why = said.partition("can't be loaded: ")[2].partition(". ")[0]
    assert why in str(counted.value)
    return why


@pytest.mark.parametrize("method", OTHERS)
def test_a_method_that_is_not_read_is_named(folder: Path, method: str) -> None:
    said = refusal(folder, {"quant_method": method})
    assert f"quantized by '{method}'" in said
    assert all(name in said for name in FORMATS)


def packed_as(form: str) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {}}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "'marlin'"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "'gemv'"),
        ({"quant_method": "awq", "bits": 8, "version": "gemm"}, "8 bits"),
        (packed_as("nvfp4-pack-quantized"), "'nvfp4-pack-quantized'"),
        (packed_as("pack-quantized") | {"sparsity_config": {"format": "sparse-24-bitmask"}},
         "'sparse-24-bitmask'"),
        (packed_as("pack-quantized") | {"transform_config": {"config_groups": {"u": {}}}},
         "transform_config"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"format": "marlin-24"}}},
         "'marlin-24'"),
    ],
)  # fmt: skip
def test_what_of_a_method_is_not_read_is_named(
    folder: Path, settings: dict[str, Any], named: str
) -> None:
    assert named in refusal(folder, settings)


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"load_in_4bit": True}, "bitsandbytes"),
        ({"load_in_8bit": True}, "bitsandbytes"),
        ({"config_groups": {}, "format": "pack-quantized"}, "compressed-tensors"),
    ],
)
def test_old_configs_say_it_without_the_name(
    folder: Path, settings: dict[str, Any], method: str
) -> None:
    set_quantization(folder, settings)
    found = quantized_in(folder)
    assert found is not None
    assert found.stored is FORMATS[method]
