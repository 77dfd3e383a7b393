"""A transformers model's weights as a `Decoder`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from providers.local.torch_engine.loading.architectures import (
    ARCHITECTURES,
    Architecture,
    gate_of,
)
from providers.local.torch_engine.loading.weights.layers import Layers
from providers.local.torch_engine.loading.weights.modules import bias_of, norm_of, owned
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder, SideInputs
from providers.local.torch_engine.model.rope import rope_lengths


def decoder_of(model: Any, make: linear.Make, make_head: linear.Make | None = None) -> Decoder:
    """The weights of a transformers language model, merged; `model` is used up by it.

    Args:
        model: on its device; its `config` passed `why_not`. Of one that takes media too, the
            part that reads text.
        make: of the matrix products.
        make_head: of the last of them, which tells the tokens; as the others are if None.

    Returns:
        The model; tell it how far its positions reach.
    """
    config = model.config.get_text_config()
    inner = model.get_decoder()
    while not hasattr(inner, "layers"):
        # Llama 4's says that it is itself the one.
        inner = inner.model
    own = ARCHITECTURES[config.model_type]
    read = Layers(inner, config, own, make)
    layers = read.all()
    norm = norm_of(getattr(inner, own.name("norm")), own)
    # Of the same numbers, as the head is linear.
    norm = replace(norm, weight=norm.weight * _logit_scale(config, own))
    head = model.get_output_embeddings()
    return Decoder(
        embedding=owned(inner.embed_tokens.weight),
        embedding_scale=_embedding_scale(inner, config, own),
        layers=layers,
        ropes=read.ropes,
        norm=norm,
        head=(make_head or make)(head.weight.detach(), bias_of(head)),
        heads=read.usual.queries,
        kv_heads=read.usual.keys,
        head_dim=read.usual.size,
        attention_scale=float(read.first.scaling),
        activation=gate_of(config),
        score_cap=getattr(config, "attn_logit_softcapping", None),
        soft_cap=getattr(config, "final_logit_softcapping", None),
        long_after=next(iter(rope_lengths(config)), None),
        side_inputs=_side_inputs(inner, own, make),
    )


def _logit_scale(config: Any, own: Architecture) -> float:
    if own.has_multipliers:
        return 1 / float(config.logits_scaling)
    return float(getattr(config, "logit_scale", 1.0))


def _side_inputs(inner: Any, own: Architecture, make: linear.Make) -> SideInputs | None:
    if not hasattr(inner, "embed_tokens_per_layer"):
        return None
    table, projection = inner.embed_tokens_per_layer, inner.per_layer_model_projection
    weight = projection.weight.detach() * inner.per_layer_model_projection_scale
    return SideInputs(
        table=owned(table.weight),
        table_scale=float(table.embed_scale),
        projection=make(weight, None),
        norm=norm_of(inner.per_layer_projection_norm, own),
        scale=float(inner.per_layer_input_scale),
        for_media=int(inner.config.pad_token_id or 0),
    )


def _embedding_scale(inner: Any, config: Any, own: Architecture) -> float:
    if own.has_multipliers:
        return float(config.embedding_multiplier)
    return float(getattr(inner.embed_tokens, "embed_scale", torch.tensor(1.0)))
