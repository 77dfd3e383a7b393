"""Tiny models with heads that guess for them, and what a head should say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from tests.tiny_models import make_model, make_tokenizer

LAYERS = (0, 1, 3)
"""Of a model of four, those whose inputs its head takes."""

Weights = dict[str, torch.Tensor]


def head_config(model: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """The `config.json` of a head for a model with this config."""
    return {
        **{name: model[name] for name in ("vocab_size", "hidden_size", "intermediate_size")},
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500.0,
        "max_position_embeddings": 64,
        "draft_vocab_size": 150,
        "eagle_aux_hidden_state_layer_ids": list(LAYERS),
        **others,
    }


def random_weights(config: Mapping[str, Any], seed: int = 5, *, own_table: bool = True) -> Weights:
    """Of a head with this config, as a model of the same width has it."""
    torch.manual_seed(seed)
    size, heads = config["hidden_size"], config["head_dim"]
    count, between = config["draft_vocab_size"], config["intermediate_size"]
    queries, keys = (config[f"num_{kind}_heads"] * heads for kind in ("attention", "key_value"))
    shapes = {
        "fc.weight": (size, len(LAYERS) * size),
        "midlayer.self_attn.q_proj.weight": (queries, 2 * size),
        "midlayer.self_attn.k_proj.weight": (keys, 2 * size),
        "midlayer.self_attn.v_proj.weight": (keys, 2 * size),
        "midlayer.self_attn.o_proj.weight": (size, queries),
        "midlayer.mlp.gate_proj.weight": (between, size),
        "midlayer.mlp.up_proj.weight": (between, size),
        "midlayer.mlp.down_proj.weight": (size, between),
        "lm_head.weight": (count, size),
    }
    found = {name: torch.randn(shape) * 0.15 for name, shape in shapes.items()}
    norms = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    for name in (*(f"midlayer.{norm}.weight" for norm in norms), "norm.weight"):
        found[name] = 1 + 0.2 * torch.randn(size)
    if own_table:
        found["embed_tokens.weight"] = torch.randn(config["vocab_size"], size) * 0.3
    if count != config["vocab_size"]:
        known = torch.randperm(config["vocab_size"])[:count].sort().values
        found["d2t"] = known - torch.arange(count)
        found["t2d"] = torch.zeros(config["vocab_size"], dtype=torch.bool)
        found["t2d"][known] = True
    return found


def write_head(folder: Path, config: Mapping[str, Any], weights: Weights) -> Path:
    """Write a head to `folder`, which is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: each.contiguous() for name, each in weights.items()}, folder / "model.safetensors"
    )
    return folder


def config_in(folder: Path) -> dict[str, Any]:
    """A model's or a head's."""
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def random_pair(folder: Path, **others: Any) -> tuple[Path, Path]:
    """A model, and a head that knows nothing of it."""
    model = make_model(folder / "model", num_hidden_layers=4)
    config = head_config(config_in(model), **others)
    return model, write_head(folder / "head", config, random_weights(config))


def telling_pair(folder: Path, mixing: float = 0.0015) -> tuple[Path, Path]:
    """A model that says what follows by the last token mostly, and a head that knows that.

    The head looks at the last token alone, by the turns of queries and keys that are all the same,
    and hands on its embedding, of which it makes logits as the model does.

    Args:
        folder: where to.
        mixing: how much of what is before makes the model say something else.
    """
    settings = make_tokenizer(folder / "model") | {"num_hidden_layers": 4, "rms_norm_eps": 1e-5}
    torch.manual_seed(2)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    size = settings["hidden_size"]
    with torch.no_grad():
        table = torch.randn(settings["vocab_size"], size)
        # One number is the same in all, and all are as long.
        table[:, 0] = 0
        table *= math.sqrt(size - 9) / table.norm(dim=1, keepdim=True)
        table[:, 0] = 3
        model.model.embed_tokens.weight.copy_(table)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(mixing)
            layer.mlp.down_proj.weight.mul_(mixing)
    model.save_pretrained(folder / "model")
    config = head_config(
        config_in(folder / "model"),
        num_key_value_heads=4,
        draft_vocab_size=settings["vocab_size"],
        rope_theta=100.0,
        norm_before_residual=True,
    )
    weights = {name: torch.zeros_like(each) for name, each in random_weights(config).items()}
    for name in weights:
        # Of what it made of the token before it takes nothing.
        if "norm" in name and "hidden_norm" not in name:
            weights[name] += 1
    constant = torch.zeros(size, 2 * size)
    # The first half of a head's numbers are the one side of what turns.
    constant.unflatten(0, (4, -1))[:, :8, 0] = 8
    weights |= {
        "midlayer.self_attn.q_proj.weight": constant,
        "midlayer.self_attn.k_proj.weight": constant.clone(),
        "midlayer.self_attn.v_proj.weight": torch.eye(size, 2 * size),
        "midlayer.self_attn.o_proj.weight": torch.eye(size),
        "norm.weight": model.model.norm.weight.detach().clone(),
        "lm_head.weight": model.lm_head.weight.detach().clone(),
        "embed_tokens.weight": table,
    }
    return folder / "model", write_head(folder / "head", config, weights)


def expected_logits(
    model: Path,
    config: Mapping[str, Any],
    weights: Weights,
    tokens: Sequence[int],
    guesses: Sequence[int],
) -> torch.Tensor:
    """What a head says after `tokens`, and after each of `guesses` behind them, of its own tokens:
    `[1 + guesses, draft_vocab]`; written from the paper, with nothing kept in between.

    Args:
        model: the folder of the model.
        config: of the head; its layers count what comes in.
        weights: of the head.
        tokens: of which the model knows all but the last.
        guesses: what the head goes on with.
    """
    computed = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    with torch.no_grad():
        ids = torch.tensor([list(tokens[:-1])])
        inputs = computed(ids, output_hidden_states=True).hidden_states
        taken = torch.cat([inputs[layer][0] for layer in LAYERS], -1)
        table = weights.get("embed_tokens.weight", computed.get_input_embeddings().weight)
        states = taken @ weights["fc.weight"].T
        following, said = list(tokens[1:]), []
        for guess in (*guesses, None):
            made = _layer(config, weights, states, table[following])
            normed = _norm(made[-1:], weights["norm.weight"])
            said.append(normed @ weights["lm_head.weight"].T)
            states = torch.cat([states, made[-1:]])
            following.append(guess)
        return torch.cat(said)


def _norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def _layer(
    config: Mapping[str, Any], weights: Weights, states: torch.Tensor, embedded: torch.Tensor
) -> torch.Tensor:
    def weight(name: str) -> torch.Tensor:
        return weights[f"midlayer.{name}.weight"]

    count, size, heads = len(states), config["head_dim"], config["num_attention_heads"]
    normed = _norm(states, weight("hidden_norm"))
    residual = normed if config.get("norm_before_residual") else states
    both = torch.cat([_norm(embedded, weight("input_layernorm")), normed], -1)
    queries, keys, values = (
        (both @ weight(f"self_attn.{kind}_proj").T).view(count, -1, size).transpose(0, 1)
        for kind in "qkv"
    )
    angles = torch.arange(count)[:, None] * config["rope_theta"] ** (
        -torch.arange(0, size, 2).float() / size
    )
    cos, sin = (turn(angles).repeat(1, 2) for turn in (torch.cos, torch.sin))
    queries, keys = (
        each * cos + torch.cat([-each[..., size // 2 :], each[..., : size // 2]], -1) * sin
        for each in (queries, keys)
    )
    shared = heads // len(keys)
    keys, values = (each.repeat_interleave(shared, 0) for each in (keys, values))
    scores = queries @ keys.transpose(1, 2) / math.sqrt(size)
    scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), -torch.inf)
    found = (scores.softmax(-1) @ values).transpose(0, 1).flatten(1)
    hidden = residual + found @ weight("self_attn.o_proj").T
    inner = _norm(hidden, weight("post_attention_layernorm"))
    gate = torch.nn.functional.silu(inner @ weight("mlp.gate_proj").T)
    return hidden + (gate * (inner @ weight("mlp.up_proj").T)) @ weight("mlp.down_proj").T
