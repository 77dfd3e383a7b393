"""Of quantized weights what belongs together, what is missing, and how many are there at once."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from safetensors.torch import load_file, save_file

from providers.base import ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.formats.fp8 import FP8
from providers.local.torch_engine.formats.gptq import GPTQ
from providers.local.torch_engine.formats.known import Quantized
from providers.local.torch_engine.formats.weight_files import (
    late_weights,
    stored_tensors,
    weights_of,
)
from providers.local.torch_engine.loading.loader import load
from tests.unit.providers.local.torch_engine.formats.checkpoints import (
    Tensors,
    make_pair,
    write,
)

SETTINGS = {"quant_method": "fp8"}


def by_tensor(name: str, weight: Any) -> tuple[Tensors, Any]:
    scale = weight.abs().max() / 448
    stored = (weight / scale).to(torch.float8_e4m3fn)
    return {f"{name}.weight": stored, f"{name}.weight_scale": scale}, stored.float() * scale


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tmp_path_factory.mktemp("fp8"), by_tensor, SETTINGS).quantized


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "model")
    return tmp_path / "model"


def refusal(folder: Path, change: Callable[[Tensors], Any]) -> str:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    write(folder, tensors)
    with pytest.raises(ProviderStartError) as caught:
        load("tiny", folder, TorchConfig(device="cpu"))
    return str(caught.value)


NAME = "model.layers.1.mlp.up_proj.weight"


def test_quantized_weights_without_a_scale(folder: Path) -> None:
    said = refusal(folder, lambda tensors: tensors.pop(f"{NAME}_scale"))
    assert f"{NAME} is quantized (F8_E4M3), and has no scale" in said


def test_a_scale_without_a_weight(folder: Path) -> None:
    assert f"it lacks {NAME}" in refusal(folder, lambda tensors: tensors.pop(NAME))


def test_scales_that_do_not_fit(folder: Path) -> None:
    said = refusal(folder, lambda tensors: tensors.update({f"{NAME}_scale": torch.ones(7, 3)}))
    assert f"{NAME} can't be read: scales [7, 3] don't fit a weight [320, 192]" in said


def test_older_files_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ProviderStartError, match="not there as safetensors"):
        load("tiny", folder, TorchConfig(device="cpu"))


def test_a_part_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match=r"lacks a\.qzeros"):
        weights_of(["a.qweight", "a.scales", "b.weight"], GPTQ)


def test_what_is_called_like_a_scale_is_a_weight_of_its_own() -> None:
    assert weights_of(["logit_scale", "a.weight"], FP8) == {}


def test_weights_beside_those_of_the_index_do_not_count(folder: Path) -> None:
    found = stored_tensors(folder)
    save_file({"other": torch.ones(3)}, folder / "consolidated.safetensors")
    assert stored_tensors(folder) == found


def test_a_weight_is_there_while_it_is_asked_for_alone(folder: Path) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0
    with late_weights(folder, Quantized(FP8, SETTINGS), torch.float32) as weights:
        assert len(weights) == len(load_file(folder / "model.safetensors")) - 13
        for late in weights.values():
            alive.add(late[...])
            most = max(most, len(alive))
    assert most <= 1
