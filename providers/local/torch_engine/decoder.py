"""The forward pass of decoder-only transformers, over tokens of many sequences at once.

One function for all of the architectures in `weights.py`, which differ in a few places only:
biases, norms of queries and keys, norms behind attention and MLP, the activation, sliding windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from providers.local.torch_engine.attention import KVCache, SequenceSpan, attend
from providers.local.torch_engine.linear import Linear

Norm = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embeddings of one kind of layer.

    `rotations` are complex, `[positions, rotated dimensions / 2]`; they carry what attention scores
    are scaled by for long contexts. The weights are ordered so that a pair of dimensions that turns
    together lies side by side.
    """

    rotations: torch.Tensor

    @property
    def dimensions(self) -> int:
        """How many of a head's first dimensions are turned."""
        return int(2 * self.rotations.shape[1])

    def apply(self, heads: torch.Tensor, rotations: torch.Tensor) -> None:
        """Turn `heads`, `[tokens, heads, head_dim]`, by `rotations`, `[tokens, 1, pairs]`."""
        turned = heads[..., : self.dimensions]
        if turned.dtype == torch.float32:
            torch.view_as_complex(turned.unflatten(-1, (-1, 2))).mul_(rotations)
        else:
            pairs = torch.view_as_complex(turned.float().unflatten(-1, (-1, 2)))
            turned.copy_(torch.view_as_real(pairs * rotations).flatten(-2))


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights, as functions; the norms behind attention and MLP are Gemma's."""

    input_norm: Norm
    qkv: Linear
    query_norm: Norm | None
    key_norm: Norm | None
    out: Linear
    attention_norm: Norm | None
    mlp_input_norm: Norm
    gate_up: Linear
    down: Linear
    mlp_norm: Norm | None
    rope: int
    window: int | None


@dataclass(frozen=True, slots=True)
class Decoder:
    """A whole model.

    Attributes:
        embedding: `[vocab_size, hidden]`.
        embedding_scale: what embeddings are multiplied by.
        layers: in order.
        ropes: what `Layer.rope` is the index of.
        norm: the last.
        head: makes logits of its result.
        heads, kv_heads, head_dim: of the attention.
        attention_scale: of its scores.
        activation: of the MLP's gate, in place.
        soft_cap: what bounds the logits, if something does.
    """

    embedding: torch.Tensor
    embedding_scale: float
    layers: Sequence[Layer]
    ropes: Sequence[Rope]
    norm: Norm
    head: Linear
    heads: int
    kv_heads: int
    head_dim: int
    attention_scale: float
    activation: Callable[[torch.Tensor], torch.Tensor]
    soft_cap: float | None = None

    def hidden_states(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        spans: Sequence[SequenceSpan],
        cache: KVCache,
    ) -> torch.Tensor:
        """The last layer's output for each token, `[tokens, hidden]`; writes the cache.

        Args:
            token_ids: `[tokens]`, int64, sequence by sequence.
            positions: of each in its sequence.
            slots: of each in the cache.
            spans: the sequences.
            cache: where the keys and values go.
        """
        hidden = self.embedding.index_select(0, token_ids)
        if self.embedding_scale != 1:
            hidden = hidden * self.embedding_scale
        rotations = [rope.rotations[positions].unsqueeze(1) for rope in self.ropes]
        queries_end = self.heads * self.head_dim
        keys_end = queries_end + self.kv_heads * self.head_dim
        for layer, cached in zip(self.layers, cache.layers, strict=True):
            qkv = layer.qkv(layer.input_norm(hidden))
            heads = qkv.unflatten(-1, (-1, self.head_dim))
            if layer.query_norm is not None and layer.key_norm is not None:
                queries, keys = qkv[:, :queries_end], qkv[:, queries_end:keys_end]
                for part, norm in ((queries, layer.query_norm), (keys, layer.key_norm)):
                    each = part.unflatten(-1, (-1, self.head_dim))
                    each.copy_(norm(each))
            self.ropes[layer.rope].apply(
                heads[:, : self.heads + self.kv_heads], rotations[layer.rope]
            )
            cached.index_copy_(0, slots, heads[:, self.heads :])
            attended = layer.out(
                attend(
                    heads[:, : self.heads],
                    cached,
                    spans,
                    scale=self.attention_scale,
                    window=layer.window,
                )
            )
            if layer.attention_norm is not None:
                attended = layer.attention_norm(attended)
            hidden = attended.add_(hidden)
            gate, up = layer.gate_up(layer.mlp_input_norm(hidden)).chunk(2, dim=-1)
            product = layer.down(self.activation(gate).mul_(up))
            if layer.mlp_norm is not None:
                product = layer.mlp_norm(product)
            hidden = product.add_(hidden)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The logits of rows of `hidden_states`: float32, `[rows, vocab_size]`."""
        logits = self.head(self.norm(hidden)).float()
        if self.soft_cap is not None:
            logits = torch.tanh(logits / self.soft_cap) * self.soft_cap
        return logits


def rms_norm(weight: torch.Tensor, epsilon: float, dtype: torch.dtype) -> Norm:
    """Root-mean-square normalisation over the last dimension, computed in float32.

    In four small operations: `hypot` adds the epsilon under the root.
    """
    size = weight.shape[0]
    scaled = weight.float() * math.sqrt(size)
    least = torch.tensor(math.sqrt(size * epsilon), device=weight.device)

    def norm(x: torch.Tensor) -> torch.Tensor:
        values = x.float()
        length = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        return (values / torch.hypot(length, least)).mul_(scaled).to(dtype)

    return norm
