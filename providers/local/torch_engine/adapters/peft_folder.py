"""An adapter's folder as PEFT writes it, read for a model.

There are `adapter_config.json` and `adapter_model.safetensors`
(https://huggingface.co/docs/peft/developer_guides/checkpoint).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from providers.base import ProviderStartError
from providers.local.torch_engine.adapters.low_rank import LowRank, Place, TorchAdapter
from providers.local.torch_engine.loading.weights import in_order, order_of
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder, Layer
from providers.local.torch_engine.model.experts import Experts
from providers.local.torch_engine.model.gated_mlp import GatedMLP

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"

PLACES: Mapping[str, Place] = {
    "self_attn.q_proj": "qkv",
    "self_attn.k_proj": "qkv",
    "self_attn.v_proj": "qkv",
    "self_attn.qkv_proj": "qkv",
    "self_attn.o_proj": "out",
    "mlp.gate_proj": "gate_up",
    "mlp.up_proj": "gate_up",
    "mlp.gate_up_proj": "gate_up",
    "mlp.down_proj": "down",
}
"""The modules that may be adapted, by their names in transformers' layers."""

_NAME = re.compile(
    r"base_model\.model\.(?P<before>(?:\w+\.)*)layers\.(?P<layer>\d+)\.(?P<module>[\w.]+)"
    r"\.lora_(?P<which>[AB])(?:\.default)?\.weight"
)

_UNSUPPORTED: Mapping[str, str] = {
    "use_dora": "DoRA (`use_dora`)",
    "modules_to_save": "whole modules of its own (`modules_to_save`)",
    "lora_bias": "biases of its own (`lora_bias`)",
    "fan_in_fan_out": "weights that lie the other way round (`fan_in_fan_out`)",
    "layer_replication": "layers that are repeated (`layer_replication`)",
    "target_parameters": "parameters that are no modules (`target_parameters`)",
    "trainable_token_indices": "embeddings of its own (`trainable_token_indices`)",
    "alora_invocation_tokens": "tokens that turn it on (`alora_invocation_tokens`)",
    "use_qalora": "QALoRA (`use_qalora`)",
    "use_bdlora": "BD-LoRA (`use_bdlora`)",
    "kasa_config": "KaSA (`kasa_config`)",
    "monteclora_config": "MonteCLoRA (`monteclora_config`)",
    "arrow_config": "a choice among adapters (`arrow_config`)",
}
"""Settings of PEFT's `LoraConfig` that change what is computed, and what they mean."""

_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""What `init_lora_weights` may begin with where training began by changing the base's weights."""


@dataclass(frozen=True, eq=False)
class AdapterReader:
    """Reads adapters for one model.

    Attributes:
        model: the provider's name for it, for messages.
        decoder: its weights.
        config: makes transformers' config of its text, which not every model has an adapter for.
    """

    model: str
    decoder: Decoder
    config: Callable[[], Any]

    def read(self, source: str, folder: Path) -> TorchAdapter:
        """The adapter in `folder`.

        Args:
            source: what a template calls it, for messages.
            folder: where it is.

        Raises:
            ProviderStartError: it is none, has what is not supported, or is for another model.
        """
        try:
            settings = json.loads((folder / CONFIG).read_text("utf-8"))
            with safe_open(folder / WEIGHTS, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError as error:
            raise ProviderStartError(
                f"The adapter '{source}' is not whole: there is no {error.filename or WEIGHTS}."
                f" PEFT's `save_pretrained` writes {CONFIG} and {WEIGHTS} into one folder."
            ) from error
        except (OSError, ValueError, SafetensorError) as error:
            raise self._refused(source, f"its files can't be read ({error})") from error
        if not isinstance(settings, dict):
            raise self._refused(source, f"its {CONFIG} holds no settings")
        if (reason := unsupported(settings)) is not None:
            raise self._refused(source, reason)
        try:
            return self._adapter(source, settings, tensors)
        except ValueError as error:
            raise self._refused(source, str(error)) from error

    def _refused(self, source: str, reason: str) -> ProviderStartError:
        return ProviderStartError(
            f"The adapter '{source}' can't be used with the model '{self.model}': {reason}."
        )

    def _adapter(
        self, source: str, settings: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
    ) -> TorchAdapter:
        layers: dict[Layer, dict[Place, list[LowRank]]] = {}
        found, config = 0, self.config()
        for (number, module), (down, up) in _pairs(tensors).items():
            if number >= len(self.decoder.layers):
                raise ValueError(
                    f"it adapts layer {number}, and the model has {len(self.decoder.layers)}, so"
                    " that it was trained for another model"
                )
            layer = self.decoder.layers[number]
            name = f"layers.{number}.{module}"
            scaled = up.float() * _scaling(settings, name, len(down))
            parts = self._parts(config, layer, number, module, down, scaled)
            layers.setdefault(layer, {}).setdefault(PLACES[module], []).extend(parts)
            found += down.numel() + up.numel()
        if not layers:
            raise ValueError(f"its {WEIGHTS} holds no weights")
        return TorchAdapter(source, layers, found * self.decoder.embedding.dtype.itemsize)

    def _parts(
        self,
        config: Any,
        layer: Layer,
        number: int,
        module: str,
        down: torch.Tensor,
        up: torch.Tensor,
    ) -> list[LowRank]:
        what = _not_adapted(config, layer, module)
        if what is not None:
            raise ValueError(f"it adapts {what} (layers.{number}.{module}), which is not supported")
        decoder = self.decoder
        own = decoder.heads_of(layer)
        hidden, heads = decoder.embedding.shape[1], own.queries * own.size
        keys = own.keys * own.size if layer.looks_at is None else 0
        inner = layer.mlp.intermediate if isinstance(layer.mlp, GatedMLP) else 0
        gates = heads if layer.gates_attention else 0
        inputs, first, outputs = {
            "self_attn.q_proj": (hidden, 0, heads + gates),
            "self_attn.k_proj": (hidden, heads, keys),
            "self_attn.v_proj": (hidden, heads + keys, keys),
            "self_attn.qkv_proj": (hidden, 0, heads + 2 * keys),
            "self_attn.o_proj": (heads, 0, hidden),
            "mlp.gate_proj": (hidden, 0, inner),
            "mlp.up_proj": (hidden, inner, inner),
            "mlp.gate_up_proj": (hidden, 0, 2 * inner),
            "mlp.down_proj": (inner, 0, hidden),
        }[module]
        wanted, has = (outputs, inputs), (len(up), down.shape[1])
        if has != wanted:
            raise ValueError(
                f"it was trained for another model: its {module} of layer {number} is"
                f" {has[0]} x {has[1]}, and the model's is {wanted[0]} x {wanted[1]}"
            )
        # As the model's own weights are kept, see `loading.weights`.
        order = order_of(config, own.size, decoder.ropes[layer.rope]).to(up.device)
        if gates and module == "self_attn.q_proj":
            both = up.unflatten(0, (own.queries, -1)).chunk(2, 1)
            queries, gate = (each.flatten(0, 1) for each in both)
            shared, behind = self._product(down), heads + 2 * keys
            return [
                LowRank(shared, self._product(in_order(queries, order)), 0, heads),
                LowRank(shared, self._product(gate), behind, behind + gates),
            ]
        if module in ("self_attn.q_proj", "self_attn.k_proj"):
            up = in_order(up, order)
        elif module == "self_attn.qkv_proj":
            turned, values = up[: heads + keys], up[heads + keys :]
            up = torch.cat([in_order(turned, order), values])
        elif PLACES[module] in ("out", "down"):
            up = up * float(getattr(config, "residual_multiplier", 1.0))
        return [LowRank(self._product(down), self._product(up), first, first + outputs)]

    def _product(self, weight: torch.Tensor) -> linear.Linear:
        like = self.decoder.embedding
        return linear.in_pairs(weight.to(like.device, like.dtype).contiguous(), None)


def _not_adapted(config: Any, layer: Layer, module: str) -> str | None:
    """What a layer has in the place of `module` that takes no adapters; None where it does."""
    if isinstance(layer.mlp, Experts) and module.startswith("mlp."):
        return "experts"
    if layer.latent is not None and module.startswith("self_attn."):
        return "keys and values of low rank"
    are_one = getattr(config, "attention_k_eq_v", False) and layer.window is None
    return "keys that are values too" if are_one and module == "self_attn.k_proj" else None


def unsupported(settings: Mapping[str, Any]) -> str | None:
    """What an adapter has that is not supported; None if that is nothing.

    Args:
        settings: its `adapter_config.json`.
    """
    kind = settings.get("peft_type")
    if kind != "LORA":
        return f"it is of the kind '{kind}', and only LoRA is supported"
    for name, meaning in _UNSUPPORTED.items():
        if settings.get(name):
            return f"it has {meaning}, which is not supported"
    bias = settings.get("bias", "none")
    if bias != "none":
        return f"it has trained biases (`bias: {bias}`), which is not supported"
    begun = settings.get("init_lora_weights")
    if isinstance(begun, str) and begun.startswith(_CHANGE_THE_BASE):
        return (
            f"its training began with other weights of the model (`init_lora_weights: {begun}`);"
            " PEFT converts it when it is saved with `path_initial_model_for_weight_conversion`"
        )
    return None


_TOWERS = re.compile("vision|audio")
"""In the names of what makes something of media, which an adapter may not be for."""


def _pairs(
    tensors: Mapping[str, torch.Tensor],
) -> dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor]]:
    """Both products of each module, by its layer and its name.

    Raises:
        ValueError: a tensor is of something else, or alone.
    """
    found: dict[tuple[int, str], dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name)
        if match is None or match["module"] not in PLACES or _TOWERS.search(match["before"]):
            raise ValueError(
                f"it has '{name}', and only {', '.join(sorted(PLACES))} of language models' layers"
                " are supported"
            )
        if tensor.dim() != 2:
            raise ValueError(f"its '{name}' is no matrix")
        found.setdefault((int(match["layer"]), match["module"]), {})[match["which"]] = tensor
    pairs = {}
    for (layer, module), both in found.items():
        if len(both) != 2 or both["A"].shape[0] != both["B"].shape[1]:
            raise ValueError(f"the two matrices of {module} of layer {layer} don't fit together")
        pairs[layer, module] = (both["A"], both["B"])
    return pairs


def _scaling(settings: Mapping[str, Any], name: str, rank: int) -> float:
    """What a module's product is multiplied by.

    Args:
        settings: of the adapter.
        name: of the module.
        rank: that its weights have.

    Raises:
        ValueError: the settings say another rank, or none.
    """
    try:
        wanted = int(_by_pattern(settings, "rank_pattern", name, settings["r"]))
        alpha = float(_by_pattern(settings, "alpha_pattern", name, settings["lora_alpha"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its {CONFIG} says no rank ('r') or no 'lora_alpha'") from error
    if wanted != rank:
        raise ValueError(f"its {name} has the rank {rank}, and its {CONFIG} says {wanted}")
    return alpha / math.sqrt(rank) if settings.get("use_rslora") else alpha / rank


def _by_pattern(settings: Mapping[str, Any], patterns: str, name: str, otherwise: Any) -> Any:
    """The value of the first pattern that `name` ends with, as PEFT finds it."""
    for pattern, value in (settings.get(patterns) or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", name):
            return value
    return otherwise
