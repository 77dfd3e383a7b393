"""Tiny models with quantized weights, beside the same ones with what these stand for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from safetensors.torch import load_file, save_file

from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading.checkpoint import read_model
from providers.local.torch_engine.loading.footprint import count_weights
from providers.local.torch_engine.loading.loader import chosen_quantization
from providers.local.torch_engine.loading.weights import decoder_of
from providers.local.torch_engine.model import linear
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, reference, running

Tensors = dict[str, torch.Tensor]

Quantize = Callable[[str, torch.Tensor], tuple[Tensors, torch.Tensor]]
"""Of a weight's name, without its ending, and the weight: its tensors, and what they stand for."""

PROMPTS = [[5 + 7 * number % 300 for number in range(length)] for length in (9, 40, 70)]


class Pair(NamedTuple):
    """The same model twice.

    Attributes:
        quantized: its folder with quantized weights.
        plain: that with what they stand for, in float32.
    """

    quantized: Path
    plain: Path


def make_pair(
    folder: Path,
    quantize: Quantize,
    settings: dict[str, Any],
    *,
    shards: int = 1,
    **config: Any,
) -> Pair:
    """A random Llama whose layers' products are quantized; its head and the first layer's output
    are not, as checkpoints leave some out."""
    shape = {"hidden_size": 192, "intermediate_size": 320, "num_hidden_layers": 2}
    made = make_model(folder / "plain", **shape | config)
    pair = Pair(folder / "quantized", made)
    shutil.copytree(made, pair.quantized)
    plain = load_file(made / "model.safetensors")
    stored: Tensors = {}
    for name, weight in list(plain.items()):
        if name.endswith("_proj.weight") and "layers.0.self_attn.o_proj" not in name:
            parts, plain[name] = quantize(name.removesuffix(".weight"), weight)
            stored |= parts
        else:
            stored[name] = weight
    write(pair.plain, plain)
    write(pair.quantized, stored, shards)
    set_quantization(pair.quantized, settings)
    return pair


def write(folder: Path, tensors: Tensors, shards: int = 1) -> None:
    """The weights of a model; those that belong together may be in several files."""
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    (folder / "model.safetensors").unlink(missing_ok=True)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    weight_map = {name: f"model-{at % shards}.safetensors" for at, name in enumerate(tensors)}
    for file in sorted(set(weight_map.values())):
        inside = {name: tensors[name] for name in tensors if weight_map[name] == file}
        save_file(inside, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def set_quantization(folder: Path, settings: dict[str, Any]) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"quantization_config": settings}))


def weights_in(folder: Path, dtype: torch.dtype = torch.float32) -> Tensors:
    """What transformers' model has of them, as it is loaded here."""
    kind = transformers.AutoModelForCausalLM
    module = read_model(kind, folder, dtype=dtype)
    assert not hasattr(module.config, "quantization_config")
    return dict(module.state_dict())


async def assert_same(pair: Pair, *, tolerance: float = 0.0) -> None:
    """The weights are the same, as many as was told, and a whole engine says the same."""
    found, expected = weights_in(pair.quantized), weights_in(pair.plain)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert weight.dtype == found[name].dtype == torch.float32
        torch.testing.assert_close(found[name], weight, rtol=tolerance, atol=0, msg=name)
    half, expected_half = (weights_in(each, torch.bfloat16) for each in pair)
    assert all(tensor.dtype == torch.bfloat16 for tensor in half.values())
    for name, weight in expected_half.items():
        torch.testing.assert_close(half[name], weight, rtol=tolerance and 0.01, atol=0, msg=name)
    assert count_weights(pair.quantized) == count_weights(pair.plain)
    replies = await said(pair.quantized)
    assert replies == reference(pair.plain, PROMPTS, 8, replies)
    if linear.kernels_possible():
        assert await said(pair.quantized, "int8") == await said(pair.plain, "int8")
        # What was kept is read in its place: the second start needs no weights.
        assert (pair.quantized / ".llama-compat" / "int8.safetensors").is_file()


def assert_kept(pair: Pair) -> None:
    """On a CPU with kernels for them the integers of 4 bits are kept as they are."""
    if not linear.kernels_possible():
        return
    device, config = torch.device("cpu"), TorchConfig(device="cpu")
    assert chosen_quantization("m", pair.quantized, config, device, torch.float32) == "int4"
    packed, plain = (
        decoder_of(read_model(transformers.AutoModelForCausalLM, folder, dtype=torch.float32), make)
        for folder, make in ((pair.quantized, linear.int4), (pair.plain, linear.plain))
    )
    rows = torch.randn(3, 192, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        # The first layer's output was not packed, and no checkpoint says so.
        for product in ("qkv", "mlp.gate_up"):
            find = attrgetter(product)
            found, expected = (find(each.layers[1])(rows) for each in (packed, plain))
            # Activations have 16 bits.
            assert float((found - expected).norm() / expected.norm()) < 1e-4


async def said(folder: Path, quantization: str = "none") -> list[list[int]]:
    """What an engine says to the prompts, all asked at once."""
    async with running(folder, quantization=quantization, max_step_tokens=32) as engine:
        return [(await generate(engine, prompt, 8)).token_ids for prompt in PROMPTS]
