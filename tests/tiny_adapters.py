"""LoRA adapters small enough to be made in a test, in PEFT's files, and models that they are part
of."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

EVERY_MODULE = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

Matrices = Mapping[str, tuple[torch.Tensor, torch.Tensor]]
"""Both matrices of a module, by its name in the model."""


def make_adapter(
    folder: Path,
    model: Path,
    *,
    seed: int = 0,
    rank: int = 4,
    alpha: float = 8.0,
    modules: Sequence[str] = EVERY_MODULE,
    strength: float = 0.3,
    **settings: Any,
) -> Path:
    """Write a random adapter to `folder`, which is returned.

    Args:
        folder: where to; made if it isn't there.
        model: the folder of the model that it is for.
        seed: of its weights.
        rank, alpha: `r` and `lora_alpha`.
        modules: those of `model` whose names end so are adapted.
        strength: of its weights.
        settings: in `adapter_config.json`, besides or in place of what is usual.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(model),
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": list(modules),
        "bias": "none",
        "use_dora": False,
        "modules_to_save": None,
        **settings,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    chosen = torch.Generator().manual_seed(seed)
    base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tensors = {}
    for name, module in base.named_modules():
        if name.rpartition(".")[2] in modules and isinstance(module, torch.nn.Linear):
            own = by_pattern(config.get("rank_pattern"), name, rank)
            outputs, inputs = module.weight.shape
            before = f"base_model.model.{name}"
            down = torch.randn(own, inputs, generator=chosen) * strength
            up = torch.randn(outputs, own, generator=chosen) * strength
            tensors[f"{before}.lora_A.weight"], tensors[f"{before}.lora_B.weight"] = down, up
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def by_pattern(patterns: Mapping[str, Any] | None, name: str, otherwise: Any) -> Any:
    """The value of the pattern that the module `name` has in an adapter's settings."""
    found = (value for key, value in (patterns or {}).items() if re.search(rf"{key}$", name))
    return next(found, otherwise)


def merged(folder: Path, model: Path, adapter: Path) -> Path:
    """Write the model with its adapter merged into its weights to `folder`, which is returned."""
    from safetensors.torch import load_file

    config = json.loads((adapter / "adapter_config.json").read_text())
    tensors = load_file(adapter / "adapter_model.safetensors")
    base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for name, module in base.named_modules():
        down = tensors.get(f"base_model.model.{name}.lora_A.weight")
        if down is None:
            continue
        up = tensors[f"base_model.model.{name}.lora_B.weight"]
        alpha = by_pattern(config.get("alpha_pattern"), name, config["lora_alpha"])
        divisor = math.sqrt(len(down)) if config.get("use_rslora") else len(down)
        with torch.no_grad():
            module.weight += (up.double() @ down.double() * (alpha / divisor)).float()
    base.save_pretrained(folder)
    return folder
