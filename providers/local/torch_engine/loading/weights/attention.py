"""Attention of transformers' layers as ours: heads in our order, merged into one product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from providers.local.torch_engine.loading.weights.modules import ModuleReader, owned
from providers.local.torch_engine.loading.weights.ropes import in_order
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Heads
from providers.local.torch_engine.model.latent import Latent
from providers.local.torch_engine.model.norm import Norm

HEAD_NORMS = {
    "query": ("q_norm", "q_layernorm", "query_layernorm", "qk_norm"),
    "key": ("k_norm", "k_layernorm", "key_layernorm", "qk_norm"),
    "value": ("v_norm",),
}
"""What transformers calls the norms of heads."""


@dataclass(frozen=True, slots=True)
class AttentionReader(ModuleReader):
    """Reads the attention of one layer.

    Attributes:
        order: of a head's dimensions, see `order_of`.
        usual: the heads of most layers.
    """

    order: torch.Tensor
    usual: Heads

    def parts(self, attention: Any) -> dict[str, Any]:
        """What `Layer` has of it."""
        if hasattr(attention, "kv_b_proj"):
            return self._low_rank(attention)
        return self._full(attention)

    def _full(self, attention: Any) -> dict[str, Any]:
        """What `Layer` has where keys and values are computed at once."""
        sinks = getattr(attention, "sinks", None)
        queries = getattr(attention, "q_proj", None)
        heads = heads_of(self.config, attention)
        return {
            **self._norms_of_heads(attention),
            "qkv": self._qkv(attention),
            "out": self.adding(getattr(attention, self.own.name("o_proj"))),
            "sinks": None if sinks is None else owned(sinks),
            "turned_first": self.own.turned_first,
            "heads": None if heads == self.usual else heads,
            "gates_attention": queries is not None and self._has_gates(queries.weight),
        }

    def _low_rank(self, attention: Any) -> dict[str, Any]:
        """What `Layer` has where keys and values are made of a few numbers."""
        return {
            "qkv": self._latent_qkv(attention),
            "out": self.adding(attention.o_proj),
            "latent": self._latent(attention),
        }

    def _norms_of_heads(self, attention: Any) -> dict[str, Norm]:
        """Of queries, keys and values: of each head, or of all together, by the names that `Layer`
        has."""
        found: dict[str, Norm] = {}
        for what, names in HEAD_NORMS.items():
            module = next(
                (getattr(attention, name) for name in names if hasattr(attention, name)), None
            )
            if module is None:
                continue
            if not hasattr(module, "weight"):
                dtype = attention.q_proj.weight.dtype
                ones = torch.ones(len(self.order), device=self.order.device)
                found[f"{what}_norm"] = Norm(ones, self.config.rms_norm_eps, dtype)
                continue
            norm = self.norm(module)
            is_row = len(norm.weight) != len(self.order)
            weight = in_order(norm.weight, self.order)
            found[f"{what}_row_norm" if is_row else f"{what}_norm"] = replace(norm, weight=weight)
        return found

    def _qkv(self, attention: Any) -> linear.Linear:
        config, head_dim = self.config, len(self.order)
        if hasattr(attention, "qkv_proj"):
            queries = config.num_attention_heads * head_dim
            keys = config.num_key_value_heads * head_dim
            weights = attention.qkv_proj.weight.detach().split([queries, keys, keys])
            biases: Sequence[torch.Tensor] = ()
        else:
            names = ("q_proj", "k_proj", "v_proj")
            projections = [getattr(attention, name, None) for name in names]
            if projections[2] is None:
                # Gemma 4: the same product, or another layer's.
                projections[2] = projections[1]
            there = [each for each in projections if each is not None]
            weights = tuple(each.weight.detach() for each in there)
            biases = tuple(each.bias.detach() for each in there if each.bias is not None)
        bias = self._merged(biases) if biases else None
        return self.make(self._merged(weights), bias)

    def _merged(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Queries, keys and values, and what gates what is found, which Qwen has beside the queries
        of each head."""
        queries, *others = parts
        gates: list[torch.Tensor] = []
        if self._has_gates(queries):
            both = queries.unflatten(0, (self.config.num_attention_heads, -1)).chunk(2, 1)
            queries, gate = (each.flatten(0, 1) for each in both)
            gates = [gate]
        turned = (in_order(each, self.order) for each in (queries, *others[:1]))
        return torch.cat([*turned, *others[1:], *gates])

    def _has_gates(self, queries: torch.Tensor) -> bool:
        """Whether there is a gate beside each of these queries."""
        return bool(len(queries) == 2 * self.config.num_attention_heads * len(self.order))

    def _latent_qkv(self, attention: Any) -> linear.Linear:
        """Queries, or what they are made of, and the row: see `Latent`."""
        low = attention.q_proj is None
        queries = attention.q_a_proj if low else attention.q_proj
        rows = attention.kv_a_proj_with_mqa
        rank = self.config.kv_lora_rank

        def merged(of_queries: torch.Tensor, of_rows: torch.Tensor) -> torch.Tensor:
            of_queries = of_queries if low else self._turned_first(of_queries)
            return torch.cat([of_queries, in_order(of_rows[rank:], self.order), of_rows[:rank]])

        bias = None
        if rows.bias is not None:
            none = queries.weight.new_zeros(len(queries.weight))
            own = none if queries.bias is None else queries.bias.detach()
            bias = merged(own, rows.bias.detach())
        return self.make(merged(queries.weight.detach(), rows.weight.detach()), bias)

    def _turned_first(self, weight: torch.Tensor) -> torch.Tensor:
        """The rows of `weight` `[heads * (unturned + turned), ...]`, what is turned first."""
        by_head = weight.unflatten(0, (self.config.num_attention_heads, -1))
        unturned = by_head.shape[1] - len(self.order)
        both = [by_head[:, unturned:][:, self.order], by_head[:, :unturned]]
        return torch.cat(both, 1).flatten(0, 1)

    def _latent(self, attention: Any) -> Latent:
        config = self.config
        both = attention.kv_b_proj.weight.detach().unflatten(0, (config.num_attention_heads, -1))
        keys, values = both.split([config.qk_nope_head_dim, config.v_head_dim], 1)
        low = attention.q_proj is None
        return Latent(
            row_norm=self.norm(attention.kv_a_layernorm),
            to_rows=keys.contiguous().clone(),
            to_values=values.transpose(1, 2).contiguous(),
            queries_norm=self.norm(attention.q_a_layernorm) if low else None,
            queries=self.make(self._turned_first(attention.q_b_proj.weight.detach()), None)
            if low
            else None,
        )


def head_dim_of(attention: Any) -> int:
    """Of what is turned in queries and keys, and what is beside that in the same heads."""
    return int(getattr(attention, "head_dim", None) or attention.qk_rope_head_dim)


def heads_of(config: Any, attention: Any) -> Heads:
    """How many heads a layer has, and of which size."""
    queries = config.num_attention_heads
    return Heads(queries, queries // attention.num_key_value_groups, head_dim_of(attention))
