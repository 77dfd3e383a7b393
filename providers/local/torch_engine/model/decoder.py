"""The forward pass of decoder-only transformers, over tokens of many sequences at once.

One function for all of the architectures in `architectures.py`, which differ in a few places only:
biases, where norms are, the activation, sliding windows, MLPs of which a token takes some, and
layers that keep a state of each sequence in place of attention.
What is between the matrix products is a `ForwardStep`'s: PyTorch's operations or Triton kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from providers.local.torch_engine.model.experts import Experts
from providers.local.torch_engine.model.gated_mlp import UNGATED, GatedMLP
from providers.local.torch_engine.model.kv_cache import CacheShape, KVCache, RowShape
from providers.local.torch_engine.model.latent import Latent
from providers.local.torch_engine.model.linear import Linear
from providers.local.torch_engine.model.norm import Norm
from providers.local.torch_engine.model.recurrent.states import StateShape
from providers.local.torch_engine.model.recurrent.step_states import Recurrence
from providers.local.torch_engine.model.rope import LongRope, Rope

if TYPE_CHECKING:
    from providers.local.torch_engine.model.forward_step import ForwardStep


@dataclass(frozen=True, slots=True, eq=False)
class SideInputs:
    """What each layer takes of a token's own embedding, computed for all layers at once (Gemma 4).

    Attributes:
        table: another embedding of each token, `[vocab_size, layers * size]`.
        table_scale: what that is multiplied by.
        projection: the embedding's part, `[tokens, hidden]` to `[tokens, layers * size]`.
        norm: of that, for each layer, `[size]`.
        scale: what the sum of both is multiplied by.
        for_media: the token whose embedding of `table` those have that stand for parts of media.
    """

    table: torch.Tensor
    table_scale: float
    projection: Linear
    norm: Norm
    scale: float
    for_media: int = 0

    def __call__(
        self, token_ids: torch.Tensor, embedded: torch.Tensor, step: ForwardStep
    ) -> torch.Tensor:
        """What each layer takes: `[layers, tokens, size]`.

        Args:
            token_ids: `[tokens]`.
            embedded: of them, `[tokens, hidden]`, or what is read in the place of that.
            step: where they are, and how they are computed.
        """
        size = len(self.norm.weight)
        if step.seen is not None:
            token_ids = step.seen.named(token_ids, self.for_media)
        own = self.table.index_select(0, token_ids).to(embedded.dtype) * self.table_scale
        projected = self.projection(embedded)
        normed = step.norm(projected.view(-1, size), self.norm).view(own.shape)
        both = (normed + own) * self.scale
        return both.unflatten(-1, (-1, size)).transpose(0, 1).contiguous()


@dataclass(frozen=True, slots=True, eq=False)
class SideInput:
    """How a layer adds its `SideInputs`.

    Attributes:
        gate: `[tokens, hidden]` to `[tokens, size]`: with the activation, how much of it is taken.
        projection: that to `[tokens, hidden]`.
        norm: of what is added.
    """

    gate: Linear
    projection: Linear
    norm: Norm


@dataclass(frozen=True, slots=True)
class Heads:
    """Of a layer's attention: how many queries, how many keys and as many values; their size."""

    queries: int
    keys: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One layer's weights, as functions. Norms are before attention and MLP, behind them, or both.

    Equal to itself alone, so that something can be kept by layer.

    Attributes:
        query_norm, key_norm: of each head, `[head_dim]`.
        query_row_norm, key_row_norm: of all heads together, `[heads * head_dim]`.
        rope: which of `Decoder.ropes`.
        window: how many tokens one looks back at, itself included; None for all.
        sinks: a score of each head, `[heads]`, that takes its share of a token's attention and adds
            nothing.
        gates_attention: whether behind queries, keys and values `qkv` gives what of each number
            that was found is let by, before the sigmoid.
        recurrence: what is computed in place of attention: `qkv` gives what it takes, and `out`
            takes what it gives. None where there is attention.
        chunk: a sequence is cut after each so many tokens, and none looks back beyond a cut; None
            where it isn't.
        beside: the MLP takes what attention takes, and not what that has added.
        turned_first: queries and keys are normalised once they are turned.
        latent: what makes keys and values of a few numbers; None where they are computed at once.
        value_norm: of each head's values, `[head_dim]`.
        heads: where those are others than the decoder's.
        looks_at: the layer whose keys and values this one looks at; it has none of its own then.
        side: what it takes of each token's own embedding, once its MLP has added to that.
        scale: what all that has been added so far is multiplied by in the end.
        ahead: whether tokens look at those behind them of the same medium; see `Scores`.
    """

    input_norm: Norm | None
    qkv: Linear
    query_norm: Norm | None
    key_norm: Norm | None
    out: Linear
    attention_norm: Norm | None
    mlp_input_norm: Norm | None
    mlp: GatedMLP | Experts
    mlp_norm: Norm | None
    rope: int
    window: int | None
    query_row_norm: Norm | None = None
    key_row_norm: Norm | None = None
    sinks: torch.Tensor | None = None
    gates_attention: bool = False
    recurrence: Recurrence | None = None
    chunk: int | None = None
    beside: bool = False
    turned_first: bool = False
    latent: Latent | None = None
    value_norm: Norm | None = None
    heads: Heads | None = None
    looks_at: int | None = None
    side: SideInput | None = None
    scale: float = 1.0
    ahead: bool = True

    @property
    def norms(self) -> tuple[Norm | None, ...]:
        """Of the layer and of its heads, in the order in which they are computed."""
        return (
            self.input_norm,
            self.query_norm,
            self.key_norm,
            self.attention_norm,
            self.mlp_input_norm,
            self.mlp_norm,
        )


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
        activation: of the MLP's gate, as transformers' configs call it; of `UNGATED`, of an MLP
            without.
        score_cap: what bounds the scores of the attention, if something does.
        soft_cap: what bounds the logits, if something does.
        long_after: the most tokens of a sequence that is not long, where `Rope.long` is others'.
        side_inputs: what layers take of a token's own embedding, where they do.
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
    activation: str
    score_cap: float | None = None
    soft_cap: float | None = None
    long_after: int | None = None
    side_inputs: SideInputs | None = None

    @property
    def unusual(self) -> str | None:
        """What it has that kernels don't compute, as far as `reach` was told; None for nothing."""
        positions = len(self.ropes[0].rotations)
        layers = self.layers
        kinds = {
            "attention with bounded scores": self.score_cap is not None,
            "attention with sinks": any(each.sinks is not None for each in layers),
            "queries that grow": any(each.query_scales is not None for each in self.ropes),
            "keys and values of low rank": any(each.latent is not None for each in layers),
            "attention in chunks": any(each.chunk and positions > each.chunk for each in layers),
            "layers of several shapes": any(
                each.heads is not None or each.looks_at is not None for each in layers
            ),
            "norms of what is turned": any(each.turned_first for each in layers),
            "MLPs without gates": self.activation in UNGATED,
            "norms of values": any(each.value_norm is not None for each in layers),
            "norms around the mean": self.norm.centred,
            "inputs for each layer": self.side_inputs is not None,
        }
        return next((name for name, there in kinds.items() if there), None)

    def heads_of(self, layer: Layer) -> Heads:
        """Of one of its layers."""
        return layer.heads or Heads(self.heads, self.kv_heads, self.head_dim)

    @property
    def cache_shape(self) -> CacheShape:
        """What a token takes in its cache."""
        return CacheShape([self._rows_of(each) for each in self.layers], self.embedding.dtype)

    def _rows_of(self, layer: Layer) -> RowShape | int:
        if layer.looks_at is not None:
            return layer.looks_at
        if layer.recurrence is not None:
            return RowShape(0, 0)
        if layer.latent is not None:
            rank = len(layer.latent.row_norm.weight)
            return RowShape(1, self.ropes[layer.rope].dimensions + rank)
        heads = self.heads_of(layer)
        return RowShape(2 * heads.keys, heads.size)

    @property
    def experts(self) -> list[Experts]:
        """Of its layers, of those that have some."""
        return [each.mlp for each in self.layers if isinstance(each.mlp, Experts)]

    @property
    def state_shapes(self) -> dict[Layer, StateShape]:
        """What layers keep of each sequence, of those that do."""
        return {
            each: each.recurrence.state_shape for each in self.layers if each.recurrence is not None
        }

    def reach(self, positions: int) -> LongRope | None:
        """Make what turns so many positions; what long sequences turn by, if there can be any."""
        long = self.long_after is not None and positions > self.long_after
        for rope in self.ropes:
            rope.reach(positions, long=long)
        return LongRope(self.long_after, positions) if long and self.long_after else None

    def hidden_states(
        self, token_ids: torch.Tensor, step: ForwardStep, cache: KVCache
    ) -> torch.Tensor:
        """The last layer's output for each token, `[tokens, hidden]`; writes the cache.

        Args:
            token_ids: `[tokens]`, integers, sequence by sequence.
            step: where the tokens are, and how they are computed.
            cache: where the keys and values go.
        """
        hidden = self.embedding.index_select(0, token_ids)
        if self.embedding_scale != 1:
            hidden = hidden * self.embedding_scale
        seen = step.seen
        if seen is not None:
            seen.put(hidden)
        if self.side_inputs is not None:
            sides = self.side_inputs(token_ids, hidden, step)
            step.sides = dict(zip(self.layers, sides, strict=True))
        # What the layer before adds to `hidden`.
        product: torch.Tensor | None = None
        for number, (layer, cached) in enumerate(zip(self.layers, cache.layers, strict=True)):
            if step.taken is not None:
                step.taken.look(number, hidden, product)
            product = step.layer(layer, hidden, product, cached)
            if seen is not None:
                seen.add(number, hidden)
        if step.taken is not None:
            step.taken.look(len(self.layers), hidden, product)
        return hidden if product is None else hidden.add_(product)

    def logits(self, hidden: torch.Tensor, step: ForwardStep) -> torch.Tensor:
        """The logits of rows of `hidden_states`: float32, `[rows, vocab_size]`."""
        logits = step.product(self.head, step.norm(hidden, self.norm)).float()
        if self.soft_cap is not None:
            # Whole vectors are computed otherwise than what is left over of them.
            for rows in logits.split(1) if step.apart else (logits,):
                rows.copy_(torch.tanh(rows / self.soft_cap) * self.soft_cap)
        return logits
