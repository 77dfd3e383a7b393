"""How the weights of a model folder are quantized, by its config alone: without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

READ = frozenset(
    {"awq", "bitsandbytes", "compressed-tensors", "fbgemm_fp8", "fp8", "gptq", "mxfp4"}
)
"""What `local::torch` reads, as configs call it (`quant_method`)."""


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
