"""The layers of LFM2 that are no attention: a gated convolution over the last few tokens.

(https://www.liquid.ai/blog/liquid-foundation-models-v2-our-second-series-of-generative-ai-models)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from providers.local.torch_engine.model.recurrent.convolution import Convolution
from providers.local.torch_engine.model.recurrent.rows import StateRows
from providers.local.torch_engine.model.recurrent.states import LayerStates, StateShape


@dataclass(frozen=True, slots=True, eq=False)
class ShortConv:
    """What such a layer has between its two products.

    Attributes:
        convolution: of what the first gate lets by.
    """

    convolution: Convolution

    @property
    def state_shape(self) -> StateShape:
        """Of what it keeps."""
        return StateShape(self.convolution.inputs)

    def __call__(
        self, projected: torch.Tensor, x: torch.Tensor, states: LayerStates, rows: StateRows
    ) -> torch.Tensor:
        """See `decoder.Recurrent`; `projected` is the two gates and what they let by."""
        first, second, values = projected.float().chunk(3, -1)
        found = self.convolution(first * values, states.inputs, rows)
        return (second * found).to(projected.dtype)
