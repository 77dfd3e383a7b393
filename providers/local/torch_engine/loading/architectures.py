"""Which architectures run in batches, and what each has of its own: a row for each `model_type`.

What transformers' modules show by themselves is not here: biases, norms of queries and keys,
experts, windows, keys and values of low rank, and what queries are turned by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from providers.local.torch_engine.loading.recurrences import Kind, state_shape_of
from providers.local.torch_engine.model.gated_mlp import UNGATED
from providers.local.torch_engine.model.recurrent.states import StateShape
from providers.local.torch_engine.model.rope import rope_lengths, rope_parameters
from providers.local.torch_engine.model.torch_step import (
    ACTIVATIONS,
    CLAMPED_SWIGLU,
    SWIGLU_ALPHA,
    SWIGLU_LIMIT,
)

ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn", "longrope", "proportional"})
"""Those whose frequencies do not depend on how long the sequence is, but for LongRoPE's, which has
two sets of them."""


class LayerNorms(NamedTuple):
    """What transformers calls the norms of a layer; None for one that is not there.

    Attributes:
        before_attention, after_attention: of what attention takes, and of what it adds.
        before_mlp, after_mlp: likewise. With none but the first, the MLP takes what attention does.
    """

    before_attention: str | None = "input_layernorm"
    after_attention: str | None = None
    before_mlp: str | None = None
    after_mlp: str | None = None

    @property
    def are_shared(self) -> bool:
        """Whether attention and MLP take the same, and are computed beside each other."""
        return self == LayerNorms()


BEFORE = LayerNorms(before_mlp="post_attention_layernorm")
AFTER = LayerNorms(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
BOTH = LayerNorms(
    after_attention="post_attention_layernorm",
    before_mlp="pre_feedforward_layernorm",
    after_mlp="post_feedforward_layernorm",
)
BOTH_OF_GLM = LayerNorms(
    after_attention="post_self_attn_layernorm",
    before_mlp="post_attention_layernorm",
    after_mlp="post_mlp_layernorm",
)


@dataclass(frozen=True, slots=True)
class Routing:
    """How the experts of a token are chosen, as far as the router does not say so itself.

    Attributes:
        sigmoid: each expert is scored by itself; else all scores are shares of one.
        normalised: whether the chosen ones' shares sum to 1, where the router has no setting.
        group_by: of how many of its best experts a group's score is the sum.
        weighs_inputs: the shares weigh what experts take, not what they give.
    """

    sigmoid: bool = False
    normalised: bool = True
    group_by: int = 1
    weighs_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Architecture:
    """What an architecture has of its own.

    Attributes:
        norms: of a layer.
        norms_add_one: the weights of norms are what they have more than 1.
        norms_centred: norms take the mean away first.
        turns_neighbours: what turns together lies side by side in the files too.
        turned_first: queries and keys are normalised once they are turned.
        fixed_by_alpha: with an `alpha`, dynamic frequencies do not depend on the length.
        turns_windows_only: layers without a window are not turned, where others have one.
        ahead_in_windows_only: in layers without a window, tokens of media look back alone.
        has_multipliers: embeddings, residuals, scores and logits are scaled by Granite's settings.
        gate: of its MLPs, where that is not the config's activation; of `UNGATED` where they have
            none.
        routing: of its experts.
        transposed_experts: their weights are `[inputs, outputs]`.
        in_threes: of three pairs of a head's dimensions that lie side by side, one turns by a
            token's time, one by its row in a picture, and one by its column.
        recurrences: what there is in the place of attention, by what the config's `layer_types`
            call such layers.
        renamed: what its modules are called, where all others have another name.
    """

    norms: LayerNorms = BEFORE
    norms_add_one: bool = False
    norms_centred: bool = False
    turns_neighbours: bool = False
    turned_first: bool = False
    fixed_by_alpha: bool = False
    turns_windows_only: bool = False
    ahead_in_windows_only: bool = False
    has_multipliers: bool = False
    gate: str | None = None
    routing: Routing = Routing()
    transposed_experts: bool = False
    in_threes: bool = False
    recurrences: Mapping[str, Kind] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def name(self, usual: str) -> str:
        """What it calls what others call so."""
        return self.renamed.get(usual, usual)


PLAIN = Architecture()
GEMMA = Architecture(norms=BOTH, norms_add_one=True)
GRANITE = Architecture(has_multipliers=True)
OLMO = Architecture(norms=AFTER)
EXAONE = Architecture(norms=AFTER, turns_windows_only=True)
GLM = Architecture(turns_neighbours=True)
COHERE = Architecture(
    norms=LayerNorms(), norms_centred=True, turns_neighbours=True, turns_windows_only=True
)
GROUPED = Routing(sigmoid=True, group_by=2)
"""DeepSeek V3's experts, and those of many since (arXiv:2412.19437)."""
HUNYUAN = Architecture(turned_first=True, fixed_by_alpha=True)
DEEPSEEK = Architecture(turns_neighbours=True, routing=GROUPED)
QWEN_NEXT = Architecture(norms_add_one=True, recurrences={"linear_attention": "gated_delta"})
LFM = Architecture(
    norms=LayerNorms("operator_norm", before_mlp="ffn_norm"),
    gate="silu",
    recurrences={"conv": "short_conv"},
    renamed={
        "norm": "embedding_norm",
        "o_proj": "out_proj",
        "gate_proj": "w1",
        "up_proj": "w3",
        "down_proj": "w2",
    },
)

ARCHITECTURES: Mapping[str, Architecture] = {
    "cwm": PLAIN,
    "llama": PLAIN,
    "llama4_text": Architecture(
        turns_neighbours=True,
        routing=Routing(sigmoid=True, normalised=False, weighs_inputs=True),
        transposed_experts=True,
    ),
    "mistral": PLAIN,
    "ministral": PLAIN,
    "ministral3": PLAIN,
    "mixtral": PLAIN,
    "phi3": PLAIN,
    "seed_oss": PLAIN,
    "smollm3": PLAIN,
    "qwen2": PLAIN,
    "qwen2_moe": PLAIN,
    "qwen2_vl_text": PLAIN,
    "qwen2_5_vl_text": PLAIN,
    "qwen3": PLAIN,
    "qwen3_moe": PLAIN,
    "qwen3_vl_text": Architecture(in_threes=True),
    "qwen3_vl_moe_text": Architecture(in_threes=True),
    "qwen3_next": QWEN_NEXT,
    "qwen3_5_text": QWEN_NEXT,
    "qwen3_5_moe_text": QWEN_NEXT,
    "lfm2": LFM,
    "lfm2_moe": replace(
        LFM,
        routing=Routing(sigmoid=True),
        renamed={**LFM.renamed, "rotary_emb": "pos_emb"},
    ),
    "olmoe": PLAIN,
    "olmo2": OLMO,
    "olmo3": OLMO,
    "granite": GRANITE,
    "granitemoe": GRANITE,
    "gemma": Architecture(norms_add_one=True),
    "gemma2": GEMMA,
    "gemma3_text": GEMMA,
    "gemma4_text": Architecture(norms=BOTH, ahead_in_windows_only=True),
    "gemma4_unified_text": Architecture(norms=BOTH),
    "gpt_oss": Architecture(gate=CLAMPED_SWIGLU, transposed_experts=True),
    "deepseek_v2": Architecture(turns_neighbours=True, routing=Routing(normalised=False)),
    "deepseek_v3": DEEPSEEK,
    "youtu": DEEPSEEK,
    "glm": GLM,
    "glm4": Architecture(norms=BOTH_OF_GLM, turns_neighbours=True),
    "glm4_moe": Architecture(routing=GROUPED),
    "glm4_moe_lite": DEEPSEEK,
    "dots1": Architecture(routing=GROUPED),
    "solar_open": Architecture(routing=GROUPED),
    "minimax_m2": Architecture(routing=Routing(sigmoid=True)),
    "ernie4_5": GLM,
    "ernie4_5_moe": GLM,
    "exaone4": EXAONE,
    "exaone_moe": Architecture(turns_windows_only=True, routing=GROUPED),
    "flex_olmo": OLMO,
    "helium": GLM,
    "internlm3": PLAIN,
    "jais2": Architecture(norms_centred=True, gate="relu2"),
    "mellum": PLAIN,
    "hunyuan_v1_dense": HUNYUAN,
    "hunyuan_v1_moe": HUNYUAN,
    "arcee": Architecture(gate="relu2"),
    "nemotron": Architecture(norms_add_one=True, norms_centred=True, gate="relu2"),
    "cohere": COHERE,
    "cohere2": COHERE,
}
"""By the `model_type` of the config, or of its text part."""


def why_not(config: Any) -> str | None:
    """What keeps a model with this config from running in batches; None if nothing does."""
    text = config.get_text_config()
    if text.model_type not in ARCHITECTURES:
        return f"its architecture '{text.model_type}' is none of those that share steps here"
    for rope in rope_parameters(text).values():
        is_fixed = ARCHITECTURES[text.model_type].fixed_by_alpha and rope.get("alpha")
        if rope["rope_type"] not in ROPE_TYPES and not is_fixed:
            return f"its rotary embeddings are of the type '{rope['rope_type']}'"
    if len(rope_lengths(text)) > 1:
        return "its rotary embeddings change at several lengths"
    gate = gate_of(text)
    if ARCHITECTURES[text.model_type].gate in UNGATED:
        if text.hidden_act != gate:
            return f"its activation is '{text.hidden_act}'"
    elif gate == CLAMPED_SWIGLU:
        own = (text.swiglu_alpha, text.swiglu_limit)
        if own != (SWIGLU_ALPHA, SWIGLU_LIMIT):
            return f"its gate is bounded by other numbers: {own[0]} and {own[1]}"
    elif gate not in ACTIVATIONS:
        return f"its activation is '{gate}'"
    if getattr(text, "clip_qkv", None):
        return "its queries and keys are clipped"
    if getattr(text, "use_bidirectional_attention", False) not in (None, False, "vision"):
        return "its tokens look ahead"
    if text.model_type == "cohere" and text.use_qk_norm:
        return "each of its heads has norms of its own"
    return None


def gate_of(text: Any) -> str:
    """What the gate of a text config's MLPs is called: one of `ACTIVATIONS`, if all is well."""
    own = ARCHITECTURES[text.model_type].gate
    return own or str(getattr(text, "hidden_activation", None) or text.hidden_act)


def state_shapes(text: Any) -> list[StateShape]:
    """What layers of a text config keep of each sequence; of layers with attention nothing."""
    kinds = ARCHITECTURES.get(text.model_type, PLAIN).recurrences
    if not kinds:
        return []
    return [state_shape_of(kinds[each], text) for each in text.layer_types if each in kinds]


def turns_neighbours(text: Any) -> bool:
    """Whether what turns together lies side by side in the files of a model with this config."""
    own = ARCHITECTURES[text.model_type]
    return own.turns_neighbours and bool(getattr(text, "rope_interleave", True))
