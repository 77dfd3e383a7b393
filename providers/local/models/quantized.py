"""How the weights of a model folder are quantized, by its config alone: without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WHOLE_GROUPS = 32
"""Weights that share a scale in `quantization: int4`: one for a multiple of them can be kept."""

NEVER_PACKED = ("lm_head", "embed", "router", "mlp.gate", "vision", "visual", "audio")
"""Parts of names of what `int4` leaves in more bits as well, or does not read."""


def config_in(folder: Path) -> dict[str, Any]:
    """The settings of a model in Hugging Face's layout; none where they can't be read."""
    try:
        members = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return members if isinstance(members, dict) else {}


def settings_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a model's config says of how its weights are quantized; None for nothing."""
    inner = config.get("text_config")
    for holder in (config, inner if isinstance(inner, dict) else {}):
        for member in ("quantization_config", "compression_config"):
            found = holder.get(member)
            if isinstance(found, dict) and found:
                return found
    return None


def method_of(settings: Mapping[str, Any]) -> str:
    """What quantized them; old configs don't say it by name."""
    if "quant_method" in settings:
        return str(settings["quant_method"])
    if settings.get("load_in_4bit") or settings.get("load_in_8bit"):
        return "bitsandbytes"
    return "compressed-tensors" if "config_groups" in settings else "unknown"


def is_int4(folder: Path) -> bool:
    """Whether the weights in `folder` are integers of 4 bits, in order, with scales that
    `quantization: int4` keeps as they are."""
    settings = settings_of(config_in(folder))
    if settings is None or _leaves_out(settings):
        return False
    method = method_of(settings)
    if method in ("awq", "gptq"):
        bits = settings.get("bits", settings.get("w_bit"))
        size = settings.get("group_size", settings.get("q_group_size"))
        return bits == 4 and not settings.get("desc_act") and _are_whole(size)
    if method != "compressed-tensors":
        return False
    weights = _weights_in(settings)
    return bool(weights) and all(
        each.get("num_bits") == 4
        and each.get("type", "int") == "int"
        and each.get("actorder") in (None, False, "weight", "static")
        and (each.get("strategy") == "channel" or _are_whole(each.get("group_size")))
        for each in weights
    )


def is_fp8(folder: Path) -> bool:
    """Whether the weights in `folder` are FP8 (E4M3), with scales that `quantization: fp8` keeps:
    one for each output, or for all of a weight."""
    settings = settings_of(config_in(folder))
    if settings is None:
        return False
    method = method_of(settings)
    if method in ("fbgemm_fp8", "fp8"):
        return not settings.get("weight_block_size")
    weights = _weights_in(settings) if method == "compressed-tensors" else []
    return bool(weights) and all(
        each.get("num_bits") == 8
        and each.get("type") == "float"
        and each.get("strategy") in ("channel", "tensor")
        for each in weights
    )


def _weights_in(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What compressed-tensors says of weights, of each group of them."""
    return [
        group.get("weights") or {}
        for group in (settings.get("config_groups") or {}).values()
        if isinstance(group, dict)
    ]


def _leaves_out(settings: Mapping[str, Any]) -> bool:
    """Whether weights that `int4` would pack have more bits."""
    left = settings.get("modules_to_not_convert") or settings.get("ignore") or ()
    return any(all(part not in str(name) for part in NEVER_PACKED) for name in left)


def _are_whole(group_size: Any) -> bool:
    """-1 stands for all inputs of an output."""
    if not isinstance(group_size, int):
        return False
    return group_size == -1 or (group_size > 0 and group_size % WHOLE_GROUPS == 0)
