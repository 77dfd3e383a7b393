"""MTP weights are read with their model, whole or not at all, and counted with it."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from safetensors.torch import load_file, save_file

from providers.base import ProviderStartError
from providers.local.torch_engine.config import MTPConfig, TorchConfig
from providers.local.torch_engine.heads.mtp import MTPHead
from providers.local.torch_engine.heads.mtp_checkpoint import read_heads
from providers.local.torch_engine.loading.footprint import footprint
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.scheduling.measured_guesser import PLACES
from tests.unit.providers.local.engines import make_architecture
from tests.unit.providers.local.torch_engine.formats.checkpoints import set_quantization
from tests.unit.providers.local.torch_engine.formats.test_fp8 import by_blocks
from tests.unit.providers.local.torch_engine.heads.mtp_heads import HYBRID, publish

SETTINGS = {"device": "cpu", "quantization": "none", "max_sequences": 2, "kv_cache": 4e6}


def config_of(speculation: Any) -> TorchConfig:
    return TorchConfig.model_validate({**SETTINGS, "speculation": speculation})


def refusal(folder: Path) -> str:
    with pytest.raises(ProviderStartError) as raised:
        load("tiny", folder, config_of({"mtp": True}), None)
    return str(raised.value)


@pytest.mark.parametrize("name", ["llama", HYBRID])
def test_a_checkpoint_without_says_so(tmp_path: Path, name: str) -> None:
    words = refusal(make_architecture(tmp_path, name))
    assert words.startswith(
        "The model 'tiny' can't guess by MTP, as its files have no MTP weights:"
    )
    assert "leave 'speculation' out of the template" in words


@pytest.mark.parametrize(
    ("name", "part", "words"),
    [
        ("deepseek_v3", "enorm.weight", "not whole: they lack enorm.weight"),
        ("deepseek_v3", "shared_head.norm.weight", "they lack model.norm.weight"),
        (HYBRID, "self_attn.o_proj.weight", "they lack model.layers.0.self_attn.o_proj.weight"),
        (HYBRID, "fc.weight", "('mtp.*') are named as none that are read here"),
    ],
)
def test_what_is_not_whole_is_refused(tmp_path: Path, name: str, part: str, words: str) -> None:
    file = publish(tmp_path, name).folder / "model.safetensors"
    start = "mtp." if name == HYBRID else "model.layers.2."
    kept = {
        each: tensor
        for each, tensor in load_file(file).items()
        if not (each.startswith(start) and each.endswith(f".{part}"))
    }
    save_file(kept, file, {"format": "pt"})
    assert words in refusal(file.parent)


def test_a_model_that_guesses_can_not_be_made_for_says_so(tmp_path: Path) -> None:
    folder = make_architecture(tmp_path, "phi3 with longrope")
    assert "can't guess by MTP" in refusal(folder)


def test_a_checkpoint_with_such_weights_loads_without_asking_for_them(tmp_path: Path) -> None:
    """Wherever its layers end: transformers knows that of the models that were published."""
    folder = publish(tmp_path, "deepseek_v3").folder
    assert load("tiny", folder, config_of("none"), None).head is None


def test_it_is_counted_with_its_model(tmp_path: Path) -> None:
    folder = publish(tmp_path, HYBRID).folder
    plain, guessing = (
        footprint("tiny", folder, config_of(each), 32, generates=True)
        for each in ("none", {"mtp": True})
    )
    assert guessing.weights == plain.weights
    assert guessing.parks == 0
    loaded = load("tiny", folder, config_of({"mtp": True}), 32)
    assert loaded.states is not None
    states = loaded.states.states
    # Two that run, four for each that are kept, and seven to go back to.
    assert states.slots == 2 + 8 + 7
    # Of 32 tokens in whole blocks, in the model's layer with attention, and in the head's.
    assert loaded.cache_bytes == states.nbytes + 2 * 32 * 2 * (2 * 2 * 32) * 4
    assert guessing.kv_cache == states.nbytes + 2 * (32 + 16) * 2 * (2 * 2 * 32) * 4


@pytest.mark.parametrize("name", ["deepseek_v3", HYBRID])
def test_several_are_counted_with_their_model(tmp_path: Path, name: str) -> None:
    folder = publish(tmp_path, name, heads=3).folder
    plain, guessing = (
        footprint("tiny", folder, config_of(each), 32, generates=True)
        for each in ("none", {"mtp": True})
    )
    loaded = [load("tiny", folder, config_of(each), 32) for each in ("none", {"mtp": True})]
    head = loaded[1].head
    assert head is not None
    # Of two sequences of 32 tokens.
    own = sum(layer.nbytes for layer in head._cache.layers) * 4 // (4 + PLACES)
    assert len(head._cache.layers) == 3
    states = [0 if each.states is None else each.states.states.nbytes for each in loaded]
    assert loaded[1].cache_bytes - loaded[0].cache_bytes == own + states[1] - states[0]
    # A bound for a sequence that may begin amid a block.
    assert guessing.kv_cache - plain.kv_cache >= own + states[1] - states[0]


def test_it_shares_what_is_the_models(tmp_path: Path) -> None:
    folder = publish(tmp_path, "deepseek_v3").folder
    decoder = load("tiny", folder, config_of("none"), None).weights
    [head] = read_heads("tiny", folder, decoder, linear.MAKES["none"])  # type: ignore[arg-type]
    assert isinstance(head, MTPHead)
    assert head.inner.embedding is decoder.embedding  # type: ignore[attr-defined]
    assert head.inner.head is decoder.head  # type: ignore[attr-defined]
    assert head.layers == (2,)


def test_its_config_is_that_of_a_template() -> None:
    made = config_of({"mtp": True}).speculation
    assert isinstance(made, MTPConfig)
    assert made.tokens == 2


@pytest.mark.parametrize("name", ["deepseek_v3", HYBRID])
def test_quantized_ones_are_widened_as_the_models_are(tmp_path: Path, name: str) -> None:
    """As DeepSeek publishes them: FP8, each block with a scale."""
    folder = publish(tmp_path, name).folder
    plain = load("tiny", folder, config_of("none"), None).weights
    [expected] = read_heads("tiny", folder, plain, linear.MAKES["none"])  # type: ignore[arg-type]
    file = folder / "model.safetensors"
    weights, block = load_file(file), (64, 32)
    for each in [each for each in weights if "proj.weight" in each and "kv_b" not in each]:
        stem = each.removesuffix(".weight")
        stored, _ = by_blocks(stem, weights.pop(each), *block)
        weights |= stored
    save_file(weights, file, {"format": "pt"})
    settings = {"quant_method": "fp8", "weight_block_size": list(block)}
    set_quantization(folder, settings | {"activation_scheme": "dynamic"})
    decoder = load("tiny", folder, config_of("none"), None).weights
    [head] = read_heads("tiny", folder, decoder, linear.MAKES["none"])  # type: ignore[arg-type]
    inputs = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found, wanted = (each.inner.layers[0].qkv(inputs) for each in (head, expected))
    assert torch.cosine_similarity(found.flatten(), wanted.flatten(), 0) > 0.99
