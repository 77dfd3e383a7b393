"""What a layer computes of each token by itself, after its attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from providers.local.torch_engine.model.linear import Linear

Gate = Callable[[torch.Tensor], torch.Tensor]
"""The activation of the first half of each row times the second half."""

UNGATED: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu2": lambda x: functional.relu(x).square_(),
}
"""Activations of MLPs that have no gates: of whole rows. By the names of transformers' configs."""


@dataclass(frozen=True, slots=True, eq=False)
class GatedMLP:
    """Two products, with a gate between them.

    Attributes:
        gate_up: `[tokens, hidden]` to `[tokens, 2 * intermediate]`: gates, then what they let by;
            of one of `UNGATED` to `[tokens, intermediate]`.
        down: `[tokens, intermediate]` to `[tokens, hidden]`.
        intermediate: how many numbers are between the two.
    """

    gate_up: Linear
    down: Linear
    intermediate: int

    def __call__(self, x: torch.Tensor, gate: Gate) -> torch.Tensor:
        """What `x`, `[tokens, hidden]`, comes to."""
        return self.down(gate(self.gate_up(x)))
