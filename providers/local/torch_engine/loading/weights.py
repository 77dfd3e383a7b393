"""A transformers model's weights as a `Decoder`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch

from providers.local.torch_engine.loading.architectures import (
    ARCHITECTURES,
    Architecture,
    gate_of,
)
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder, Layer, Norm, Rope
from providers.local.torch_engine.model.experts import Experts, Rows
from providers.local.torch_engine.model.gated_mlp import GatedMLP
from providers.local.torch_engine.model.rope_lengths import rope_lengths, rope_parameters


def decoder_of(model: Any, make: linear.Make, make_head: linear.Make | None = None) -> Decoder:
    """The weights of a transformers language model, merged; `model` is used up by it.

    Args:
        model: on its device; its `config` passed `why_not`. Of one that takes pictures too, the
            part that reads text.
        make: of the matrix products.
        make_head: of the last of them, which tells the tokens; as the others are if None.

    Returns:
        The model; tell it how far its positions reach.
    """
    config = model.config.get_text_config()
    inner = model.get_decoder()
    head_dim = inner.layers[0].self_attn.head_dim
    scale = float(inner.layers[0].self_attn.scaling)
    kinds = _layer_kinds(config)
    parameters = rope_parameters(config)
    # There may be parameters for a kind of which there is no layer.
    names = [name for name in parameters if name in kinds or not name]
    ropes = [_rope(inner.rotary_emb, name, parameters[name], config) for name in names]
    turned = _turned(config, ropes)
    own = ARCHITECTURES[config.model_type]
    residuals = float(config.residual_multiplier) if own.has_multipliers else 1.0

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def layer(index: int) -> Layer:
        module = inner.layers[index]
        rope = names.index(kinds[index]) if len(names) > 1 else 0
        if not turned[index]:
            rope = len(ropes) - 1
        order = pairwise(head_dim, ropes[rope])
        window = config.sliding_window if kinds[index] == "sliding_attention" else None
        reader = _Reader(config, own, make, order, residuals)
        made = reader.layer(module, rope, window)
        # The weights of a few layers are there twice, never all.
        inner.layers[index] = torch.nn.Identity()
        return made

    # FBGEMM packs on a single core.
    at_once = torch.get_num_threads() if inner.embed_tokens.weight.device.type == "cpu" else 1
    with ThreadPoolExecutor(at_once, thread_name_prefix="packing") as threads:
        layers = list(threads.map(layer, range(len(inner.layers))))
    norm = _norm(inner.norm, config, own)
    if own.has_multipliers:
        # Of the same numbers, as the head is linear.
        norm = Norm(norm.weight / config.logits_scaling, norm.epsilon, norm.dtype)
    return Decoder(
        embedding=_own(inner.embed_tokens.weight),
        embedding_scale=_embedding_scale(inner, config, own),
        layers=layers,
        ropes=ropes,
        norm=norm,
        head=(make_head or make)(model.get_output_embeddings().weight.detach(), None),
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        attention_scale=scale,
        activation=gate_of(config),
        score_cap=getattr(config, "attn_logit_softcapping", None),
        soft_cap=getattr(config, "final_logit_softcapping", None),
        long_after=next(iter(rope_lengths(config)), None),
    )


def _embedding_scale(inner: Any, config: Any, own: Architecture) -> float:
    if own.has_multipliers:
        return float(config.embedding_multiplier)
    return float(getattr(inner.embed_tokens, "embed_scale", torch.tensor(1.0)))


class _Reader(NamedTuple):
    """What is the same for all that is read of a layer.

    Attributes:
        config: of the text.
        own: what the architecture has of its own.
        make: of the matrix products.
        order: of a head's dimensions, see `pairwise`.
        residuals: what is multiplied by it is what attention and MLP add.
    """

    config: Any
    own: Architecture
    make: linear.Make
    order: torch.Tensor
    residuals: float

    def layer(self, module: Any, rope: int, window: int | None) -> Layer:
        """transformers' layer as ours."""
        attention = module.self_attn
        mlp = module.mlp if hasattr(module, "mlp") else module.block_sparse_moe
        sinks = getattr(attention, "sinks", None)
        behind = {"after": "post_attention_layernorm", "both": "post_attention_layernorm"}
        before = {"before": "post_attention_layernorm", "both": "pre_feedforward_layernorm"}
        norms = self.own.norms
        of_heads = self._norms_of_heads(attention)
        return Layer(
            input_norm=self._norm(module, None if norms == "after" else "input_layernorm"),
            qkv=self._qkv(attention),
            query_norm=of_heads.get("query_norm"),
            key_norm=of_heads.get("key_norm"),
            out=self._adding(attention.o_proj),
            attention_norm=self._norm(module, behind.get(norms)),
            mlp_input_norm=self._norm(module, before.get(norms)),
            mlp=self._experts(mlp) if hasattr(mlp, "experts") else self._mlp(mlp),
            mlp_norm=self._norm(module, "post_feedforward_layernorm" if norms in behind else None),
            rope=rope,
            window=window,
            query_row_norm=of_heads.get("query_row_norm"),
            key_row_norm=of_heads.get("key_row_norm"),
            sinks=None if sinks is None else _own(sinks),
        )

    def _norm(self, module: Any, name: str | None) -> Norm | None:
        return None if name is None else _norm(getattr(module, name), self.config, self.own)

    def _norms_of_heads(self, attention: Any) -> dict[str, Norm]:
        """Of queries and keys: of each head, or of all together, by the names that `Layer` has."""
        found: dict[str, Norm] = {}
        for what, name in (("query", "q_norm"), ("key", "k_norm")):
            module = getattr(attention, name, None)
            if module is None:
                continue
            norm = _norm(module, self.config, self.own)
            is_row = len(norm.weight) != len(self.order)
            weight = in_order(norm.weight, self.order)
            found[f"{what}_row_norm" if is_row else f"{what}_norm"] = Norm(
                weight, norm.epsilon, norm.dtype
            )
        return found

    def _qkv(self, attention: Any) -> linear.Linear:
        config, head_dim = self.config, len(self.order)
        if hasattr(attention, "qkv_proj"):
            queries = config.num_attention_heads * head_dim
            keys = config.num_key_value_heads * head_dim
            weights = attention.qkv_proj.weight.detach().split([queries, keys, keys])
            biases: Sequence[torch.Tensor] = ()
        else:
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            weights = tuple(each.weight.detach() for each in projections)
            biases = tuple(each.bias.detach() for each in projections if each.bias is not None)
        weight = torch.cat([*(in_order(each, self.order) for each in weights[:2]), weights[2]])
        bias = None
        if biases:
            bias = torch.cat([*(in_order(each, self.order) for each in biases[:2]), biases[2]])
        return self.make(weight, bias)

    def _mlp(self, mlp: Any) -> GatedMLP:
        if hasattr(mlp, "gate_up_proj"):
            return GatedMLP(
                self.make(mlp.gate_up_proj.weight.detach(), None), self._adding(mlp.down_proj)
            )
        weight = torch.cat([mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()])
        bias = None
        if mlp.gate_proj.bias is not None:
            bias = torch.cat([mlp.gate_proj.bias.detach(), mlp.up_proj.bias.detach()])
        return GatedMLP(self.make(weight, bias), self._adding(mlp.down_proj))

    def _experts(self, block: Any) -> Experts:
        router = block.gate if hasattr(block, "gate") else block.router
        shared = getattr(block, "shared_expert", None)
        return Experts(
            router=_rows(router),
            chosen=router.top_k,
            # Those who don't say have the softmax of the chosen alone.
            normalised=bool(getattr(router, "norm_topk_prob", True)),
            each=[self._expert(block.experts, at) for at in range(router.num_experts)],
            shared=None if shared is None else self._mlp(shared),
            shared_gate=None if shared is None else _rows(block.shared_expert_gate),
        )

    def _expert(self, experts: Any, at: int) -> GatedMLP:
        gate_up, down = experts.gate_up_proj[at].detach(), experts.down_proj[at].detach()
        biases: list[torch.Tensor | None] = [None, None]
        if hasattr(experts, "gate_up_proj_bias"):
            # gpt-oss: inputs before outputs, and a gate beside what it lets by.
            gate_up, down = _gates_first(gate_up.T), down.T.contiguous()
            biases = [
                _gates_first(experts.gate_up_proj_bias[at].detach()),
                experts.down_proj_bias[at].detach() * self.residuals,
            ]
        return GatedMLP(self.make(gate_up, biases[0]), self.make(down * self.residuals, biases[1]))

    def _adding(self, module: Any) -> linear.Linear:
        """The product that has what a layer adds."""
        weight, bias = module.weight.detach(), _bias(module)
        if self.residuals != 1:
            weight = weight * self.residuals
            bias = None if bias is None else bias * self.residuals
        return self.make(weight, bias)


def _gates_first(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([rows[::2], rows[1::2]])


def _rows(module: Any) -> Rows:
    bias = getattr(module, "bias", None)
    return Rows(_own(module.weight), None if bias is None else _own(bias))


def _bias(module: Any) -> torch.Tensor | None:
    return None if module.bias is None else module.bias.detach()


def _own(weight: torch.Tensor) -> torch.Tensor:
    """The weight, not as a part of the file that transformers has mapped: that can go then."""
    return weight.detach().clone() if weight.device.type == "cpu" else weight.detach()


def _norm(module: Any, config: Any, own: Architecture) -> Norm:
    weight = _own(module.weight).float()
    if own.norms_add_one:
        weight = 1 + weight
    return Norm(weight, config.rms_norm_eps, module.weight.dtype)


# Rotary embeddings --------------------------------------------------------------------------------


def _rope(module: Any, kind: str, parameters: dict[str, Any], config: Any) -> Rope:
    prefix = f"{kind}_" if kind else ""
    frequencies = getattr(module, f"{prefix}inv_freq").float()
    long = None
    if parameters["rope_type"] == "longrope":
        short_factor, long_factor = (
            torch.tensor(parameters[name], dtype=torch.float32, device=frequencies.device)
            for name in ("short_factor", "long_factor")
        )
        long = frequencies * short_factor / long_factor
    growth = parameters.get("llama_4_scaling_beta")
    return Rope(
        frequencies,
        float(getattr(module, f"{prefix}attention_scaling")),
        long,
        query_growth=growth,
        query_length=parameters.get("original_max_position_embeddings") if growth else None,
        axes=_axes(config, getattr(module, "mrope_section", None)),
    )


def _axes(config: Any, sections: Sequence[int] | None) -> list[int] | None:
    """By which of three positions each pair turns: in time, in rows and in columns (M-RoPE,
    arXiv:2409.12191); None where there is one.

    Args:
        config: of the text.
        sections: how many pairs turn by each.
    """
    if sections is None:
        return None
    if ARCHITECTURES[config.model_type].in_threes:
        axes = [0] * sum(sections)
        for axis in (1, 2):
            places = slice(axis, 3 * sections[axis], 3)
            axes[places] = [axis] * len(axes[places])
        return axes
    return [axis for axis, pairs in enumerate(sections) for _ in range(pairs)]


def _turned(config: Any, ropes: list[Rope]) -> list[bool]:
    """Of each layer, whether it turns by its rope; else it does by one added to `ropes`, which
    leaves all as it is."""
    turned = getattr(config, "no_rope_layers", None) or [1] * config.num_hidden_layers
    if not all(turned):
        ropes.append(Rope(torch.zeros_like(ropes[0].frequencies), 1.0))
    return [bool(each) for each in turned]


def pairwise(head_dim: int, rope: Rope) -> torch.Tensor:
    """The order of a head's dimensions in which those that turn together lie side by side.

    transformers has the first half of them and then the second.
    """
    device = rope.frequencies.device
    pairs = torch.arange(rope.dimensions, device=device).view(2, -1).T.flatten()
    return torch.cat([pairs, torch.arange(rope.dimensions, head_dim, device=device)])


def in_order(weight: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The rows of `weight` `[heads * head_dim, ...]`, each head's in `order`."""
    return weight.unflatten(0, (-1, len(order)))[:, order].flatten(0, 1)


# What configs call by several names ---------------------------------------------------------------


def _layer_kinds(config: Any) -> list[str]:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return list(kinds)
    windowed = getattr(config, "sliding_window", None) is not None
    kind = "sliding_attention" if windowed else "full_attention"
    return [kind] * config.num_hidden_layers
