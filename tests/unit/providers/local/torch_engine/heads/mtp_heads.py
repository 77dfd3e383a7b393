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


class Head(NamedTuple):
    """What a model guesses by.

    Attributes:
        layer: transformers' model of the head's layer alone.
        parts: its other weights, by the names that `KINDS` has for them.
    """

    layer: Any
    parts: dict[str, torch.Tensor]


class Published(NamedTuple):
    """A model with heads."""

    folder: Path
    heads: list[Head]


def publish(folder: Path, name: str, telling: float | None = None, heads: int = 1) -> Published:
    """Write a model with heads.

    Args:
        folder: where to.
        name: of the architecture.
        telling: None for one of random numbers. Else the model says what follows by the last token
            mostly, and the heads know that: so much of what is before makes it say something else.
        heads: how many.
    """
    model = make_architecture(folder / "model", name)
    file = model / "model.safetensors"
    weights = load_file(file)
    if telling is not None:
        for each in weights:
            if any(part in each for part in ADDS):
                weights[each] = weights[each] * telling
        torch.manual_seed(3)
        table = weights["model.embed_tokens.weight"]
        weights["model.embed_tokens.weight"] = torch.randn_like(table)
    torch.manual_seed(7)
    made: list[Head] = []
    for number in range(heads):
        made.append(_head(folder / f"layer-{number}", model, weights, name, telling, made))
    save_file({key: each.contiguous() for key, each in weights.items()}, file, {"format": "pt"})
    return Published(model, made)


def _head(
    folder: Path,
    model: Path,
    weights: dict[str, torch.Tensor],
    name: str,
    telling: float | None,
    before: Sequence[Head],
) -> Head:
    """Make one more head, behind those `before`, and put its weights among the model's."""
    settings = json.loads((model / "config.json").read_text())
    start, before_layer, *names = KINDS[name]
    size, shares = settings["hidden_size"], start == "mtp."
    if shares:
        before_layer = before_layer.replace("0", str(len(before)))
    else:
        start = start.replace("2", str(2 + len(before)))
    for kinds, kind in (("layer_types", "full_attention"), ("mlp_layer_types", "sparse")):
        if kinds in settings:
            settings[kinds] = [kind]
    config = transformers.AutoConfig.for_model(
        settings.pop("model_type"),
        **settings | {"num_hidden_layers": 1, "first_k_dense_replace": 0, "dtype": None},
    )
    layer = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for each, parameter in layer.named_parameters():
            if "norm" in each:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif telling is not None and any(part in each for part in ADDS):
                parameter.mul_(telling)
        if telling is not None:
            layer.model.norm.weight.copy_(weights["model.norm.weight"])
        if shares and before:
            layer.model.norm.weight.copy_(before[0].layer.model.norm.weight)
    usual = torch.zeros(size) if shares else torch.ones(size)
    noise = 0.2 if telling is None else 0.0
    embedding_norm, state_norm = (usual + noise * torch.randn(size) for _ in range(2))
    projection = 0.15 * torch.randn(size, 2 * size)
    if telling is not None:
        projection = torch.eye(size, 2 * size)
    parts = dict(zip(names, (embedding_norm, state_norm, projection), strict=False))
    if shares and before:
        parts = before[0].parts
    layer.save_pretrained(folder)
    beside = load_file(folder / "model.safetensors")
    begin = "model.layers.0."
    for each, tensor in beside.items():
        if each.startswith(begin):
            weights[f"{start}{before_layer}{each.removeprefix(begin)}"] = tensor
    weights[f"{start}{names[3]}.weight"] = beside["model.norm.weight"]
    weights |= {f"{start}{part}.weight": tensor for part, tensor in parts.items()}
    if not shares:
        # As they are published: the model's own, once more.
        head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
        weights[f"{start}shared_head.head.weight"] = head.clone()
        weights[f"{start}embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
    return Head(layer.eval(), parts)


def expected_logits(
    published: Published, tokens: Sequence[int], guesses: Sequence[int]
) -> torch.Tensor:
    """What the heads say after `tokens`, and after each of `guesses` behind them:
    `[1 + guesses, vocab]`; written from DeepSeek's paper, with nothing kept in between.

    Args:
        published: the model with its heads, of which each says a token, and the last all others.
        tokens: of which the model knows all but the last.
        guesses: what the heads go on with.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(
        published.folder, dtype=torch.float32
    ).eval()
    adds_one = "pre_fc_norm_embedding" in published.heads[0].parts
    epsilon = model.config.rms_norm_eps

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * (weight + adds_one)

    with torch.no_grad():
        states = model.model(torch.tensor([list(tokens[:-1])])).last_hidden_state[0]
        table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        everything, said = [*tokens, *guesses], []
        for turn in range(len(guesses) + 1):
            layer, parts = published.heads[min(turn, len(published.heads) - 1)]
            embedding_norm, state_norm, projection = parts.values()
            # What is known when its turn comes, as far as there are states for it.
            following = everything[: len(tokens) + turn][-len(states) :]
            both = torch.cat([norm(table[following], embedding_norm), norm(states, state_norm)], -1)
            inputs = (both @ projection.T)[None]
            made = layer.model(inputs_embeds=inputs, use_cache=False).last_hidden_state[0]
            said.append(made[-1:] @ head.T)
            is_last = turn + 1 >= len(published.heads)
            states = torch.cat([states, made[-1:]]) if is_last else made
        return torch.cat(said)
