"""A mixture of experts: MLPs of which each token takes the few that a router chooses for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from providers.local.torch_engine.model.gated_mlp import Gate, GatedMLP


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A product with few outputs, whose weights stay as they are: what it says decides much.

    Attributes:
        weight: `[outputs, inputs]`.
        bias: `[outputs]`, if there is one.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`[tokens, inputs]` to `[tokens, outputs]`."""
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """The experts of one layer.

    Attributes:
        router: scores them for each token.
        chosen: how many a token takes.
        normalised: whether the shares of those sum to 1; else they are shares of all.
        each: the experts.
        shared: what every token takes besides, if there is something.
        shared_gate: how much of that, `[tokens, 1]` before the sigmoid; None for all of it.
    """

    router: Rows
    chosen: int
    normalised: bool
    each: Sequence[GatedMLP]
    shared: GatedMLP | None = None
    shared_gate: Rows | None = None

    def __call__(self, x: torch.Tensor, gate: Gate, *, apart: bool = False) -> torch.Tensor:
        """What `x`, `[tokens, hidden]`, comes to.

        Args:
            x: the tokens.
            gate: of the experts.
            apart: whether each token's is the same to the bit whatever others there are.
        """
        if apart:
            shares, chosen = map(torch.cat, zip(*map(self.choose, x.split(1)), strict=True))
        else:
            shares, chosen = self.choose(x)
        found = torch.zeros_like(x)
        for number in chosen.unique().tolist():
            tokens, places = (chosen == number).nonzero(as_tuple=True)
            computed = self.each[number](x[tokens], gate)
            found.index_add_(0, tokens, computed * shares[tokens, places, None])
        if self.shared is not None:
            computed = self.shared(x, gate)
            if self.shared_gate is not None:
                rows = x.split(1) if apart else (x,)
                computed *= torch.cat([self.shared_gate(each).sigmoid() for each in rows])
            found += computed
        return found

    def choose(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The shares of the chosen experts, `[tokens, chosen]` as `x`, and which these are, int64.

        The shares of the chosen among themselves are the softmax of their scores alone, as some
        models have it.
        """
        shares, chosen = self.router(x).softmax(-1, dtype=torch.float32).topk(self.chosen)
        if self.normalised:
            shares = shares / shares.sum(-1, keepdim=True)
        return shares.to(x.dtype), chosen
