"""The forward pass of decoder-only transformers, over tokens of many sequences at once.

One function for all of the architectures in `architectures.py`, which differ in a few places only:
biases, where norms are, the activation, sliding windows, and MLPs of which a token takes some.
What is between the matrix products is a `ForwardStep`'s: PyTorch's operations or Triton kernels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from providers.local.torch_engine.model.experts import Experts
from providers.local.torch_engine.model.gated_mlp import GatedMLP
from providers.local.torch_engine.model.kv_cache import KVCache
from providers.local.torch_engine.model.linear import Linear
from providers.local.torch_engine.model.rope_lengths import LongRope

if TYPE_CHECKING:
    from providers.local.torch_engine.adapters.low_rank import AdaptedRows
    from providers.local.torch_engine.pictures.in_step import SeenRows


@dataclass(eq=False)
class Norm:
    """Root-mean-square normalisation over the last dimension, computed in float32.

    In four small operations: `hypot` adds the epsilon under the root.

    Attributes:
        weight: `[size]`, in float32.
        epsilon: what is added to the mean of the squares.
        dtype: of what comes out.
    """

    weight: torch.Tensor
    epsilon: float
    dtype: torch.dtype

    def __post_init__(self) -> None:
        size = self.weight.shape[0]
        self._scaled = self.weight * math.sqrt(size)
        self._least = torch.tensor(math.sqrt(size * self.epsilon), device=self.weight.device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, `[..., size]`, normalised."""
        values = x.float()
        length = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        return (values / torch.hypot(length, self._least)).mul_(self._scaled).to(self.dtype)


@dataclass(eq=False)
class Rope:
    """Rotary embeddings of one kind of layer.

    The weights are ordered so that a pair of dimensions that turns together lies side by side.

    Attributes:
        frequencies: of the pairs, `[rotated dimensions / 2]`, in float32.
        scale: what queries and keys are scaled by, for long contexts.
        axes: by which of three positions each pair turns, where there are three: in time, in rows
            and in columns.
        long: the frequencies of long sequences, where those are others.
        query_growth: how much longer queries get with each `query_length` of positions before
            them, by its logarithm; None where they don't.
        query_length: see `query_growth`.
        rotations: what turns a pair, complex, `[positions, rotated dimensions / 2]`, as far as
            `reach` was told; behind them those of long sequences, if there are any.
        query_scales: what the queries at each position are scaled by, `[positions]`; None where
            that is 1, as far as `reach` was told.
    """

    frequencies: torch.Tensor
    scale: float
    long: torch.Tensor | None = None
    query_growth: float | None = None
    query_length: int | None = None
    axes: list[int] | None = None

    def __post_init__(self) -> None:
        self.reach(0)

    def reach(self, positions: int, *, long: bool = False) -> None:
        """Make the rotations of so many positions; with `long`, those of long sequences too."""
        tables = [self._turned(self.frequencies, positions)]
        if long:
            frequencies = self.frequencies if self.long is None else self.long
            tables.append(self._turned(frequencies, positions))
        self.rotations = torch.cat(tables) if long else tables[0]
        self.query_scales: torch.Tensor | None = None
        if self.query_growth is not None and self.query_length and positions > self.query_length:
            periods = torch.arange(positions, device=self.frequencies.device) // self.query_length
            self.query_scales = 1 + self.query_growth * torch.log(1 + periods.float())

    def _turned(self, frequencies: torch.Tensor, positions: int) -> torch.Tensor:
        numbers = torch.arange(positions, device=frequencies.device)
        angles = numbers.float()[:, None] * frequencies
        return torch.polar(torch.full_like(angles, self.scale), angles)

    def turns(self, positions: torch.Tensor) -> torch.Tensor:
        """What tokens turn by, `[tokens, 1, pairs]`.

        Args:
            positions: `[tokens]`, or `[3, tokens]`, one for each axis.
        """
        if positions.dim() == 1:
            return self.rotations[positions].unsqueeze(1)
        if self.axes is None:
            return self.rotations[positions[0]].unsqueeze(1)
        rows = positions[self.axes].T
        pairs = torch.arange(len(self.axes), device=positions.device)
        return self.rotations[rows, pairs].unsqueeze(1)

    @property
    def dimensions(self) -> int:
        """How many of a head's first dimensions are turned."""
        return 2 * len(self.frequencies)

    def apply(self, heads: torch.Tensor, rotations: torch.Tensor) -> None:
        """Turn `heads`, `[tokens, heads, head_dim]`, by `rotations`, `[tokens, 1, pairs]`."""
        turned = heads[..., : self.dimensions]
        if turned.dtype == torch.float32:
            turned.view(torch.complex64).mul_(rotations)
        else:
            pairs = torch.view_as_complex(turned.float().unflatten(-1, (-1, 2)))
            turned.copy_(torch.view_as_real(pairs * rotations).flatten(-2))


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
        activation: of the MLP's gate, as transformers' configs call it.
        score_cap: what bounds the scores of the attention, if something does.
        soft_cap: what bounds the logits, if something does.
        long_after: the most tokens of a sequence that is not long, where `Rope.long` is others'.
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

    @property
    def scores_unusually(self) -> bool:
        """Whether its attention is one that kernels don't compute, as far as `reach` was told."""
        return (
            self.score_cap is not None
            or any(each.sinks is not None for each in self.layers)
            or any(each.query_scales is not None for each in self.ropes)
        )

    @property
    def has_experts(self) -> bool:
        """Whether a token takes some of its MLPs alone."""
        return any(isinstance(each.mlp, Experts) for each in self.layers)

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
        # What the layer before adds to `hidden`.
        product: torch.Tensor | None = None
        seen = step.seen
        if seen is not None:
            seen.put(hidden)
        for number, (layer, cached) in enumerate(zip(self.layers, cache.layers, strict=True)):
            product = step.layer(layer, hidden, product, cached)
            if seen is not None:
                seen.add(number, hidden)
        return hidden if product is None else hidden.add_(product)

    def logits(self, hidden: torch.Tensor, step: ForwardStep) -> torch.Tensor:
        """The logits of rows of `hidden_states`: float32, `[rows, vocab_size]`."""
        logits = self.head(step.norm(hidden, self.norm)).float()
        if self.soft_cap is not None:
            # Whole vectors are computed otherwise than what is left over of them.
            for rows in logits.split(1) if step.apart else (logits,):
                rows.copy_(torch.tanh(rows / self.soft_cap) * self.soft_cap)
        return logits


class ForwardStep(ABC):
    """What happens to the tokens of one step between the matrix products.

    Attributes:
        adapted: those that have adapters; None where no token has.
        seen: those that stand for parts of pictures; None where no token does.
        apart: whether what a token gets is the same to the bit whatever else is in the step.
    """

    adapted: AdaptedRows | None = None
    seen: SeenRows | None = None
    apart: bool = False

    def layer(
        self,
        layer: Layer,
        hidden: torch.Tensor,
        product: torch.Tensor | None,
        cached: torch.Tensor,
    ) -> torch.Tensor:
        """One layer.

        Args:
            layer: its weights.
            hidden: what came into the layer before, `[tokens, hidden]`; with what that layer and
                this one's attention add to it in the end.
            product: what the layer before adds to `hidden`; None for the first.
            cached: the layer of the cache.

        Returns:
            What this layer's MLP adds to `hidden`.
        """
        if product is None:
            normed = hidden if layer.input_norm is None else self.norm(hidden, layer.input_norm)
        else:
            normed = self._added(product, hidden, layer.input_norm)
        qkv = layer.qkv(normed)
        if self.adapted is not None:
            self.adapted.add(layer, "qkv", normed, qkv)
        self._norm_rows(qkv, layer)
        queries = self.turn_and_write(qkv, layer, cached)
        found = self.attend(queries, cached, layer)
        attended = layer.out(found)
        if self.adapted is not None:
            self.adapted.add(layer, "out", found, attended)
        if layer.attention_norm is not None:
            attended = self.norm(attended, layer.attention_norm)
        normed = self._added(attended, hidden, layer.mlp_input_norm)
        added = self._mlp(layer, normed)
        return added if layer.mlp_norm is None else self.norm(added, layer.mlp_norm)

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        mlp = layer.mlp
        if isinstance(mlp, Experts):
            return mlp(x, self.gated, apart=self.apart)
        if self.adapted is None:
            return mlp(x, self.gated)
        gate_up = mlp.gate_up(x)
        self.adapted.add(layer, "gate_up", x, gate_up)
        gated = self.gated(gate_up)
        found = mlp.down(gated)
        self.adapted.add(layer, "down", gated, found)
        return found

    def _added(self, x: torch.Tensor, hidden: torch.Tensor, norm: Norm | None) -> torch.Tensor:
        """Add `x` to `hidden`, in place; what the next product takes of it."""
        return hidden.add_(x) if norm is None else self.add_and_norm(x, hidden, norm)

    def _norm_rows(self, qkv: torch.Tensor, layer: Layer) -> None:
        """Normalise the queries of all heads together, and the keys, where the model does that."""
        at = 0
        for norm in (layer.query_row_norm, layer.key_row_norm):
            if norm is not None:
                size = len(norm.weight)
                rows = qkv[:, at : at + size]
                rows.copy_(self.norm(rows.contiguous(), norm))
                at += size

    @abstractmethod
    def norm(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        """`x`, `[rows, hidden]`, normalised."""

    @abstractmethod
    def add_and_norm(self, x: torch.Tensor, hidden: torch.Tensor, norm: Norm) -> torch.Tensor:
        """Add `x` to `hidden`, in place; that, normalised."""

    @abstractmethod
    def turn_and_write(self, qkv: torch.Tensor, layer: Layer, cached: torch.Tensor) -> torch.Tensor:
        """Normalise the heads of queries and keys, turn them, and write keys and values into the
        cache.

        Args:
            qkv: `[tokens, (heads + 2 * kv_heads) * head_dim]`; it may change.
            layer: which has the norms, and says which rope.
            cached: the layer of the cache.

        Returns:
            The queries, `[tokens, heads, head_dim]`.
        """

    @abstractmethod
    def attend(self, queries: torch.Tensor, cached: torch.Tensor, layer: Layer) -> torch.Tensor:
        """What each token's queries find in its sequence: `[tokens, heads * head_dim]`."""

    @abstractmethod
    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """The activation of the first half of each row times the second half."""
