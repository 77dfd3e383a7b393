"""A transformers model's weights as a `Decoder`: which architectures, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder, Layer, Norm, Rope
from providers.local.torch_engine.model.rope_lengths import rope_lengths, rope_parameters
from providers.local.torch_engine.model.torch_step import ACTIVATIONS

ARCHITECTURES = frozenset({"llama", "qwen2", "qwen3", "mistral", "gemma3_text", "phi3"})
"""`model_type`s that `decoder_of` knows."""

ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn", "longrope"})
"""Those whose frequencies do not depend on how long the sequence is, but for LongRoPE's, which has
two sets of them."""


def why_not(config: Any) -> str | None:
    """What keeps a model with this config from being a `Decoder`; None if nothing does."""
    if config.model_type not in ARCHITECTURES:
        return (
            f"its architecture '{config.model_type}' is none of {', '.join(sorted(ARCHITECTURES))}"
        )
    for rope in rope_parameters(config).values():
        if rope["rope_type"] not in ROPE_TYPES:
            return f"its rotary embeddings are of the type '{rope['rope_type']}'"
    if len(rope_lengths(config)) > 1:
        return "its rotary embeddings change at several lengths"
    if _activation_name(config) not in ACTIVATIONS:
        return f"its activation is '{_activation_name(config)}'"
    if getattr(config, "attn_logit_softcapping", None) or getattr(
        config, "use_bidirectional_attention", False
    ):
        return "its attention is of an unusual kind"
    return None


def decoder_of(model: Any, make: linear.Make) -> Decoder:
    """The weights of a transformers causal language model, merged; `model` is used up by it.

    Args:
        model: on its device; its `config` passed `why_not`.
        make: of the matrix products.

    Returns:
        The model; tell it how far its positions reach.
    """
    config = model.config
    inner = model.model
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    names = list(rope_parameters(config))
    ropes = [_rope(inner.rotary_emb, name, each) for name, each in rope_parameters(config).items()]
    kinds = _layer_kinds(config)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def layer(index: int) -> Layer:
        module = inner.layers[index]
        rope = names.index(kinds[index]) if len(names) > 1 else 0
        order = _pairwise(head_dim, ropes[rope].dimensions, module)
        window = config.sliding_window if kinds[index] == "sliding_attention" else None
        made = _layer(module, config, make, order, rope, window)
        # The weights of a few layers are there twice, never all.
        inner.layers[index] = torch.nn.Identity()
        return made

    # FBGEMM packs on a single core.
    at_once = torch.get_num_threads() if inner.embed_tokens.weight.device.type == "cpu" else 1
    with ThreadPoolExecutor(at_once, thread_name_prefix="packing") as threads:
        layers = list(threads.map(layer, range(len(inner.layers))))
    embedding = _own(inner.embed_tokens.weight)
    scale = float(getattr(inner.embed_tokens, "embed_scale", torch.tensor(1.0)))
    return Decoder(
        embedding=embedding,
        embedding_scale=scale,
        layers=layers,
        ropes=ropes,
        norm=_norm(inner.norm, config),
        head=make(model.lm_head.weight.detach(), None),
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        attention_scale=getattr(config, "query_pre_attn_scalar", head_dim) ** -0.5,
        activation=_activation_name(config),
        soft_cap=getattr(config, "final_logit_softcapping", None),
        long_after=next(iter(rope_lengths(config)), None),
    )


def _layer(
    module: Any, config: Any, make: linear.Make, order: torch.Tensor, rope: int, window: int | None
) -> Layer:
    attention, mlp = module.self_attn, module.mlp
    head_dim = len(order)
    if hasattr(attention, "qkv_proj"):
        queries = config.num_attention_heads * head_dim
        keys = config.num_key_value_heads * head_dim
        weights = attention.qkv_proj.weight.detach().split([queries, keys, keys])
        biases: Sequence[torch.Tensor] = ()
    else:
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        weights = tuple(each.weight.detach() for each in projections)
        biases = tuple(each.bias.detach() for each in projections if each.bias is not None)
    qkv = torch.cat([*(_reorder(each, order) for each in weights[:2]), weights[2]])
    qkv_bias = None
    if biases:
        qkv_bias = torch.cat([*(_reorder(each, order) for each in biases[:2]), biases[2]])
    if hasattr(mlp, "gate_up_proj"):
        gate_up, gate_up_bias = mlp.gate_up_proj.weight.detach(), None
    else:
        gate_up = torch.cat([mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()])
        gate_up_bias = None
        if mlp.gate_proj.bias is not None:
            gate_up_bias = torch.cat([mlp.gate_proj.bias.detach(), mlp.up_proj.bias.detach()])
    sandwich = hasattr(module, "pre_feedforward_layernorm")
    query_norm, key_norm = (
        _norm(getattr(attention, name), config, order) if hasattr(attention, name) else None
        for name in ("q_norm", "k_norm")
    )
    return Layer(
        input_norm=_norm(module.input_layernorm, config),
        qkv=make(qkv, qkv_bias),
        query_norm=query_norm,
        key_norm=key_norm,
        out=make(attention.o_proj.weight.detach(), _bias(attention.o_proj)),
        attention_norm=_norm(module.post_attention_layernorm, config) if sandwich else None,
        mlp_input_norm=_norm(
            module.pre_feedforward_layernorm if sandwich else module.post_attention_layernorm,
            config,
        ),
        gate_up=make(gate_up, gate_up_bias),
        down=make(mlp.down_proj.weight.detach(), _bias(mlp.down_proj)),
        mlp_norm=_norm(module.post_feedforward_layernorm, config) if sandwich else None,
        rope=rope,
        window=window,
    )


def _bias(module: Any) -> torch.Tensor | None:
    return None if module.bias is None else module.bias.detach()


def _own(weight: torch.Tensor) -> torch.Tensor:
    """The weight, not as a part of the file that transformers has mapped: that can go then."""
    return weight.detach().clone() if weight.device.type == "cpu" else weight.detach()


def _norm(module: Any, config: Any, order: torch.Tensor | None = None) -> Norm:
    weight = _own(module.weight).float()
    if config.model_type == "gemma3_text":
        weight = 1 + weight
    if order is not None:
        weight = weight[order]
    return Norm(weight, config.rms_norm_eps, module.weight.dtype)


# Rotary embeddings --------------------------------------------------------------------------------


def _rope(module: Any, kind: str, parameters: dict[str, Any]) -> Rope:
    prefix = f"{kind}_" if kind else ""
    frequencies = getattr(module, f"{prefix}inv_freq").float()
    long = None
    if parameters["rope_type"] == "longrope":
        short_factor, long_factor = (
            torch.tensor(parameters[name], dtype=torch.float32, device=frequencies.device)
            for name in ("short_factor", "long_factor")
        )
        long = frequencies * short_factor / long_factor
    return Rope(frequencies, float(getattr(module, f"{prefix}attention_scaling")), long)


def _pairwise(head_dim: int, rotated: int, module: Any) -> torch.Tensor:
    """The order of a head's dimensions in which those that turn together lie side by side.

    transformers has the first half of them and then the second.
    """
    device = module.input_layernorm.weight.device
    pairs = torch.arange(rotated, device=device).view(2, -1).T.flatten()
    return torch.cat([pairs, torch.arange(rotated, head_dim, device=device)])


def _reorder(weight: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The rows of `weight` `[heads * head_dim, ...]`, each head's in `order`."""
    return weight.unflatten(0, (-1, len(order)))[:, order].flatten(0, 1)


# What configs call by several names ---------------------------------------------------------------


def _activation_name(config: Any) -> str:
    return str(getattr(config, "hidden_activation", None) or config.hidden_act)


def _layer_kinds(config: Any) -> list[str]:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return list(kinds)
    windowed = getattr(config, "sliding_window", None) is not None
    kind = "sliding_attention" if windowed else "full_attention"
    return [kind] * config.num_hidden_layers
