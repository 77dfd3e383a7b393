"""What happens to the tokens of one step between the matrix products of a decoder.

By PyTorch's operations, Triton kernels or compiled code, each a subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from providers.local.torch_engine.model.decoder import Layer
from providers.local.torch_engine.model.experts import Experts, Router
from providers.local.torch_engine.model.kv_cache import numbers_of
from providers.local.torch_engine.model.linear import Linear
from providers.local.torch_engine.model.norm import Norm
from providers.local.torch_engine.model.recurrent.step_states import StepStates

if TYPE_CHECKING:
    from providers.local.torch_engine.adapters.low_rank import AdaptedRows, Place
    from providers.local.torch_engine.heads.head import TakenStates
    from providers.local.torch_engine.media.in_step import MediaRows


class ForwardStep(ABC):
    """What happens to the tokens of one step between the matrix products.

    Attributes:
        adapted: those that have adapters; None where no token has.
        seen: those that stand for parts of media; None where no token does.
        taken: takes what comes into some layers; None where nobody asks for it.
        states: what layers with a state go on from; None where the model has none.
        apart: whether what a token gets is the same to the bit whatever else is in the step.
        sides: what each layer takes of the tokens' own embeddings, `[tokens, size]`.
    """

    adapted: AdaptedRows | None = None
    seen: MediaRows | None = None
    taken: TakenStates | None = None
    states: StepStates | None = None
    apart: bool = False
    sides: Mapping[Layer, torch.Tensor] = MappingProxyType({})

    def layer(
        self,
        layer: Layer,
        hidden: torch.Tensor,
        product: torch.Tensor | None,
        cached: torch.Tensor,
    ) -> torch.Tensor | None:
        """One layer.

        Args:
            layer: its weights.
            hidden: what came into the layer before, `[tokens, hidden]`; with what that layer and
                this one's attention add to it in the end.
            product: what the layer before adds to `hidden`; None for the first.
            cached: the layer of the cache; it holds nothing where the layer has a state.

        Returns:
            What this layer's MLP adds to `hidden`; None where it is there already.
        """
        if product is None:
            normed = hidden if layer.input_norm is None else self.norm(hidden, layer.input_norm)
        else:
            normed = self._added(product, hidden, layer.input_norm)
        qkv = self._multiplied(layer, "qkv", layer.qkv, normed)
        if layer.recurrence is None:
            found = self._attended(qkv, layer, cached)
        else:
            assert self.states is not None
            found = self.states.go_on(layer, qkv, normed)
        attended = self._multiplied(layer, "out", layer.out, found)
        if layer.attention_norm is not None:
            attended = self.norm(attended, layer.attention_norm)
        if layer.beside:
            return self._mlp(layer, normed).add_(attended)
        normed = self._added(attended, hidden, layer.mlp_input_norm)
        added = self._mlp(layer, normed)
        if layer.mlp_norm is not None:
            added = self.norm(added, layer.mlp_norm)
        if layer.side is None and layer.scale == 1:
            return added
        hidden.add_(added)
        if layer.side is not None:
            side = layer.side
            taken = self.gated(torch.cat([side.gate(hidden), self.sides[layer]], -1))
            hidden.add_(self.norm(side.projection(taken), side.norm))
        hidden.mul_(layer.scale)
        return None

    def by_row(
        self, compute: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
    ) -> torch.Tensor:
        """What `compute` makes of `x`, of each row by itself where rows are told apart."""
        if not self.apart or len(x) < 2:
            return compute(x)
        return torch.cat([compute(row) for row in x.split(1)])

    def route(self, router: Router, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which experts each row of `x`, `[tokens, hidden]`, takes, and how much: see `Router`."""
        if not self.apart:
            return router(x)
        shares, chosen = zip(*map(router, x.split(1)), strict=True)
        return torch.cat(shares), torch.cat(chosen)

    def mix(
        self, experts: Experts, x: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        """What the experts that tokens chose come to: see `Experts.mixed`."""
        return experts.mixed(x, shares, chosen, self.gated)

    def _attended(self, qkv: torch.Tensor, layer: Layer, cached: torch.Tensor) -> torch.Tensor:
        """What the attention of a layer finds: `[tokens, heads * head_dim]`."""
        queries, gates = self.written(qkv, layer, cached)
        found = self.attend(queries, cached, layer)
        if layer.latent is not None:
            found = self.by_row(layer.latent.values, found)
        if gates is None:
            return found
        return found.mul_(self.by_row(torch.sigmoid, gates))

    def written(
        self, qkv: torch.Tensor, layer: Layer, cached: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Write the keys and values of a layer with attention into the cache.

        Returns:
            The queries, and what gates what they find; None where nothing does.
        """
        gates = None
        if layer.gates_attention:
            everything, rows = qkv.shape[1], numbers_of(cached)
            # As many gates as queries, and the rest is keys and values.
            queries = (everything - rows.rows * rows.size) // 2
            qkv, gates = qkv.split([everything - queries, queries], -1)
            qkv = qkv.contiguous()
        self._norm_rows(qkv, layer)
        return self.turn_and_write(qkv, layer, cached), gates

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        mlp = layer.mlp
        if isinstance(mlp, Experts):
            return mlp(x, self)
        gated = self.gated(self._multiplied(layer, "gate_up", mlp.gate_up, x))
        return self._multiplied(layer, "down", mlp.down, gated)

    def _multiplied(
        self, layer: Layer, place: Place, linear: Linear, x: torch.Tensor
    ) -> torch.Tensor:
        """One of a layer's products, with what adapters add to it."""
        found = self.product(linear, x)
        if self.adapted is not None:
            self.adapted.add(layer, place, x, found)
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

    def product(self, linear: Linear, x: torch.Tensor) -> torch.Tensor:
        """The product of `x`, `[rows, inputs]`, with one of the model's weights."""
        return linear(x)

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
