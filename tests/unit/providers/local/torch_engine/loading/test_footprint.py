"""What a model folder will take of memory, beside what it takes."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.base import ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.formats.weight_files import stored_tensors
from providers.local.torch_engine.loading.footprint import (
    FP8_BYTES,
    INT8_BYTES,
    count_weights,
    counts_of,
    footprint,
    weight_bytes,
)
from providers.local.torch_engine.loading.loader import load
from tests.tiny_audio import make_audio_model
from tests.tiny_models import make_model
from tests.tiny_vision import make_vision_model

TOKEN = 2 * 2 * 2 * 16 * 4
"""Bytes of the tiny model's cache: layers, keys and values, heads, width, float32."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


def of(folder: Path, length: int | None = None, **config: Any) -> Any:
    settings = TorchConfig.model_validate({"device": "cpu", "quantization": "none", **config})
    return footprint("tiny", folder, settings, length, generates=True)


def test_the_numbers_are_those_of_the_model(folder: Path) -> None:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    counts = count_weights(folder)
    assert counts.all == sum(each.numel() for each in model.parameters())
    assert counts.embedding == model.get_input_embeddings().weight.numel()
    assert of(folder).weights == counts.all * 4


@pytest.mark.parametrize(
    ("kv_cache", "length", "tokens"),
    [(100 * TOKEN, None, 100), (1e9, None, 32 * 528), (1e9, 48, 32 * 64), (2, None, 16)],
)
def test_the_cache_is_as_large_as_the_template_says(
    folder: Path, kv_cache: float, length: int | None, tokens: int
) -> None:
    assert of(folder, length, kv_cache=kv_cache).kv_cache == tokens * TOKEN


def test_a_share_is_one_of_the_weights_whoever_else_is_loaded(folder: Path) -> None:
    found = of(folder, kv_cache=0.5)
    assert found.kv_cache == found.weights // 2
    assert found.needs == {"cpu": found.weights + found.kv_cache}


def test_the_cache_that_is_made_is_no_larger_than_was_told(folder: Path) -> None:
    found = of(folder, kv_cache=0.5)
    config = TorchConfig(device="cpu", quantization="none", kv_cache=float(found.kv_cache))
    loaded = load("tiny", folder, config)
    assert loaded.cache_bytes is not None
    assert found.kv_cache - 16 * TOKEN < loaded.cache_bytes <= found.kv_cache


def test_weights_of_fewer_bits_take_less(folder: Path) -> None:
    counts = count_weights(folder)
    sizes = [
        weight_bytes(counts, torch.float32, each) for each in ("none", "float16", "int8", "int4")
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < sizes[0] / 2


def test_tables_of_embeddings_stay_as_they_are() -> None:
    counts = counts_of(
        {"embed_tokens.weight": 64, "embed_tokens_per_layer.weight": 320, "up_proj.weight": 640}
    )
    # Of the first there is one more, which is the head.
    eight = weight_bytes(counts, torch.float32, "int8")
    assert eight == int((64 + 320) * 4 + (64 + 640) * INT8_BYTES)
    assert weight_bytes(counts, torch.float32, "none") == 1024 * 4


def test_in_fp8_the_head_and_experts_stay_as_they_are() -> None:
    numbers = {"embed_tokens.weight": 64, "up_proj.weight": 10240}
    tied = weight_bytes(counts_of(numbers), torch.bfloat16, "fp8")
    assert tied == int(64 * 2 + 10240 * FP8_BYTES)
    apart = weight_bytes(counts_of({**numbers, "lm_head.weight": 64}), torch.bfloat16, "fp8")
    assert apart == tied + 64 * 2
    experts = {**numbers, "model.layers.0.mlp.experts.7.up_proj.weight": 128}
    assert weight_bytes(counts_of(experts), torch.bfloat16, "fp8") == tied + 128 * 2


def test_a_cache_in_fp8_takes_half_of_one_in_bfloat16(folder: Path) -> None:
    sizes = [
        of(folder, 48, kv_cache=1e9, dtype="bfloat16", kv_cache_dtype=kind).kv_cache
        for kind in ("auto", "fp8")
    ]
    assert sizes[0] == 2 * sizes[1]


@pytest.mark.parametrize(
    ("make", "kind", "parts"),
    [
        (make_vision_model, "qwen2_5_vl", "visual"),
        (make_audio_model, "qwen2_audio", "audio_tower|multi_modal_projector"),
    ],
    ids=["sees", "hears"],
)
def test_what_takes_media_is_never_of_fewer_bits(
    tmp_path: Path, make: Callable[[Path, str], Path], kind: str, parts: str
) -> None:
    folder = make(tmp_path / "tiny", kind)
    tower = sum(
        each.numbers
        for name, each in stored_tensors(folder).items()
        if re.match(rf"(?:model\.)?(?:{parts})\.", name)
    )
    counts = count_weights(folder)
    assert counts.tower == tower > 0
    few, plain = (weight_bytes(counts, torch.float32, kind) for kind in ("int4", "none"))
    assert 4 * tower < few < plain


def test_older_files_are_told_by_their_size(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 1000)
    assert count_weights(tmp_path).all == 500


@pytest.mark.parametrize("damage", ["gone", "cut", "config"])
def test_a_damaged_folder_is_told_with_its_name(tmp_path: Path, damage: str) -> None:
    folder = make_model(tmp_path / "tiny")
    weights = folder / "model.safetensors"
    if damage == "gone":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:100])
    else:
        (folder / "config.json").write_text("{}")
    with pytest.raises(ProviderStartError, match="takes of memory: "):
        of(folder)
