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
from providers.local.torch_engine.model.decoder import Decoder, ForwardStep, Layer, Norm

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
        return self._by_row(norm, x)

    def add_and_norm(self, x: torch.Tensor, hidden: torch.Tensor, norm: Norm) -> torch.Tensor:
        """See `ForwardStep`."""
        return self._by_row(norm, hidden.add_(x))

    def _by_row(
        self, compute: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
    ) -> torch.Tensor:
        if not self.apart or len(x) < 2:
            return compute(x)
        return torch.cat([compute(row) for row in x.split(1)])

    def turn_and_write(self, qkv: torch.Tensor, layer: Layer, cached: torch.Tensor) -> torch.Tensor:
        """See `ForwardStep`."""
        decoder = self._decoder
        heads = qkv.unflatten(-1, (-1, decoder.head_dim))
        turned = decoder.heads + decoder.kv_heads
        self._norm_heads(heads, layer)
        step = 1 if self.apart else max(1, len(heads))
        rotations = self._rotations[layer.rope].split(step)
        for rows, turns in zip(heads[:, :turned].split(step), rotations, strict=True):
            decoder.ropes[layer.rope].apply(rows, turns)
        if (scales := self._query_scales[layer.rope]) is not None:
            heads[:, : decoder.heads] *= scales.to(heads.dtype)
        kv_cache.write(cached, self._slots, heads[:, decoder.heads :])
        return heads[:, : decoder.heads]

    def _norm_heads(self, heads: torch.Tensor, layer: Layer) -> None:
        """Normalise queries and keys, in place, where the model does that."""
        count = self._decoder.heads
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = heads[:, :count], heads[:, count : count + self._decoder.kv_heads]
            queries.copy_(self._by_row(layer.query_norm, queries))
            keys.copy_(self._by_row(layer.key_norm, keys))

    def attend(self, queries: torch.Tensor, cached: torch.Tensor, layer: Layer) -> torch.Tensor:
        """See `ForwardStep`."""
        decoder = self._decoder
        scores = Scores(decoder.attention_scale, layer.window, decoder.score_cap, layer.sinks)
        return attend(queries, cached, self._spans, scores)

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """See `ForwardStep`."""
        return self._by_row(self._gated, gate_up)

    def _gated(self, gate_up: torch.Tensor) -> torch.Tensor:
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
