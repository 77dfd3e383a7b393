"""Normalisation of what layers and heads take, or give."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(eq=False)
class Norm:
    """Root-mean-square normalisation over the last dimension, computed in float32.

    In four small operations: `hypot` adds the epsilon under the root.

    Attributes:
        weight: `[size]`, in float32.
        epsilon: what is added to the mean of the squares.
        dtype: of what comes out.
        centred: whether the mean is taken away first.
        bias: what is added in the end, `[size]` in float32.
    """

    weight: torch.Tensor
    epsilon: float
    dtype: torch.dtype
    centred: bool = False
    bias: torch.Tensor | None = None

    def __post_init__(self) -> None:
        size = self.weight.shape[0]
        self._scaled = self.weight * math.sqrt(size)
        self._least = torch.tensor(math.sqrt(size * self.epsilon), device=self.weight.device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, `[..., size]`, normalised."""
        values = x.float()
        if self.centred:
            values = values - values.mean(-1, keepdim=True)
        length = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        normed = (values / torch.hypot(length, self._least)).mul_(self._scaled)
        if self.bias is not None:
            normed = normed.add_(self.bias)
        return normed.to(self.dtype)
