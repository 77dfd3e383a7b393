"""MLPs of transformers' layers as ours, and mixtures of experts with what chooses among them."""

from __future__ import annotations

from typing import Any

import torch

from providers.local.torch_engine.loading.architectures import Routing
from providers.local.torch_engine.loading.weights.modules import (
    ModuleReader,
    bias_of,
    owned,
    rows_of,
)
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.experts import Experts, Router, Rows, StackedMLPs
from providers.local.torch_engine.model.gated_mlp import UNGATED, GatedMLP

MLPS = ("mlp", "block_sparse_moe", "feed_forward")
"""What transformers calls a layer's MLP, or its experts."""

SHARED = ("shared_expert", "shared_experts", "shared_mlp")
"""What it calls what every token takes beside its experts."""

CORRECTIONS = ("e_score_correction_bias", "expert_bias")
"""What it calls what is added to the scores of experts where they are chosen alone."""


class MLPReader(ModuleReader):
    """Reads the MLP of one layer, or its experts."""

    __slots__ = ()

    def of_layer(self, module: Any) -> GatedMLP | Experts:
        """What a layer has of them."""
        if hasattr(module, "experts"):
            return self._experts_beside(module)
        mlp = next(getattr(module, name) for name in MLPS if hasattr(module, name))
        return self._experts(mlp) if hasattr(mlp, "experts") else self._mlp(mlp)

    def _mlp(self, mlp: Any) -> GatedMLP:
        if self.own.gate in UNGATED:
            weight = mlp.up_proj.weight.detach()
            return GatedMLP(
                self.make(weight, bias_of(mlp.up_proj)), self.adding(mlp.down_proj), len(weight)
            )
        if hasattr(mlp, "gate_up_proj"):
            weight = mlp.gate_up_proj.weight.detach()
            return GatedMLP(self.make(weight, None), self.adding(mlp.down_proj), len(weight) // 2)
        gate, up, down = (
            getattr(mlp, self.own.name(name)) for name in ("gate_proj", "up_proj", "down_proj")
        )
        weight = torch.cat([gate.weight.detach(), up.weight.detach()])
        bias = None
        if gate.bias is not None:
            bias = torch.cat([gate.bias.detach(), up.bias.detach()])
        return GatedMLP(self.make(weight, bias), self.adding(down), len(weight) // 2)

    def _experts_beside(self, module: Any) -> Experts:
        """Gemma 4's: an MLP and experts, which take the same, each by its own norm."""
        router, config = module.router, self.config
        scores = router.proj.weight.detach() * router.scale.detach() * router.scalar_root_size
        inputs, shared_inputs = (
            self.norm(getattr(module, name)).weight.to(scores.dtype)
            for name in ("pre_feedforward_layernorm_2", "pre_feedforward_layernorm")
        )
        return Experts(
            router=Router(
                Rows(scores),
                config.top_k_experts,
                normalised=True,
                each_scale=owned(router.per_expert_scale).float(),
            ),
            each=self._each(module.experts),
            shared=self._mlp(module.mlp),
            inputs=inputs,
            shared_inputs=shared_inputs,
            norm=self.norm(module.post_feedforward_layernorm_2),
            shared_norm=self.norm(module.post_feedforward_layernorm_1),
        )

    def _experts(self, block: Any) -> Experts:
        module = block.gate if hasattr(block, "gate") else block.router
        shared = next((getattr(block, name) for name in SHARED if hasattr(block, name)), None)
        gate = getattr(block, "shared_expert_gate", None)
        return Experts(
            router=self._router(block, module),
            each=self._each(block.experts),
            shared=None if shared is None else self._mlp(shared),
            shared_gate=None if gate is None else rows_of(gate),
            weighs_inputs=self.own.routing.weighs_inputs,
        )

    def _router(self, block: Any, module: Any) -> Router:
        own, scores = self.own.routing, rows_of(getattr(module, "wg", module))
        holders = (module, block, getattr(module, "moe_statics", None))
        corrections = (getattr(each, name, None) for each in holders for name in CORRECTIONS)
        correction = next((each for each in corrections if each is not None), None)
        if own != Routing() or correction is not None:
            # As those who train it do.
            scores = Rows(scores.weight.float(), scores.bias)
        is_grouped = getattr(module, "topk_method", "") != "greedy"
        return Router(
            scores=scores,
            chosen=module.top_k,
            normalised=bool(getattr(module, "norm_topk_prob", own.normalised)),
            sigmoid=own.sigmoid,
            correction=None if correction is None else owned(correction).float().flatten(),
            groups=(getattr(module, "num_group", None) or 1) if is_grouped else 1,
            chosen_groups=(getattr(module, "topk_group", None) or 1) if is_grouped else 1,
            group_by=own.group_by,
            scale=float(getattr(module, "routed_scaling_factor", 1.0)),
        )

    def _each(self, experts: Any) -> list[GatedMLP] | StackedMLPs:
        gate_up, down = experts.gate_up_proj.detach(), experts.down_proj.detach()
        has_biases = hasattr(experts, "gate_up_proj_bias")
        if has_biases or not linear.leaves(self.make, gate_up):
            return [self._expert(experts, at) for at in range(len(gate_up))]
        if self.own.transposed_experts:
            gate_up, down = (each.transpose(1, 2) for each in (gate_up, down))
        if self.residuals != 1:
            down = down * self.residuals
        return StackedMLPs(gate_up.contiguous(), down.contiguous())

    def _expert(self, experts: Any, at: int) -> GatedMLP:
        gate_up, down = experts.gate_up_proj[at].detach(), experts.down_proj[at].detach()
        biases: list[torch.Tensor | None] = [None, None]
        if self.own.transposed_experts:
            gate_up, down = gate_up.T.contiguous(), down.T.contiguous()
        if hasattr(experts, "gate_up_proj_bias"):
            # gpt-oss: a gate beside what it lets by.
            gate_up = _gates_first(gate_up)
            biases = [
                _gates_first(experts.gate_up_proj_bias[at].detach()),
                experts.down_proj_bias[at].detach() * self.residuals,
            ]
        return GatedMLP(
            self.make(gate_up, biases[0]),
            self.make(down * self.residuals, biases[1]),
            len(gate_up) // 2,
        )


def _gates_first(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([rows[::2], rows[1::2]])
