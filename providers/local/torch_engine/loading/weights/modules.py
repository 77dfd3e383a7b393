"""What is read alike of transformers' modules, whatever they are for: weights, biases, norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from providers.local.torch_engine.loading.architectures import Architecture
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.experts import Rows
from providers.local.torch_engine.model.norm import Norm

EPSILONS = ("variance_epsilon", "eps")
"""What transformers' norms call what they add to the mean of the squares."""


@dataclass(frozen=True, slots=True)
class ModuleReader:
    """What is the same for all that is read of a model.

    Attributes:
        config: of the text.
        own: what the architecture has of its own.
        make: of the matrix products.
        residuals: what is multiplied by it is what attention and MLP add.
    """

    config: Any
    own: Architecture
    make: linear.Make
    residuals: float

    def norm(self, module: Any) -> Norm:
        """transformers' norm as ours."""
        return norm_of(module, self.own)

    def named_norm(self, module: Any, name: str | None) -> Norm | None:
        """The norm that `module` has by this name; None where there is no name."""
        return None if name is None else self.norm(getattr(module, name))

    def adding(self, module: Any) -> linear.Linear:
        """The product that has what a layer adds."""
        weight, bias = module.weight.detach(), bias_of(module)
        if self.residuals != 1:
            weight = weight * self.residuals
            bias = None if bias is None else bias * self.residuals
        return self.make(weight, bias)


def norm_of(module: Any, own: Architecture) -> Norm:
    """A norm of transformers as ours."""
    weight = owned(module.weight).float()
    if own.norms_add_one:
        weight = 1 + weight
    epsilon = next(getattr(module, name) for name in EPSILONS if hasattr(module, name))
    bias = bias_of(module)
    return Norm(
        weight,
        epsilon,
        module.weight.dtype,
        centred=own.norms_centred,
        bias=None if bias is None else bias.float(),
    )


def rows_of(module: Any) -> Rows:
    """A product that is computed row by row."""
    bias = getattr(module, "bias", None)
    return Rows(owned(module.weight), None if bias is None else owned(bias))


def bias_of(module: Any) -> torch.Tensor | None:
    """The bias of a product; None where it has none."""
    bias = getattr(module, "bias", None)
    return None if bias is None else bias.detach()


def owned(weight: torch.Tensor) -> torch.Tensor:
    """The weight, not as a part of the file that transformers has mapped: that can go then."""
    return weight.detach().clone() if weight.device.type == "cpu" else weight.detach()
