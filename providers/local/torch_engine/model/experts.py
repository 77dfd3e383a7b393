"""A mixture of experts: MLPs of which each token takes the few that a router chooses for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from providers.local.torch_engine.model.gated_mlp import Gate, GatedMLP
from providers.local.torch_engine.model.linear import PlainLinear

if TYPE_CHECKING:
    from providers.local.torch_engine.model.forward_step import ForwardStep
    from providers.local.torch_engine.model.norm import Norm


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
        """`[tokens, inputs]` to `[tokens, outputs]`, in the weights' dtype."""
        return functional.linear(x.to(self.weight.dtype), self.weight, self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Router:
    """Says which experts a token takes, and how much of each.

    Attributes:
        scores: of each expert.
        chosen: how many a token takes.
        normalised: whether the shares of those sum to 1; else they are shares of all.
        sigmoid: whether an expert is scored by itself, and not beside the others.
        correction: what is added to the scores for the choice alone, `[experts]` in float32.
        groups: of experts, as many in each.
        chosen_groups: in how many of them a token's experts are.
        group_by: of how many of its best experts a group's score is the sum.
        scale: what shares are multiplied by.
        each_scale: what each expert's is besides, `[experts]` in float32.
    """

    scores: Rows
    chosen: int
    normalised: bool
    sigmoid: bool = False
    correction: torch.Tensor | None = None
    groups: int = 1
    chosen_groups: int = 1
    group_by: int = 1
    scale: float = 1.0
    each_scale: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The shares of the chosen experts, `[tokens, chosen]` as `x`, and which these are, int64.

        The shares of the chosen among themselves are the softmax of their scores alone, as some
        models have it.
        """
        found = self.scores(x)
        scores = found.float().sigmoid() if self.sigmoid else found.softmax(-1, dtype=torch.float32)
        ranked = scores if self.correction is None else scores + self.correction
        chosen = self._in_best_groups(ranked).topk(self.chosen).indices
        shares = scores.gather(-1, chosen)
        if self.normalised:
            shares = shares / shares.sum(-1, keepdim=True)
        if self.each_scale is not None:
            shares = shares * self.each_scale[chosen]
        return (shares * self.scale).to(x.dtype), chosen

    def _in_best_groups(self, ranked: torch.Tensor) -> torch.Tensor:
        """`ranked`, without what is in other groups."""
        if self.chosen_groups >= self.groups:
            return ranked
        grouped = ranked.unflatten(-1, (self.groups, -1))
        best = grouped.topk(self.group_by).values.sum(-1).topk(self.chosen_groups).indices
        others = torch.ones(grouped.shape[:-1], dtype=torch.bool, device=ranked.device)
        others.scatter_(-1, best, value=False)
        return grouped.masked_fill(others.unsqueeze(-1), -torch.inf).flatten(-2)


@dataclass(frozen=True, slots=True, eq=False)
class StackedMLPs:
    """MLPs of one size without biases, whose weights lie in one tensor each.

    Attributes:
        gate_up: `[experts, 2 * intermediate, hidden]`; see `GatedMLP`.
        down: `[experts, hidden, intermediate]`.
    """

    gate_up: torch.Tensor
    down: torch.Tensor

    def __len__(self) -> int:
        return len(self.down)

    def __getitem__(self, number: int) -> GatedMLP:
        """One of them, by itself: its weights are not there a second time."""
        gate_up, down = PlainLinear(self.gate_up[number], None), self.down[number]
        return GatedMLP(gate_up, PlainLinear(down, None), down.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """The experts of one layer.

    Attributes:
        router: chooses them for each token.
        each: the experts.
        shared: what every token takes besides, if there is something.
        shared_gate: how much of that, `[tokens, 1]` before the sigmoid; None for all of it.
        weighs_inputs: whether shares weigh what an expert takes, not what it gives.
        inputs, shared_inputs: what an input is multiplied by that they take, `[hidden]`; None where
            both take what the router takes.
        norm, shared_norm: of what they give, all experts together; None for none.
    """

    router: Router
    each: Sequence[GatedMLP] | StackedMLPs
    shared: GatedMLP | None = None
    shared_gate: Rows | None = None
    weighs_inputs: bool = False
    inputs: torch.Tensor | None = None
    shared_inputs: torch.Tensor | None = None
    norm: Norm | None = None
    shared_norm: Norm | None = None

    def __call__(self, x: torch.Tensor, step: ForwardStep) -> torch.Tensor:
        """What `x`, `[tokens, hidden]`, comes to in a step."""
        shares, chosen = step.route(self.router, x)
        own = x if self.inputs is None else x * self.inputs
        found = step.mix(self, own, shares, chosen)
        if self.norm is not None:
            found = step.norm(found, self.norm)
        if self.shared is not None:
            own = x if self.shared_inputs is None else x * self.shared_inputs
            computed = self.shared(own, step.gated)
            if self.shared_norm is not None:
                computed = step.norm(computed, self.shared_norm)
            if self.shared_gate is not None:
                rows = x.split(1) if step.apart else (x,)
                computed *= torch.cat([self.shared_gate(each).sigmoid() for each in rows])
            found += computed
        return found

    def mixed(
        self, x: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor, gate: Gate
    ) -> torch.Tensor:
        """What the experts that tokens chose come to, one expert after the other.

        The host has to know which they are, and waits for that.

        Args:
            x: what they take, `[tokens, hidden]`.
            shares: `[tokens, chosen]`, as `x`.
            chosen: likewise, integers.
            gate: of the experts.
        """
        found = torch.zeros_like(x)
        for number in chosen.unique().tolist():
            tokens, places = (chosen == number).nonzero(as_tuple=True)
            share = shares[tokens, places, None]
            taken = x[tokens]
            if self.weighs_inputs:
                computed = self.each[number](taken * share, gate)
            else:
                computed = self.each[number](taken, gate) * share
            found.index_add_(0, tokens, computed)
        return found
