"""Layers of transformers' models as ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch

from providers.local.torch_engine.loading.architectures import Architecture
from providers.local.torch_engine.loading.recurrences import recurrence_of
from providers.local.torch_engine.loading.weights.attention import (
    AttentionReader,
    head_dim_of,
    heads_of,
)
from providers.local.torch_engine.loading.weights.mlps import MLPReader
from providers.local.torch_engine.loading.weights.modules import ModuleReader
from providers.local.torch_engine.loading.weights.ropes import order_of, rope_of, turned_layers
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Layer, SideInput
from providers.local.torch_engine.model.norm import Norm
from providers.local.torch_engine.model.rope import rope_parameters


class Layers:
    """The layers of a transformers model, which are used up by reading them.

    Args:
        inner: what has them.
        config: of the text.
        own: what the architecture has of its own.
        make: of the matrix products.

    Attributes:
        first: the first attention.
        usual: the heads of most layers.
        ropes: those by which layers turn.
    """

    def __init__(self, inner: Any, config: Any, own: Architecture, make: linear.Make) -> None:
        self._inner, self._config, self._own, self._make = inner, config, own, make
        self.first = next(each.self_attn for each in inner.layers if hasattr(each, "self_attn"))
        self.usual = heads_of(config, self.first)
        self._kinds = _layer_kinds(config)
        parameters = rope_parameters(config)
        # There may be parameters for a kind of which there is no layer.
        self._names = [name for name in parameters if name in self._kinds or not name]
        rotary = getattr(inner, own.name("rotary_emb"))
        self.ropes = [rope_of(rotary, name, parameters[name], config) for name in self._names]
        self._turned = turned_layers(config, own, self._kinds, self.ropes)
        self._looked_at = _looked_at(config, self._kinds)
        self._residuals = float(config.residual_multiplier) if own.has_multipliers else 1.0

    def all(self) -> list[Layer]:
        """Each of them as ours."""
        # FBGEMM packs on a single core.
        on_cpu = self._inner.embed_tokens.weight.device.type == "cpu"
        at_once = torch.get_num_threads() if on_cpu else 1
        with ThreadPoolExecutor(at_once, thread_name_prefix="packing") as threads:
            return list(threads.map(self._read, range(len(self._inner.layers))))

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _read(self, index: int) -> Layer:
        config, kind = self._config, self._kinds[index]
        module = self._inner.layers[index]
        rope = self._names.index(kind) if len(self._names) > 1 else 0
        if not self._turned[index]:
            rope = len(self.ropes) - 1
        # Layers that keep a state have no heads to be in order.
        attention = getattr(module, "self_attn", self.first)
        order = order_of(config, head_dim_of(attention), self.ropes[rope])
        alike = config, self._own, self._make, self._residuals
        reader = _LayerReader(*alike, AttentionReader(*alike, order, self.usual), MLPReader(*alike))
        made = reader.layer(
            module,
            kind,
            rope=rope,
            window=config.sliding_window if kind == "sliding_attention" else None,
            chunk=config.attention_chunk_size if kind == "chunked_attention" else None,
            looks_at=self._looked_at[index],
        )
        # The weights of a few layers are there twice, never all.
        self._inner.layers[index] = torch.nn.Identity()
        return made


@dataclass(frozen=True, slots=True)
class _LayerReader(ModuleReader):
    """Reads one layer.

    Attributes:
        attention: reads what it has of that.
        mlps: reads its MLP, or its experts.
    """

    attention: AttentionReader
    mlps: MLPReader

    def layer(
        self,
        module: Any,
        kind: str,
        *,
        rope: int,
        window: int | None,
        chunk: int | None,
        looks_at: int | None,
    ) -> Layer:
        """transformers' layer as ours."""
        norms = self.own.norms
        return Layer(
            **{"query_norm": None, "key_norm": None, **self._mixer(module, kind)},
            input_norm=self.named_norm(module, norms.before_attention),
            attention_norm=self.named_norm(module, norms.after_attention),
            mlp_input_norm=self._mlp_input_norm(module),
            mlp=self.mlps.of_layer(module),
            mlp_norm=self.named_norm(module, norms.after_mlp),
            rope=rope,
            window=window,
            chunk=chunk,
            beside=norms.are_shared,
            looks_at=looks_at,
            side=self._side(module),
            scale=float(getattr(module, "layer_scalar", 1.0)),
            ahead=window is not None or not self.own.ahead_in_windows_only,
        )

    def _mixer(self, module: Any, kind: str) -> dict[str, Any]:
        """What `Layer` has of its attention, or of what is in its place."""
        if kind in self.own.recurrences:
            return self._recurrence(module, kind)
        return self.attention.parts(module.self_attn)

    def _recurrence(self, module: Any, kind: str) -> dict[str, Any]:
        """What `Layer` has where it keeps a state of each sequence."""
        read = recurrence_of(self.own.recurrences[kind], module, self.config)
        return {
            "qkv": self.make(read.weight, read.bias),
            "out": self.adding(read.out),
            "recurrence": read.recurrence,
        }

    def _side(self, module: Any) -> SideInput | None:
        if not hasattr(module, "per_layer_input_gate"):
            return None
        return SideInput(
            self.make(module.per_layer_input_gate.weight.detach(), None),
            self.make(module.per_layer_projection.weight.detach(), None),
            self.norm(module.post_per_layer_input_norm),
        )

    def _mlp_input_norm(self, module: Any) -> Norm | None:
        norm = self.named_norm(module, self.own.norms.before_mlp)
        if norm is None or not hasattr(module, "experts"):
            return norm
        # All that is beside each other weighs it for itself.
        return replace(norm, weight=torch.ones_like(norm.weight))


def _looked_at(config: Any, kinds: list[str]) -> list[int | None]:
    """Of each layer, the one whose keys and values it looks at; None for its own."""
    count = getattr(config, "num_kv_shared_layers", None) or 0
    first = len(kinds) - count
    last = {kind: at for at, kind in enumerate(kinds[:first])}
    return [None] * first + [last[kind] for kind in kinds[first:]]


def _layer_kinds(config: Any) -> list[str]:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return list(kinds)
    windowed = getattr(config, "sliding_window", None) is not None
    kind = "sliding_attention" if windowed else "full_attention"
    return [kind] * config.num_hidden_layers
