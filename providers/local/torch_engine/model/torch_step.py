"""What a forward pass does between its matrix products, in PyTorch's own operations.

The CPU's way, and what the Triton kernels are checked against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch.nn import functional

from providers.local.torch_engine.model import kv_cache
from providers.local.torch_engine.model.attention import Scores, Span, attend
from providers.local.torch_engine.model.decoder import Decoder, Heads, Layer
from providers.local.torch_engine.model.forward_step import ForwardStep
from providers.local.torch_engine.model.gated_mlp import UNGATED
from providers.local.torch_engine.model.latent import Latent
from providers.local.torch_engine.model.norm import Norm

ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": partial(functional.silu, inplace=True),
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "gelu": functional.gelu,
}
"""By the names that transformers' configs have for them; they may work in place."""

CLAMPED_SWIGLU = "clamped_swiglu"
"""The one gate that is more than an activation and a product."""

SWIGLU_ALPHA = 1.702
SWIGLU_LIMIT = 7.0


class TorchStep(ForwardStep):
    """See `decoder.Step`.

    Args:
        decoder: the model.
        positions: of the tokens in their sequences, int64: `[tokens]`, or `[3, tokens]`, on three
            axes.
        slots: of the tokens in the cache, `[tokens]`, int64.
        spans: of all of them.
        apart: see `ForwardStep`. PyTorch computes vectors of some numbers otherwise than those that
            are left over, and which are depends on how many rows there are: so each row is computed
            by itself.
    """

    def __init__(
        self,
        decoder: Decoder,
        positions: torch.Tensor,
        slots: torch.Tensor,
        spans: Sequence[Span],
        *,
        apart: bool = False,
    ) -> None:
        self.apart = apart
        self._decoder = decoder
        self._slots = slots
        self._spans = spans
        self._rotations = [rope.turns(positions).contiguous() for rope in decoder.ropes]
        positions = positions if positions.dim() == 1 else positions[0]
        self._query_scales = [
            None if rope.query_scales is None else rope.query_scales[positions][:, None, None]
            for rope in decoder.ropes
        ]
        self._activation = ACTIVATIONS.get(decoder.activation)

    def norm(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        """See `ForwardStep`."""
        return self.by_row(norm, x)

    def add_and_norm(self, x: torch.Tensor, hidden: torch.Tensor, norm: Norm) -> torch.Tensor:
        """See `ForwardStep`."""
        return self.by_row(norm, hidden.add_(x))

    def turn_and_write(self, qkv: torch.Tensor, layer: Layer, cached: torch.Tensor) -> torch.Tensor:
        """See `ForwardStep`."""
        if layer.latent is not None:
            return self._rows_of(qkv, layer, layer.latent, cached)
        own = self._decoder.heads_of(layer)
        queries, keys = own.queries, own.keys
        heads = qkv.unflatten(-1, (-1, own.size))
        if not layer.turned_first:
            self._norm_heads(heads, layer, own)
        self._turn(heads[:, : queries + keys], layer)
        if layer.turned_first:
            self._norm_heads(heads, layer, own)
        self._grow(heads[:, :queries], layer)
        if layer.looks_at is None:
            kv_cache.write(cached, self._slots, heads[:, queries:])
        return heads[:, :queries]

    def _rows_of(
        self, qkv: torch.Tensor, layer: Layer, latent: Latent, cached: torch.Tensor
    ) -> torch.Tensor:
        """`turn_and_write` of a layer whose keys and values are of low rank."""
        width, rope = cached.shape[-1], self._decoder.ropes[layer.rope]
        made_of, rows = qkv.split([qkv.shape[1] - width, width], -1)
        if latent.queries is not None and latent.queries_norm is not None:
            made_of = latent.queries(self.norm(made_of.contiguous(), latent.queries_norm))
        heads = made_of.unflatten(-1, (self._decoder.heads, -1))
        queries = self.by_row(lambda x: latent.widened(x, rope.dimensions), heads)
        self._turn(queries, layer)
        self._grow(queries, layer)
        turned, rest = rows.contiguous().split([rope.dimensions, width - rope.dimensions], -1)
        rows = torch.cat([turned, self.norm(rest.contiguous(), latent.row_norm)], -1).unsqueeze(1)
        self._turn(rows, layer)
        kv_cache.write(cached, self._slots, rows)
        return queries

    def _turn(self, heads: torch.Tensor, layer: Layer) -> None:
        """Turn `heads`, `[tokens, heads, size]`, in place."""
        step = 1 if self.apart else max(1, len(heads))
        rotations = self._rotations[layer.rope].split(step)
        for rows, turns in zip(heads.split(step), rotations, strict=True):
            self._decoder.ropes[layer.rope].apply(rows, turns)

    def _grow(self, queries: torch.Tensor, layer: Layer) -> None:
        """Make `queries`, `[tokens, heads, size]`, longer, in place, where the model does that."""
        if (scales := self._query_scales[layer.rope]) is not None:
            queries *= scales.to(queries.dtype)

    def _norm_heads(self, heads: torch.Tensor, layer: Layer, own: Heads) -> None:
        """Normalise queries, keys and values, in place, where the model does that."""
        at = 0
        for norm, count in (
            (layer.query_norm, own.queries),
            (layer.key_norm, own.keys),
            (layer.value_norm, own.keys),
        ):
            if norm is not None:
                normed = heads[:, at : at + count]
                normed.copy_(self.by_row(norm, normed))
            at += count

    def attend(self, queries: torch.Tensor, cached: torch.Tensor, layer: Layer) -> torch.Tensor:
        """See `ForwardStep`."""
        decoder = self._decoder
        scores = Scores(
            decoder.attention_scale,
            layer.window,
            decoder.score_cap,
            layer.sinks,
            layer.chunk,
            layer.ahead,
        )
        return attend(queries, cached, self._spans, scores)

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """See `ForwardStep`."""
        return self.by_row(self._gated, gate_up)

    def _gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        if self._decoder.activation in UNGATED:
            return UNGATED[self._decoder.activation](gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        if self._activation is None:
            return clamped_swiglu(gate, up)
        return self._activation(gate).mul_(up)


def clamped_swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """gpt-oss's gate (arXiv:2508.10925): bounded on both sides, and with a part that it lets by.

    Args:
        gate, up: `[tokens, intermediate]`.
    """
    gate = gate.clamp(max=SWIGLU_LIMIT)
    up = up.clamp(min=-SWIGLU_LIMIT, max=SWIGLU_LIMIT)
    return (up + 1).mul_(gate * torch.sigmoid(SWIGLU_ALPHA * gate))
