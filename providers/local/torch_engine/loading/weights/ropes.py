"""What heads turn by, and the order of their dimensions in which those lie side by side that turn
together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from providers.local.torch_engine.loading.architectures import (
    ARCHITECTURES,
    Architecture,
    turns_neighbours,
)
from providers.local.torch_engine.model.rope import Rope


def rope_of(module: Any, kind: str, parameters: dict[str, Any], config: Any) -> Rope:
    """What layers of a kind turn by; of all layers where the kind has no name."""
    prefix = f"{kind}_" if kind else ""
    frequencies = getattr(module, f"{prefix}inv_freq").float()
    long = None
    if parameters["rope_type"] == "longrope":
        short_factor, long_factor = (
            torch.tensor(parameters[name], dtype=torch.float32, device=frequencies.device)
            for name in ("short_factor", "long_factor")
        )
        long = frequencies * short_factor / long_factor
    growth = parameters.get("llama_4_scaling_beta")
    return Rope(
        frequencies,
        float(getattr(module, f"{prefix}attention_scaling")),
        long,
        query_growth=growth,
        query_length=parameters.get("original_max_position_embeddings") if growth else None,
        axes=_axes(config, getattr(module, "mrope_section", None)),
    )


def _axes(config: Any, sections: Sequence[int] | None) -> list[int] | None:
    """By which of three positions each pair turns: in time, in rows and in columns (M-RoPE,
    arXiv:2409.12191); None where there is one.

    Args:
        config: of the text.
        sections: how many pairs turn by each.
    """
    if sections is None:
        return None
    if ARCHITECTURES[config.model_type].in_threes:
        axes = [0] * sum(sections)
        for axis in (1, 2):
            places = slice(axis, 3 * sections[axis], 3)
            axes[places] = [axis] * len(axes[places])
        return axes
    return [axis for axis, pairs in enumerate(sections) for _ in range(pairs)]


def turned_layers(
    config: Any, own: Architecture, kinds: list[str], ropes: list[Rope]
) -> list[bool]:
    """Of each layer, whether it turns by its rope; else it does by one added to `ropes`, which
    leaves all as it is, or makes queries longer alone."""
    turned = [bool(each) for each in getattr(config, "no_rope_layers", None) or [1] * len(kinds)]
    if own.turns_windows_only and getattr(config, "sliding_window", None) is not None:
        turned = [kind == "sliding_attention" for kind in kinds]
    if not all(turned):
        still = Rope(torch.zeros_like(ropes[0].frequencies), 1.0)
        if getattr(config, "attn_temperature_tuning", False):
            still = replace(
                still,
                query_growth=float(config.attn_scale),
                query_length=int(config.floor_scale),
                query_start=1,
            )
        ropes.append(still)
    return turned


def order_of(config: Any, head_dim: int, rope: Rope) -> torch.Tensor:
    """The order of a head's dimensions in which those that turn together lie side by side.

    Most of transformers' models have the first half of them and then the second.
    """
    device = rope.frequencies.device
    if turns_neighbours(config):
        return torch.arange(head_dim, device=device)
    pairs = torch.arange(rope.dimensions, device=device).view(2, -1).T.flatten()
    return torch.cat([pairs, torch.arange(rope.dimensions, head_dim, device=device)])


def in_order(weight: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The rows of `weight` `[heads * head_dim, ...]`, each head's in `order`."""
    return weight.unflatten(0, (-1, len(order)))[:, order].flatten(0, 1)
