"""Checkpoints that are not whole are refused by the names of their weights; whole ones are not."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from safetensors.torch import load_file, save_file

from providers.base import ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading.loader import LoadedModel, load
from providers.local.torch_engine.model import linear
from tests.tiny_models import make_model

Weights = dict[str, Any]

KINDS = ["none", *(["int8"] if linear.kernels_possible() else [])]


def changed(folder: Path, change: Callable[[Weights], None]) -> Path:
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, {"format": "pt"})
    return folder


def set_in_config(folder: Path, **members: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | members))
    return folder


def loaded(folder: Path, quantization: str = "none") -> LoadedModel:
    return load(
        "tiny", folder, TorchConfig.model_validate({"device": "cpu", "quantization": quantization})
    )


def refusal(folder: Path, quantization: str = "none") -> str:
    with pytest.raises(ProviderStartError) as caught:
        loaded(folder, quantization)
    assert not (folder / ".llama-compat").exists()
    return str(caught.value)


@pytest.mark.parametrize("quantization", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.0.input_layernorm.weight",
        "model.norm.weight",
        "model.embed_tokens.weight",
        "lm_head.weight",
    ],
)
def test_a_weight_that_is_missing_is_named(tmp_path: Path, name: str, quantization: str) -> None:
    folder = changed(make_model(tmp_path), lambda weights: weights.pop(name))
    assert f"it lacks {name}" in refusal(folder, quantization)


def test_of_many_that_are_missing_some_are_named(tmp_path: Path) -> None:
    def keep_one(weights: Weights) -> None:
        for name in sorted(weights)[1:]:
            del weights[name]

    said = refusal(changed(make_model(tmp_path), keep_one))
    assert "model.embed_tokens.weight" in said
    assert "and 16 more" in said


def test_tied_embeddings_of_which_none_is_there(tmp_path: Path) -> None:
    make_model(tmp_path, tie_word_embeddings=True)
    loaded(tmp_path)
    changed(tmp_path, lambda weights: weights.pop("model.embed_tokens.weight"))
    assert "model.embed_tokens.weight" in refusal(tmp_path)


def test_the_head_of_tied_embeddings_alone_is_enough(tmp_path: Path) -> None:
    make_model(tmp_path, tie_word_embeddings=True)

    def rename(weights: Weights) -> None:
        weights["lm_head.weight"] = weights.pop("model.embed_tokens.weight")

    loaded(changed(tmp_path, rename))


@pytest.mark.parametrize("quantization", KINDS)
def test_another_number_of_layers(tmp_path: Path, quantization: str) -> None:
    set_in_config(make_model(tmp_path), num_hidden_layers=3)
    assert "it lacks model.layers.2." in refusal(tmp_path, quantization)
    set_in_config(tmp_path, num_hidden_layers=1)
    assert "no place for model.layers.1." in refusal(tmp_path, quantization)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.0.mlp.up_proj.weight_scale_inv",
        "lm_head.bias",
    ],
)
def test_what_is_left_over_in_a_part_of_the_model_is_refused(tmp_path: Path, name: str) -> None:
    changed(make_model(tmp_path), lambda weights: weights.update({name: torch.ones(64)}))
    assert f"no place for {name}" in refusal(tmp_path)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"]
)
def test_what_the_model_computes_itself_may_be_there(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    changed(make_model(tmp_path), lambda weights: weights.update({name: torch.ones(8)}))
    loaded(tmp_path)
    assert "inv_freq" not in caplog.text


@pytest.mark.parametrize("name", ["v_head.summary.weight", "mtp.layers.0.mlp.up_proj.weight"])
def test_a_part_that_the_model_does_not_have_is_named(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    changed(make_model(tmp_path), lambda weights: weights.update({name: torch.ones(8)}))
    with caplog.at_level(logging.WARNING):
        loaded(tmp_path)
    assert name in caplog.text


def test_masks_in_an_old_checkpoint(tmp_path: Path) -> None:
    """GPT-2's have no prefix, and a mask in each layer."""
    make_model(tmp_path)
    config = transformers.GPT2Config(
        vocab_size=400, n_embd=32, n_layer=2, n_head=2, n_positions=64, eos_token_id=2
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)

    def age(weights: Weights) -> None:
        old = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
        weights.clear()
        weights.update(old)
        weights["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)

    changed(tmp_path, age)
    loaded(tmp_path)
    changed(tmp_path, lambda weights: weights.pop("h.1.mlp.c_fc.bias"))
    assert "transformer.h.1.mlp.c_fc.bias" in refusal(tmp_path)
