"""What a forward pass does between its matrix products, in Triton kernels."""

from __future__ import annotations

import torch

from providers.local.torch_engine.kernels.attention import paged_attention
from providers.local.torch_engine.kernels.experts.products import mix_experts
from providers.local.torch_engine.kernels.experts.router import route
from providers.local.torch_engine.kernels.gates import gated
from providers.local.torch_engine.kernels.heads import turn_and_write
from providers.local.torch_engine.kernels.norms import add_rms_norm, rms_norm
from providers.local.torch_engine.kernels.places import Places
from providers.local.torch_engine.kernels.products import few_rows
from providers.local.torch_engine.model.decoder import Decoder, Layer
from providers.local.torch_engine.model.experts import Experts, Router, StackedMLPs
from providers.local.torch_engine.model.forward_step import ForwardStep
from providers.local.torch_engine.model.linear import Linear, PlainLinear
from providers.local.torch_engine.model.norm import Norm

FEW_ROWS = 2
"""Up to so many rows cuBLAS reads a weight slower than a kernel of our own, see
`bench.products_cuda`: an H100 took 0.79 of the time for one row, and 0.95 for two."""


class KernelStep(ForwardStep):
    """See `decoder.Step`.

    Args:
        decoder: the model.
        places: of the step's tokens.
        block_size: tokens in a block of the cache.
    """

    def __init__(self, decoder: Decoder, places: Places, block_size: int) -> None:
        self._decoder = decoder
        self._places = places
        self._block_size = block_size
        self._rotations = [torch.view_as_real(rope.rotations) for rope in decoder.ropes]

    def product(self, linear: Linear, x: torch.Tensor) -> torch.Tensor:
        """See `ForwardStep`."""
        if len(x) > FEW_ROWS or not isinstance(linear, PlainLinear):
            return linear(x)
        return few_rows(x, linear.weight, bias=linear.bias)

    def norm(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        """See `ForwardStep`."""
        return rms_norm(x, norm.weight, norm.epsilon)

    def add_and_norm(self, x: torch.Tensor, hidden: torch.Tensor, norm: Norm) -> torch.Tensor:
        """See `ForwardStep`."""
        return add_rms_norm(x, hidden, norm.weight, norm.epsilon)

    def turn_and_write(self, qkv: torch.Tensor, layer: Layer, cached: torch.Tensor) -> torch.Tensor:
        """See `ForwardStep`."""
        norms = None
        if layer.query_norm is not None and layer.key_norm is not None:
            norms = (
                (layer.query_norm.weight, layer.query_norm.epsilon),
                (layer.key_norm.weight, layer.key_norm.epsilon),
            )
        return turn_and_write(
            qkv,
            cached,
            self._rotations[layer.rope],
            norms,
            self._places,
            heads=self._decoder.heads,
            kv_heads=self._decoder.kv_heads,
        )

    def attend(self, queries: torch.Tensor, cached: torch.Tensor, layer: Layer) -> torch.Tensor:
        """See `ForwardStep`."""
        return paged_attention(
            queries,
            cached,
            self._places,
            block_size=self._block_size,
            scale=self._decoder.attention_scale,
            window=layer.window,
        )

    def route(self, router: Router, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `ForwardStep`."""
        if router.chosen_groups < router.groups or router.each_scale is not None:
            return router(x)
        return route(
            router.scores(x),
            router.chosen,
            x.dtype,
            sigmoid=router.sigmoid,
            correction=router.correction,
            normalised=router.normalised,
            scale=router.scale,
        )

    def mix(
        self, experts: Experts, x: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        """See `ForwardStep`."""
        if not mixes(experts):
            return super().mix(experts, x, shares, chosen)
        assert isinstance(experts.each, StackedMLPs)
        weights = experts.each
        return mix_experts(
            x, weights.gate_up, weights.down, shares, chosen, self._decoder.activation
        )

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """See `ForwardStep`."""
        return gated(gate_up, self._decoder.activation)


def mixes(experts: Experts) -> bool:
    """Whether a kernel computes such experts; else the host waits for their router in each step."""
    return isinstance(experts.each, StackedMLPs) and not experts.weighs_inputs
