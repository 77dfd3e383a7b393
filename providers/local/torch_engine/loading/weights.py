"""A transformers model's weights as a `Decoder`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from providers.local.torch_engine.loading.architectures import (
    ARCHITECTURES,
    Architecture,
    Routing,
    gate_of,
    turns_neighbours,
)
from providers.local.torch_engine.loading.recurrences import recurrence_of
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import (
    Decoder,
    Heads,
    Layer,
    Norm,
    SideInput,
    SideInputs,
)
from providers.local.torch_engine.model.experts import Experts, Router, Rows, StackedMLPs
from providers.local.torch_engine.model.gated_mlp import UNGATED, GatedMLP
from providers.local.torch_engine.model.latent import Latent
from providers.local.torch_engine.model.rope import Rope, rope_lengths, rope_parameters

MLPS = ("mlp", "block_sparse_moe", "feed_forward")
"""What transformers calls a layer's MLP, or its experts."""

SHARED = ("shared_expert", "shared_experts", "shared_mlp")
"""What it calls what every token takes beside its experts."""

CORRECTIONS = ("e_score_correction_bias", "expert_bias")
"""What it calls what is added to the scores of experts where they are chosen alone."""

EPSILONS = ("variance_epsilon", "eps")
"""What its norms call what they add to the mean of the squares."""

HEAD_NORMS = {
    "query": ("q_norm", "q_layernorm", "query_layernorm", "qk_norm"),
    "key": ("k_norm", "k_layernorm", "key_layernorm", "qk_norm"),
    "value": ("v_norm",),
}
"""What it calls the norms of heads."""


def decoder_of(model: Any, make: linear.Make, make_head: linear.Make | None = None) -> Decoder:
    """The weights of a transformers language model, merged; `model` is used up by it.

    Args:
        model: on its device; its `config` passed `why_not`. Of one that takes media too, the
            part that reads text.
        make: of the matrix products.
        make_head: of the last of them, which tells the tokens; as the others are if None.

    Returns:
        The model; tell it how far its positions reach.
    """
    config = model.config.get_text_config()
    inner = model.get_decoder()
    while not hasattr(inner, "layers"):
        # Llama 4's says that it is itself the one.
        inner = inner.model
    own = ARCHITECTURES[config.model_type]
    read = _Layers(inner, config, own, make)
    layers = read.all()
    norm = _norm(getattr(inner, own.name("norm")), own)
    # Of the same numbers, as the head is linear.
    norm = replace(norm, weight=norm.weight * _logit_scale(config, own))
    head = model.get_output_embeddings()
    return Decoder(
        embedding=_own(inner.embed_tokens.weight),
        embedding_scale=_embedding_scale(inner, config, own),
        layers=layers,
        ropes=read.ropes,
        norm=norm,
        head=(make_head or make)(head.weight.detach(), _bias(head)),
        heads=read.usual.queries,
        kv_heads=read.usual.keys,
        head_dim=read.usual.size,
        attention_scale=float(read.first.scaling),
        activation=gate_of(config),
        score_cap=getattr(config, "attn_logit_softcapping", None),
        soft_cap=getattr(config, "final_logit_softcapping", None),
        long_after=next(iter(rope_lengths(config)), None),
        side_inputs=_side_inputs(inner, own, make),
    )


def _logit_scale(config: Any, own: Architecture) -> float:
    if own.has_multipliers:
        return 1 / float(config.logits_scaling)
    return float(getattr(config, "logit_scale", 1.0))


def _side_inputs(inner: Any, own: Architecture, make: linear.Make) -> SideInputs | None:
    if not hasattr(inner, "embed_tokens_per_layer"):
        return None
    table, projection = inner.embed_tokens_per_layer, inner.per_layer_model_projection
    weight = projection.weight.detach() * inner.per_layer_model_projection_scale
    return SideInputs(
        table=_own(table.weight),
        table_scale=float(table.embed_scale),
        projection=make(weight, None),
        norm=_norm(inner.per_layer_projection_norm, own),
        scale=float(inner.per_layer_input_scale),
        for_media=int(inner.config.pad_token_id or 0),
    )


def _embedding_scale(inner: Any, config: Any, own: Architecture) -> float:
    if own.has_multipliers:
        return float(config.embedding_multiplier)
    return float(getattr(inner.embed_tokens, "embed_scale", torch.tensor(1.0)))


class _Layers:
    """The layers of a transformers model, which are used up by reading them.

    Args:
        inner: what has them.
        config: of the text.
        own: what the architecture has of its own.
        make: of the matrix products.

    Attributes:
        first: the first attention.
        usual: the heads of most layers.
        ropes: those by which layers turn.
    """

    def __init__(self, inner: Any, config: Any, own: Architecture, make: linear.Make) -> None:
        self._inner, self._config, self._own, self._make = inner, config, own, make
        self.first = next(each.self_attn for each in inner.layers if hasattr(each, "self_attn"))
        self.usual = _heads(config, self.first)
        self._kinds = _layer_kinds(config)
        parameters = rope_parameters(config)
        # There may be parameters for a kind of which there is no layer.
        self._names = [name for name in parameters if name in self._kinds or not name]
        rotary = getattr(inner, own.name("rotary_emb"))
        self.ropes = [_rope(rotary, name, parameters[name], config) for name in self._names]
        self._turned = _turned(config, own, self._kinds, self.ropes)
        self._looked_at = _looked_at(config, self._kinds)
        self._residuals = float(config.residual_multiplier) if own.has_multipliers else 1.0

    def all(self) -> list[Layer]:
        """Each of them as ours."""
        # FBGEMM packs on a single core.
        on_cpu = self._inner.embed_tokens.weight.device.type == "cpu"
        at_once = torch.get_num_threads() if on_cpu else 1
        with ThreadPoolExecutor(at_once, thread_name_prefix="packing") as threads:
            return list(threads.map(self._read, range(len(self._inner.layers))))

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _read(self, index: int) -> Layer:
        config, kind = self._config, self._kinds[index]
        module = self._inner.layers[index]
        rope = self._names.index(kind) if len(self._names) > 1 else 0
        if not self._turned[index]:
            rope = len(self.ropes) - 1
        # Layers that keep a state have no heads to be in order.
        attention = getattr(module, "self_attn", self.first)
        order = order_of(config, _head_dim(attention), self.ropes[rope])
        reader = _Reader(config, self._own, self._make, order, self._residuals, self.usual)
        made = reader.layer(
            module,
            kind,
            rope=rope,
            window=config.sliding_window if kind == "sliding_attention" else None,
            chunk=config.attention_chunk_size if kind == "chunked_attention" else None,
            looks_at=self._looked_at[index],
        )
        # The weights of a few layers are there twice, never all.
        self._inner.layers[index] = torch.nn.Identity()
        return made


class _Reader(NamedTuple):
    """What is the same for all that is read of a layer.

    Attributes:
        config: of the text.
        own: what the architecture has of its own.
        make: of the matrix products.
        order: of a head's dimensions, see `order_of`.
        residuals: what is multiplied by it is what attention and MLP add.
        usual: the heads of most layers.
    """

    config: Any
    own: Architecture
    make: linear.Make
    order: torch.Tensor
    residuals: float
    usual: Heads

    def layer(
        self,
        module: Any,
        kind: str,
        *,
        rope: int,
        window: int | None,
        chunk: int | None,
        looks_at: int | None,
    ) -> Layer:
        """transformers' layer as ours."""
        norms = self.own.norms
        mlp = self._experts_beside(module) if hasattr(module, "experts") else self._mlps(module)
        return Layer(
            **{"query_norm": None, "key_norm": None, **self._mixer(module, kind)},
            input_norm=self._norm(module, norms.before_attention),
            attention_norm=self._norm(module, norms.after_attention),
            mlp_input_norm=self._mlp_input_norm(module),
            mlp=mlp,
            mlp_norm=self._norm(module, norms.after_mlp),
            rope=rope,
            window=window,
            chunk=chunk,
            beside=norms.are_shared,
            looks_at=looks_at,
            side=self._side(module),
            scale=float(getattr(module, "layer_scalar", 1.0)),
            ahead=window is not None or not self.own.ahead_in_windows_only,
        )

    def _mixer(self, module: Any, kind: str) -> dict[str, Any]:
        """What `Layer` has of its attention, or of what is in its place."""
        if kind in self.own.recurrences:
            return self._recurrence(module, kind)
        if hasattr(module.self_attn, "kv_b_proj"):
            return self._low_rank(module.self_attn)
        return self._attention(module.self_attn)

    def _attention(self, attention: Any) -> dict[str, Any]:
        """What `Layer` has of attention."""
        sinks = getattr(attention, "sinks", None)
        queries = getattr(attention, "q_proj", None)
        heads = _heads(self.config, attention)
        return {
            **self._norms_of_heads(attention),
            "qkv": self._qkv(attention),
            "out": self._adding(getattr(attention, self.own.name("o_proj"))),
            "sinks": None if sinks is None else _own(sinks),
            "turned_first": self.own.turned_first,
            "heads": None if heads == self.usual else heads,
            "gates_attention": queries is not None and self._has_gates(queries.weight),
        }

    def _low_rank(self, attention: Any) -> dict[str, Any]:
        """What `Layer` has where keys and values are made of a few numbers."""
        return {
            "qkv": self._latent_qkv(attention),
            "out": self._adding(attention.o_proj),
            "latent": self._latent(attention),
        }

    def _recurrence(self, module: Any, kind: str) -> dict[str, Any]:
        """What `Layer` has where it keeps a state of each sequence."""
        read = recurrence_of(self.own.recurrences[kind], module, self.config)
        return {
            "qkv": self.make(read.weight, read.bias),
            "out": self._adding(read.out),
            "recurrence": read.recurrence,
        }

    def _norm(self, module: Any, name: str | None) -> Norm | None:
        return None if name is None else _norm(getattr(module, name), self.own)

    def _norms_of_heads(self, attention: Any) -> dict[str, Norm]:
        """Of queries, keys and values: of each head, or of all together, by the names that `Layer`
        has."""
        found: dict[str, Norm] = {}
        for what, names in HEAD_NORMS.items():
            module = next(
                (getattr(attention, name) for name in names if hasattr(attention, name)), None
            )
            if module is None:
                continue
            if not hasattr(module, "weight"):
                dtype = attention.q_proj.weight.dtype
                ones = torch.ones(len(self.order), device=self.order.device)
                found[f"{what}_norm"] = Norm(ones, self.config.rms_norm_eps, dtype)
                continue
            norm = _norm(module, self.own)
            is_row = len(norm.weight) != len(self.order)
            weight = in_order(norm.weight, self.order)
            found[f"{what}_row_norm" if is_row else f"{what}_norm"] = replace(norm, weight=weight)
        return found

    def _qkv(self, attention: Any) -> linear.Linear:
        config, head_dim = self.config, len(self.order)
        if hasattr(attention, "qkv_proj"):
            queries = config.num_attention_heads * head_dim
            keys = config.num_key_value_heads * head_dim
            weights = attention.qkv_proj.weight.detach().split([queries, keys, keys])
            biases: Sequence[torch.Tensor] = ()
        else:
            names = ("q_proj", "k_proj", "v_proj")
            projections = [getattr(attention, name, None) for name in names]
            if projections[2] is None:
                # Gemma 4: the same product, or another layer's.
                projections[2] = projections[1]
            there = [each for each in projections if each is not None]
            weights = tuple(each.weight.detach() for each in there)
            biases = tuple(each.bias.detach() for each in there if each.bias is not None)
        bias = self._merged(biases) if biases else None
        return self.make(self._merged(weights), bias)

    def _merged(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Queries, keys and values, and what gates what is found, which Qwen has beside the queries
        of each head."""
        queries, *others = parts
        gates: list[torch.Tensor] = []
        if self._has_gates(queries):
            both = queries.unflatten(0, (self.config.num_attention_heads, -1)).chunk(2, 1)
            queries, gate = (each.flatten(0, 1) for each in both)
            gates = [gate]
        turned = (in_order(each, self.order) for each in (queries, *others[:1]))
        return torch.cat([*turned, *others[1:], *gates])

    def _has_gates(self, queries: torch.Tensor) -> bool:
        """Whether there is a gate beside each of these queries."""
        return bool(len(queries) == 2 * self.config.num_attention_heads * len(self.order))

    def _latent_qkv(self, attention: Any) -> linear.Linear:
        """Queries, or what they are made of, and the row: see `Latent`."""
        low = attention.q_proj is None
        queries = attention.q_a_proj if low else attention.q_proj
        rows = attention.kv_a_proj_with_mqa
        rank = self.config.kv_lora_rank

        def merged(of_queries: torch.Tensor, of_rows: torch.Tensor) -> torch.Tensor:
            of_queries = of_queries if low else self._turned_first(of_queries)
            return torch.cat([of_queries, in_order(of_rows[rank:], self.order), of_rows[:rank]])

        bias = None
        if rows.bias is not None:
            none = queries.weight.new_zeros(len(queries.weight))
            own = none if queries.bias is None else queries.bias.detach()
            bias = merged(own, rows.bias.detach())
        return self.make(merged(queries.weight.detach(), rows.weight.detach()), bias)

    def _turned_first(self, weight: torch.Tensor) -> torch.Tensor:
        """The rows of `weight` `[heads * (unturned + turned), ...]`, what is turned first."""
        by_head = weight.unflatten(0, (self.config.num_attention_heads, -1))
        unturned = by_head.shape[1] - len(self.order)
        both = [by_head[:, unturned:][:, self.order], by_head[:, :unturned]]
        return torch.cat(both, 1).flatten(0, 1)

    def _latent(self, attention: Any) -> Latent:
        config = self.config
        both = attention.kv_b_proj.weight.detach().unflatten(0, (config.num_attention_heads, -1))
        keys, values = both.split([config.qk_nope_head_dim, config.v_head_dim], 1)
        low = attention.q_proj is None
        return Latent(
            row_norm=_norm(attention.kv_a_layernorm, self.own),
            to_rows=keys.contiguous().clone(),
            to_values=values.transpose(1, 2).contiguous(),
            queries_norm=_norm(attention.q_a_layernorm, self.own) if low else None,
            queries=self.make(self._turned_first(attention.q_b_proj.weight.detach()), None)
            if low
            else None,
        )

    def _side(self, module: Any) -> SideInput | None:
        if not hasattr(module, "per_layer_input_gate"):
            return None
        return SideInput(
            self.make(module.per_layer_input_gate.weight.detach(), None),
            self.make(module.per_layer_projection.weight.detach(), None),
            _norm(module.post_per_layer_input_norm, self.own),
        )

    def _mlp(self, mlp: Any) -> GatedMLP:
        if self.own.gate in UNGATED:
            weight = mlp.up_proj.weight.detach()
            return GatedMLP(
                self.make(weight, _bias(mlp.up_proj)), self._adding(mlp.down_proj), len(weight)
            )
        if hasattr(mlp, "gate_up_proj"):
            weight = mlp.gate_up_proj.weight.detach()
            return GatedMLP(self.make(weight, None), self._adding(mlp.down_proj), len(weight) // 2)
        gate, up, down = (
            getattr(mlp, self.own.name(name)) for name in ("gate_proj", "up_proj", "down_proj")
        )
        weight = torch.cat([gate.weight.detach(), up.weight.detach()])
        bias = None
        if gate.bias is not None:
            bias = torch.cat([gate.bias.detach(), up.bias.detach()])
        return GatedMLP(self.make(weight, bias), self._adding(down), len(weight) // 2)

    def _mlp_input_norm(self, module: Any) -> Norm | None:
        norm = self._norm(module, self.own.norms.before_mlp)
        if norm is None or not hasattr(module, "experts"):
            return norm
        # All that is beside each other weighs it for itself.
        return replace(norm, weight=torch.ones_like(norm.weight))

    def _mlps(self, module: Any) -> GatedMLP | Experts:
        mlp = next(getattr(module, name) for name in MLPS if hasattr(module, name))
        return self._experts(mlp) if hasattr(mlp, "experts") else self._mlp(mlp)

    def _experts_beside(self, module: Any) -> Experts:
        """Gemma 4's: an MLP and experts, which take the same, each by its own norm."""
        router, config, own = module.router, self.config, self.own
        scores = router.proj.weight.detach() * router.scale.detach() * router.scalar_root_size
        inputs, shared_inputs = (
            _norm(getattr(module, name), own).weight.to(scores.dtype)
            for name in ("pre_feedforward_layernorm_2", "pre_feedforward_layernorm")
        )
        return Experts(
            router=Router(
                Rows(scores),
                config.top_k_experts,
                normalised=True,
                each_scale=_own(router.per_expert_scale).float(),
            ),
            each=self._each(module.experts),
            shared=self._mlp(module.mlp),
            inputs=inputs,
            shared_inputs=shared_inputs,
            norm=_norm(module.post_feedforward_layernorm_2, own),
            shared_norm=_norm(module.post_feedforward_layernorm_1, own),
        )

    def _experts(self, block: Any) -> Experts:
        module = block.gate if hasattr(block, "gate") else block.router
        shared = next((getattr(block, name) for name in SHARED if hasattr(block, name)), None)
        gate = getattr(block, "shared_expert_gate", None)
        return Experts(
            router=self._router(block, module),
            each=self._each(block.experts),
            shared=None if shared is None else self._mlp(shared),
            shared_gate=None if gate is None else _rows(gate),
            weighs_inputs=self.own.routing.weighs_inputs,
        )

    def _router(self, block: Any, module: Any) -> Router:
        own, scores = self.own.routing, _rows(getattr(module, "wg", module))
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
            correction=None if correction is None else _own(correction).float().flatten(),
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
    bias = getattr(module, "bias", None)
    return None if bias is None else bias.detach()


def _own(weight: torch.Tensor) -> torch.Tensor:
    """The weight, not as a part of the file that transformers has mapped: that can go then."""
    return weight.detach().clone() if weight.device.type == "cpu" else weight.detach()


def _norm(module: Any, own: Architecture) -> Norm:
    weight = _own(module.weight).float()
    if own.norms_add_one:
        weight = 1 + weight
    epsilon = next(getattr(module, name) for name in EPSILONS if hasattr(module, name))
    bias = _bias(module)
    return Norm(
        weight,
        epsilon,
        module.weight.dtype,
        centred=own.norms_centred,
        bias=None if bias is None else bias.float(),
    )


def _head_dim(attention: Any) -> int:
    """Of what is turned in queries and keys, and what is beside that in the same heads."""
    return int(getattr(attention, "head_dim", None) or attention.qk_rope_head_dim)


def _heads(config: Any, attention: Any) -> Heads:
    queries = config.num_attention_heads
    return Heads(queries, queries // attention.num_key_value_groups, _head_dim(attention))


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


def _turned(config: Any, own: Architecture, kinds: list[str], ropes: list[Rope]) -> list[bool]:
    """Of each layer, whether it turns by its rope; else it does by one added to `ropes`, which
    leaves all as it is, or makes queries longer alone."""
    turned = [bool(each) for each in getattr(config, "no_rope_layers", None) or [1] * len(kinds)]
    if own.turns_windows_only and getattr(config, "sliding_window", None) is not None:
        turned = [kind == "sliding_attention" for kind in kinds]
    if not all(turned):
        still = Rope(torch.zeros_like(ropes[0].frequencies), 1.0)
        if getattr(config, "attn_temperature_tuning", False):
            still = replace(
                still,
                query_growth=float(config.attn_scale),
                query_length=int(config.floor_scale),
                query_start=1,
            )
        ropes.append(still)
    return turned


def _looked_at(config: Any, kinds: list[str]) -> list[int | None]:
    """Of each layer, the one whose keys and values it looks at; None for its own."""
    count = getattr(config, "num_kv_shared_layers", None) or 0
    first = len(kinds) - count
    last = {kind: at for at, kind in enumerate(kinds[:first])}
    return [None] * first + [last[kind] for kind in kinds[first:]]


def order_of(config: Any, head_dim: int, rope: Rope) -> torch.Tensor:
    """The order of a head's dimensions in which those that turn together lie side by side.

    Most of transformers' models have the first half of them and then the second.
    """
    device = rope.frequencies.device
    if turns_neighbours(config):
        return torch.arange(head_dim, device=device)
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
