"""Heads as they are written; and those that don't go with a model are refused."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.base import ProviderStartError
from providers.local.torch_engine.config import EagleConfig, TorchConfig
from providers.local.torch_engine.heads.eagle import EagleHead
from providers.local.torch_engine.heads.eagle_checkpoint import read_head
from providers.local.torch_engine.loading.footprint import count_weights, footprint
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.loading.weights import decoder_of
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import make_architecture
from tests.unit.providers.local.torch_engine.heads.eagle_heads import (
    Weights,
    config_in,
    head_config,
    random_weights,
    write_head,
)

transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", num_hidden_layers=8)


@pytest.fixture(scope="module")
def model(folder: Path) -> Decoder:
    return decoder_of(
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), linear.plain
    )


def read(head: Path, model: Decoder) -> EagleHead:
    return read_head("tiny", head, EagleConfig(eagle=str(head)), model, "none")


def same(one: EagleHead, other: EagleHead) -> bool:
    states, ids = torch.randn(3, 64), torch.tensor([4, 9, 200])
    [layer], [others] = one.inner.layers, other.inner.layers
    both = torch.randn(3, 128)
    assert one.targets is not None
    assert other.targets is not None
    return (
        torch.equal(layer.qkv(both), others.qkv(both))
        and torch.equal(one.inner.head(states), other.inner.head(states))
        and torch.equal(one.inner.embedding[ids], other.inner.embedding[ids])
        and torch.equal(one.targets, other.targets)
        and one.layers == other.layers
        and one.adds_to_normed == other.adds_to_normed
    )


def test_all_ways_of_writing_one_come_to_the_same(
    folder: Path, model: Decoder, tmp_path: Path
) -> None:
    config = head_config(config_in(folder), norm_before_residual=True)
    weights = random_weights(config)
    usual = read(write_head(tmp_path / "usual", config, weights), model)
    assert usual.layers == (0, 1, 3)

    pickled = tmp_path / "pickled"
    write_head(pickled, config, weights)
    (pickled / "model.safetensors").unlink()
    torch.save(weights, pickled / "pytorch_model.bin")
    assert same(read(pickled, model), usual)

    own = ("draft_vocab_size", "norm_before_residual", "eagle_aux_hidden_state_layer_ids")
    speculators = {name: config[name] for name in own} | {
        "architectures": ["Eagle3Speculator"],
        "transformer_layer_config": {
            name: value for name, value in config.items() if name not in (*own, "architectures")
        },
    }
    named = {name.replace("midlayer.", "layers.0."): each for name, each in weights.items()}
    assert same(read(write_head(tmp_path / "speculators", speculators, named), model), usual)


def test_where_it_does_not_say_of_which_layers_they_are_the_usual_ones(
    folder: Path, model: Decoder, tmp_path: Path
) -> None:
    config = head_config(config_in(folder), eagle_aux_hidden_state_layer_ids=None)
    assert read(write_head(tmp_path, config, random_weights(config)), model).layers == (2, 4, 5)


def without(weights: Weights, name: str) -> Weights:
    return {key: each for key, each in weights.items() if key != name}


WRONG: dict[str, tuple[dict[str, Any], Any, str]] = {
    "another model": ({"vocab_size": 399}, None, "model of 399 tokens, and this one has 400"),
    "no head": ({"architectures": ["LlamaForCausalLM"]}, None, "that of 'LlamaForCausalLM', and"),
    "another layer": ({"model_type": "qwen3"}, None, "layers of the kind 'qwen3'"),
    "two layers": ({"num_hidden_layers": 2}, None, "it has 2 layers"),
    "deeper": ({"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}, None, "and the model has 8"),
    "other sizes": ({"intermediate_size": 96}, None, "gate_proj.weight' is .128, 64., and"),
    "narrower states": (
        {},
        lambda found: {**found, "fc.weight": torch.zeros(64, 96)},
        "64 numbers of 96",
    ),
    "a weight too few": ({}, lambda found: without(found, "norm.weight"), "'norm.weight' is miss"),
    "a weight too many": (
        {},
        lambda found: {**found, "layers.1.mlp.up_proj.weight": torch.zeros(4, 4)},
        "has not: layers.1.mlp.up_proj.weight",
    ),
    "unknown tokens": ({}, lambda found: without(found, "d2t"), "'d2t' is missing"),
    "tokens twice": (
        {},
        lambda found: {**found, "d2t": -torch.arange(150)},
        "does not say which tokens its 150 are",
    ),
    "embeddings of others": (
        {},
        lambda found: {**found, "embed_tokens.weight": torch.zeros(400, 32)},
        "its embeddings are .400, 32.",
    ),
    "no numbers": ({"draft_vocab_size": "many"}, None, "its config.json makes no sense"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_go_together_is_refused(
    folder: Path, model: Decoder, tmp_path: Path, name: str
) -> None:
    others, change, words = WRONG[name]
    usual = head_config(config_in(folder))
    weights = random_weights(usual)
    if change is not None:
        weights = change(weights)
    write_head(tmp_path, usual | others, weights)
    with pytest.raises(ProviderStartError, match=words) as raised:
        read(tmp_path, model)
    assert str(raised.value).startswith(f"'{tmp_path}' can't guess for 'tiny', as ")
    assert "name an EAGLE-3 head that was trained for this model" in str(raised.value)


@pytest.mark.parametrize("damage", ["config", "weights", "nothing"])
def test_damaged_ones_say_so(folder: Path, model: Decoder, tmp_path: Path, damage: str) -> None:
    config = head_config(config_in(folder))
    write_head(tmp_path, config, random_weights(config))
    if damage == "config":
        (tmp_path / "config.json").write_text('{"architectures": ')
    elif damage == "weights":
        (tmp_path / "model.safetensors").write_bytes(b"\x09" * 40)
    else:
        (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ProviderStartError, match="can't be read"):
        read(tmp_path, model)


def test_a_model_that_guesses_can_not_be_made_for_has_no_head(folder: Path, tmp_path: Path) -> None:
    made = make_architecture(tmp_path / "model", "phi3 with longrope")
    config = head_config(config_in(made), eagle_aux_hidden_state_layer_ids=[0, 1, 2])
    head = write_head(tmp_path / "head", config, random_weights(config))
    settings = TorchConfig.model_validate(
        {"device": "cpu", "quantization": "none", "speculation": {"eagle": str(head)}}
    )
    with pytest.raises(ProviderStartError, match="can't have an EAGLE-3 head, since it turns"):
        load("tiny", made, settings, None)


def test_it_is_counted_with_its_model(folder: Path, tmp_path: Path) -> None:
    config = head_config(config_in(folder))
    head = write_head(tmp_path, config, random_weights(config))
    settings = {"device": "cpu", "quantization": "none", "max_sequences": 2}
    speculation = {"eagle": str(head), "quantization": "none"}
    configs = [
        TorchConfig.model_validate(each)
        for each in (settings, settings | {"speculation": speculation})
    ]
    without_head, with_head = (
        footprint("tiny", folder, each, 32, generates=True) for each in configs
    )
    assert with_head.weights - without_head.weights == 4 * count_weights(head).all
    # Two of 32 tokens, of keys and values in float32.
    more = with_head.kv_cache - without_head.kv_cache
    assert more == 2 * (32 + 16) * 2 * config["num_key_value_heads"] * config["head_dim"] * 4
    loaded = load("tiny", folder, configs[1], 32)
    assert loaded.cache_bytes == with_head.kv_cache * 32 // (32 + 16)
    assert with_head.needs["cpu"] >= with_head.weights + with_head.kv_cache
    assert with_head.parks == 0


def test_its_config_is_that_of_a_template() -> None:
    made = TorchConfig.model_validate(json.loads('{"speculation": {"eagle": "hf:a/b"}}'))
    assert isinstance(made.speculation, EagleConfig)
    assert (made.speculation.tokens, made.speculation.quantization) == (4, "auto")
