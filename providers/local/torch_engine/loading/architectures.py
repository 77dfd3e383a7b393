"""Which architectures run in batches, and what each has of its own: a row for each `model_type`.

What transformers' modules show by themselves is not here: biases, norms of queries and keys,
experts, windows, and what queries are turned by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from providers.local.torch_engine.model.rope_lengths import rope_lengths, rope_parameters
from providers.local.torch_engine.model.torch_step import (
    ACTIVATIONS,
    CLAMPED_SWIGLU,
    SWIGLU_ALPHA,
    SWIGLU_LIMIT,
)

ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn", "longrope"})
"""Those whose frequencies do not depend on how long the sequence is, but for LongRoPE's, which has
two sets of them."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """What an architecture has of its own.

    Attributes:
        norms: of a layer: before attention and MLP, behind them, or both.
        norms_add_one: the weights of norms are what they have more than 1.
        has_multipliers: embeddings, residuals, scores and logits are scaled by Granite's settings.
        gate: of its MLPs, where that is not the config's activation.
        in_threes: of three pairs of a head's dimensions that lie side by side, one turns by a
            token's time, one by its row in a picture, and one by its column.
    """

    norms: Literal["before", "after", "both"] = "before"
    norms_add_one: bool = False
    has_multipliers: bool = False
    gate: str | None = None
    in_threes: bool = False


PLAIN = Architecture()
GEMMA = Architecture(norms="both", norms_add_one=True)
GRANITE = Architecture(has_multipliers=True)
OLMO = Architecture(norms="after")

ARCHITECTURES: Mapping[str, Architecture] = {
    "cwm": PLAIN,
    "llama": PLAIN,
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
    "olmoe": PLAIN,
    "olmo2": OLMO,
    "olmo3": OLMO,
    "granite": GRANITE,
    "granitemoe": GRANITE,
    "gemma": Architecture(norms_add_one=True),
    "gemma2": GEMMA,
    "gemma3_text": GEMMA,
    "gpt_oss": Architecture(gate=CLAMPED_SWIGLU),
}
"""By the `model_type` of the config, or of its text part."""


def why_not(config: Any) -> str | None:
    """What keeps a model with this config from running in batches; None if nothing does."""
    text = config.get_text_config()
    if text.model_type not in ARCHITECTURES:
        return f"its architecture '{text.model_type}' is none of {', '.join(sorted(ARCHITECTURES))}"
    for rope in rope_parameters(text).values():
        if rope["rope_type"] not in ROPE_TYPES:
            return f"its rotary embeddings are of the type '{rope['rope_type']}'"
    if len(rope_lengths(text)) > 1:
        return "its rotary embeddings change at several lengths"
    gate = gate_of(text)
    if gate == CLAMPED_SWIGLU:
        own = (text.swiglu_alpha, text.swiglu_limit)
        if own != (SWIGLU_ALPHA, SWIGLU_LIMIT):
            return f"its gate is bounded by other numbers: {own[0]} and {own[1]}"
    elif gate not in ACTIVATIONS:
        return f"its activation is '{gate}'"
    if getattr(text, "clip_qkv", None):
        return "its queries and keys are clipped"
    if getattr(text, "use_bidirectional_attention", False):
        return "its tokens look ahead"
    return None


def gate_of(text: Any) -> str:
    """What the gate of a text config's MLPs is called: one of `ACTIVATIONS`, if all is well."""
    own = ARCHITECTURES[text.model_type].gate
    return own or str(getattr(text, "hidden_activation", None) or text.hidden_act)
