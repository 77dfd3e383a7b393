"""Tiny models whose checkpoints have MTP weights, and what a head of these should say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.unit.providers.local.engines import make_architecture

NAMES = {
    "deepseek_v3": ("model.layers.2.", "", "enorm", "hnorm", "eh_proj", "shared_head.norm"),
    "qwen3_next": (
        *("mtp.", "layers.0.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
    ),
}
"""What checkpoints have before all names, before those of the layer, and call the rest."""

KINDS = {
    "deepseek_v3": NAMES["deepseek_v3"],
    "glm4_moe": NAMES["deepseek_v3"],
    "glm4_moe_lite": NAMES["deepseek_v3"],
    "qwen3_next": NAMES["qwen3_next"],
    "qwen3_5_text": NAMES["qwen3_next"],
    "qwen3_5_moe_text": NAMES["qwen3_next"],
}
HYBRID = "qwen3_5_text"

ADDS = ("o_proj", "out_proj", "down_proj")
"""The products that have what a layer adds."""


class Published(NamedTuple):
    """A model with a head.

    Attributes:
        folder: of the model.
        layer: transformers' model of the head's layer alone.
        parts: its other weights, by the names that `KINDS` has for them.
    """

    folder: Path
    layer: Any
    parts: dict[str, torch.Tensor]


def publish(folder: Path, name: str, telling: float | None = None) -> Published:
    """Write a model with a head.

    Args:
        folder: where to.
        name: of the architecture.
        telling: None for one of random numbers. Else the model says what follows by the last token
            mostly, and the head knows that: so much of what is before makes it say something else.
    """
    model = make_architecture(folder / "model", name)
    start, before_layer, *names = KINDS[name]
    settings = json.loads((model / "config.json").read_text())
    torch.manual_seed(7)
    for kinds, kind in (("layer_types", "full_attention"), ("mlp_layer_types", "sparse")):
        if kinds in settings:
            settings[kinds] = [kind]
    config = transformers.AutoConfig.for_model(
        settings.pop("model_type"),
        **settings | {"num_hidden_layers": 1, "first_k_dense_replace": 0, "dtype": None},
    )
    layer = transformers.AutoModelForCausalLM.from_config(config)
    size = settings["hidden_size"]
    adds_one = start == "mtp."
    with torch.no_grad():
        for each, parameter in layer.named_parameters():
            if "norm" in each:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif telling is not None and any(part in each for part in ADDS):
                parameter.mul_(telling)
    usual = torch.zeros(size) if adds_one else torch.ones(size)
    noise = 0.2 if telling is None else 0.0
    embedding_norm, state_norm = (usual + noise * torch.randn(size) for _ in range(2))
    projection = 0.15 * torch.randn(size, 2 * size)
    file = model / "model.safetensors"
    weights = load_file(file)
    if telling is not None:
        projection = torch.eye(size, 2 * size)
        for each in weights:
            if any(part in each for part in ADDS):
                weights[each] = weights[each] * telling
        torch.manual_seed(3)
        weights["model.embed_tokens.weight"] = torch.randn(settings["vocab_size"], size)
        with torch.no_grad():
            layer.model.norm.weight.copy_(weights["model.norm.weight"])
    parts = dict(zip(names, (embedding_norm, state_norm, projection), strict=False))
    layer.save_pretrained(folder / "layer")
    beside = load_file(folder / "layer" / "model.safetensors")
    begin = "model.layers.0."
    for each, tensor in beside.items():
        if each.startswith(begin):
            weights[f"{start}{before_layer}{each.removeprefix(begin)}"] = tensor
    weights[f"{start}{names[3]}.weight"] = beside["model.norm.weight"]
    weights |= {f"{start}{part}.weight": tensor for part, tensor in parts.items()}
    if start != "mtp.":
        # As they are published: the model's own, once more.
        head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
        weights[f"{start}shared_head.head.weight"] = head.clone()
        weights[f"{start}embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file({key: each.contiguous() for key, each in weights.items()}, file, {"format": "pt"})
    return Published(model, layer.eval(), parts)


def expected_logits(
    published: Published, tokens: Sequence[int], guesses: Sequence[int]
) -> torch.Tensor:
    """What the head says after `tokens`, and after each of `guesses` behind them:
    `[1 + guesses, vocab]`; written from DeepSeek's paper, with nothing kept in between.

    Args:
        published: the model with its head.
        tokens: of which the model knows all but the last.
        guesses: what the head goes on with.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(
        published.folder, dtype=torch.float32
    ).eval()
    embedding_norm, state_norm, projection = published.parts.values()
    first = next(iter(published.parts))
    adds_one = first == "pre_fc_norm_embedding"
    epsilon = model.config.rms_norm_eps

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * (weight + adds_one)

    with torch.no_grad():
        states = model.model(torch.tensor([list(tokens[:-1])])).last_hidden_state[0]
        table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        following, said = list(tokens[1:]), []
        for guess in (*guesses, None):
            both = torch.cat([norm(table[following], embedding_norm), norm(states, state_norm)], -1)
            inputs = (both @ projection.T)[None]
            made = published.layer.model(inputs_embeds=inputs, use_cache=False)
            last = made.last_hidden_state[0, -1:]
            said.append(last @ head.T)
            states = torch.cat([states, last])
            following.append(guess)
        return torch.cat(said)
