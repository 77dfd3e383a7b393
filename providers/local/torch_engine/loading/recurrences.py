"""Layers of transformers' models that keep a state of each sequence, read as ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch

from providers.local.torch_engine.model.experts import Rows
from providers.local.torch_engine.model.recurrent.convolution import Convolution
from providers.local.torch_engine.model.recurrent.gated_delta import GatedDelta
from providers.local.torch_engine.model.recurrent.short_conv import ShortConv
from providers.local.torch_engine.model.recurrent.states import StateShape
from providers.local.torch_engine.model.recurrent.step_states import Recurrence

Kind = Literal["gated_delta", "short_conv"]
"""What there may be in the place of attention."""


class ReadRecurrence(NamedTuple):
    """What was read of a layer.

    Attributes:
        weight: of its first product, `[outputs, hidden]`.
        bias: of that, if there is one.
        recurrence: what is computed of it.
        out: transformers' last product.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    recurrence: Recurrence
    out: Any


def recurrence_of(kind: Kind, layer: Any, config: Any) -> ReadRecurrence:
    """What transformers' `layer` has in the place of attention.

    Args:
        kind: of the layer.
        layer: whose config says that it is of this kind.
        config: of the text.
    """
    return _READ[kind](layer, config)


def state_shape_of(kind: Kind, config: Any) -> StateShape:
    """What such a layer keeps of a sequence, told by the config of the text."""
    return _SHAPES[kind](config)


# Gated DeltaNet: Qwen3-Next, Qwen 3.5 and 3.6 -----------------------------------------------------


def _gated_delta(layer: Any, config: Any) -> ReadRecurrence:
    module = layer.linear_attn
    if hasattr(module, "in_proj_qkvz"):
        weight, gates = _ungrouped(module, config)
    else:
        weight = torch.cat([module.in_proj_qkv.weight.detach(), module.in_proj_z.weight.detach()])
        gates = torch.cat([module.in_proj_b.weight.detach(), module.in_proj_a.weight.detach()])
    recurrence = GatedDelta(
        key_heads=config.linear_num_key_heads,
        value_heads=config.linear_num_value_heads,
        key_dim=config.linear_key_head_dim,
        value_dim=config.linear_value_head_dim,
        convolution=_convolution(module.conv1d),
        gates=Rows(gates.clone()),
        rate=-module.A_log.detach().float().exp(),
        rate_bias=module.dt_bias.detach().float().clone(),
        norm=module.norm.weight.detach().float().clone(),
        epsilon=config.rms_norm_eps,
    )
    return ReadRecurrence(weight, None, recurrence, module.out_proj)


def _ungrouped(module: Any, config: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Qwen3-Next has what belongs to a head of keys side by side, behind it the next one's; here
    there are all queries, all keys, all values, and so on."""
    heads = config.linear_num_key_heads
    each = config.linear_num_value_heads // heads
    values = each * config.linear_value_head_dim
    sizes = [config.linear_key_head_dim, config.linear_key_head_dim, values, values]
    parts = module.in_proj_qkvz.weight.detach().unflatten(0, (heads, -1)).split(sizes, 1)
    gates = module.in_proj_ba.weight.detach().unflatten(0, (heads, -1)).split([each, each], 1)
    weight, both = (torch.cat([part.flatten(0, 1) for part in all_]) for all_ in (parts, gates))
    return weight, both


def _gated_delta_shape(config: Any) -> StateShape:
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    return StateShape(
        (config.linear_conv_kernel_dim - 1, 2 * keys + values),
        (
            config.linear_num_value_heads,
            config.linear_key_head_dim,
            config.linear_value_head_dim,
        ),
    )


# Short convolutions: LFM2 -------------------------------------------------------------------------


def _short_conv(layer: Any, config: Any) -> ReadRecurrence:
    module = layer.conv
    bias = module.in_proj.bias
    return ReadRecurrence(
        module.in_proj.weight.detach(),
        None if bias is None else bias.detach(),
        ShortConv(_convolution(module.conv)),
        module.out_proj,
    )


def _short_conv_shape(config: Any) -> StateShape:
    return StateShape((config.conv_L_cache - 1, config.hidden_size))


def _convolution(module: Any) -> Convolution:
    bias = module.bias
    return Convolution(
        module.weight.detach().squeeze(1).T.float().contiguous(),
        None if bias is None else bias.detach().float().clone(),
    )


_READ: Mapping[Kind, Callable[[Any, Any], ReadRecurrence]] = {
    "gated_delta": _gated_delta,
    "short_conv": _short_conv,
}
_SHAPES: Mapping[Kind, Callable[[Any], StateShape]] = {
    "gated_delta": _gated_delta_shape,
    "short_conv": _short_conv_shape,
}
