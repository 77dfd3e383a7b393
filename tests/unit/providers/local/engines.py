"""Engines over tiny models, and what they generate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from llama_compat.types import GreedySamplingStrategy, SamplingParams, StopReason
from providers.local.engine import Constraint, Ended, Generation, Prefilled, Sampled, TokenScores
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.loader import load
from tests.made_once import made_once
from tests.tiny_models import make_tokenizer

GREEDY = GreedySamplingStrategy()

REPLY = 17
"""Tokens of a reply: as many as fill a block of the cache, wherever in one its prompt ends."""

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "llama with llama3 rope": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "qwen2": {},
    "qwen3": {"head_dim": 32},
    "mistral": {"sliding_window": 24, "head_dim": 16},
    "gemma3_text": {
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "sliding_window": 24,
        # Its own, of every sixth layer, takes seven.
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "num_hidden_layers": 3,
    },
    "phi3": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        }
    },
    # Phi 3.5 and Phi 4 mini; half of the prompts in the tests come to be long.
    "phi3 with longrope": {
        "original_max_position_embeddings": 64,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
            "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0],
            "original_max_position_embeddings": 64,
        },
    },
}
"""Names, of which the first word is the `model_type`, and what is special in their configs."""

EXPERTS = {
    "num_experts": 6,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}
BOTH_KINDS = {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]}
MULTIPLIERS = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.2,
    "logits_scaling": 2.0,
}

UNUSUAL: dict[str, dict[str, Any]] = {
    "gemma2": {
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 10.0,
        **BOTH_KINDS,
    },
    "gpt_oss": {"head_dim": 16, **EXPERTS, **BOTH_KINDS},
    # All but the shortest of the prompts in the tests are longer than its first training's.
    "ministral3": {
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 32,
            "llama_4_scaling_beta": 0.3,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
        },
    },
}
"""As `ARCHITECTURES`, of those whose attention PyTorch's own operations compute."""

GROUPS = {
    "n_routed_experts": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 48,
    "n_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.7,
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
}
LOW_RANK = {
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 20,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.7,
    "mscale_all_dim": 0.5,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}

BEYOND: dict[str, dict[str, Any]] = {
    "arcee": {"hidden_act": "relu2"},
    "cohere": {"logit_scale": 0.5},
    "cohere2": {"head_dim": 16, "logit_scale": 0.5, **BOTH_KINDS},
    "deepseek_v2": {**LOW_RANK, **GROUPS, "topk_method": "group_limited_greedy"},
    "deepseek_v3": {
        **LOW_RANK,
        **GROUPS,
        "q_lora_rank": 32,
        "attention_bias": True,
        "rope_parameters": YARN,
    },
    "glm4_moe_lite": {**LOW_RANK, **GROUPS, "rope_interleave": False},
    "hunyuan_v1_dense": {
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "dynamic",
            "rope_theta": 10000.0,
            "alpha": 100.0,
            "factor": 1.0,
        },
    },
    "hunyuan_v1_moe": {**EXPERTS, "head_dim": 16, "moe_topk": 2},
    "nemotron": {"head_dim": 16, "hidden_act": "relu2"},
    "youtu": {**LOW_RANK, "q_lora_rank": 32},
    # A chunk ends within prompts and within replies.
    "llama4_text": {
        "head_dim": 16,
        "intermediate_size_mlp": 96,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "moe_layers": [1, 2],
        "num_hidden_layers": 4,
        "no_rope_layers": [1, 1, 1, 0],
        "attention_chunk_size": 24,
        "attn_temperature_tuning": True,
        "floor_scale": 16,
        "attn_scale": 0.4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    # E2B and E4B; and the larger ones.
    "gemma4_text": {
        "head_dim": 16,
        "global_head_dim": 32,
        "num_hidden_layers": 6,
        "num_kv_shared_layers": 3,
        "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 400,
        "final_logit_softcapping": 10.0,
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    },
    "gemma4_unified_text": {"head_dim": 16, "global_head_dim": 32, **BOTH_KINDS},
    "jais2": {"hidden_act": "relu2", "attention_bias": True},
    "gemma4_text without shared layers": {
        "head_dim": 16,
        "global_head_dim": 32,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "num_experts": 6,
        "top_k_experts": 2,
        "moe_intermediate_size": 48,
        **BOTH_KINDS,
    },
}
"""As `UNUSUAL`, of those whose layers or norms are others than kernels compute."""

FURTHER: dict[str, dict[str, Any]] = {
    "dots1": GROUPS,
    "ernie4_5": {"use_bias": True},
    "ernie4_5_moe": {**EXPERTS, "moe_num_shared_experts": 2, "moe_num_experts": 6, "moe_k": 2},
    "exaone4": BOTH_KINDS,
    "exaone_moe": {
        **EXPERTS,
        **BOTH_KINDS,
        "n_group": 3,
        "topk_group": 2,
        "num_shared_experts": 1,
        "mlp_layer_types": ["dense", "sparse"],
    },
    "flex_olmo": EXPERTS,
    "helium": {"head_dim": 16},
    "internlm3": {"qkv_bias": True, "bias": True},
    "mellum": {**EXPERTS, **BOTH_KINDS},
    "solar_open": GROUPS,
    "glm": {"head_dim": 16, "attention_bias": True},
    "glm4": {"head_dim": 16, "attention_bias": True},
    "glm4_moe": {**GROUPS, "use_qk_norm": True, "head_dim": 16},
    "minimax_m2": EXPERTS,
    "gemma": {"head_dim": 16},
    "granite": MULTIPLIERS,
    "granitemoe": {**EXPERTS, **MULTIPLIERS},
    "ministral": {"head_dim": 16, **BOTH_KINDS},
    "mixtral": EXPERTS,
    "olmo2": {},
    "olmo3": BOTH_KINDS,
    "olmoe": EXPERTS,
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 64},
    "qwen3_moe": {**EXPERTS, "head_dim": 32, "norm_topk_prob": True, "mlp_only_layers": [1]},
    "seed_oss": {"head_dim": 32},
    "smollm3": {"no_rope_layers": [1, 0]},
}
"""As `ARCHITECTURES`, of those that differ from these in what no kernel computes."""

DELTA = {
    "head_dim": 32,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_hidden_layers": 3,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}
HYBRIDS: dict[str, dict[str, Any]] = {
    "qwen3_next": {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 48},
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 48},
    "lfm2": {
        "layer_types": ["conv", "full_attention", "conv"],
        "num_hidden_layers": 3,
        "conv_bias": True,
    },
    "lfm2_moe": {
        **EXPERTS,
        "layer_types": ["conv", "full_attention", "conv"],
        "num_hidden_layers": 3,
        "num_dense_layers": 1,
        "routed_scaling_factor": 1.7,
    },
}
"""As `ARCHITECTURES`, of those whose layers are attention in part only."""


@made_once
def make_architecture(folder: Path, name: str, **members: Any) -> Path:
    """Write a random model of an architecture to `folder`, which is returned; `members` are in
    place of its config's."""
    model_type = name.split()[0]
    llama = transformers.LlamaConfig(**make_tokenizer(folder))
    settings = json.loads(llama.to_json_string(use_diff=True))
    for member in ("model_type", "architectures", "rope_parameters", "dtype", "head_dim"):
        settings.pop(member, None)
    settings["num_hidden_layers"] = 2
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(
        model_type,
        **settings | (ARCHITECTURES | UNUSUAL | BEYOND | FURTHER | HYBRIDS)[name] | members,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            # Random too: untrained norms and biases are ones and zeros, which hide mistakes.
            if any(part in parameter_name for part in ("norm", "bias", "router.", "_scale")):
                parameter.add_(torch.randn_like(parameter) * 0.2)
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith(("e_score_correction_bias", "expert_bias", "layer_scalar")):
                buffer.add_(torch.randn_like(buffer) * 0.2)
    model.save_pretrained(folder)
    return folder


def opened(folder: Path, **options: Any) -> TorchEngine:
    """An engine that runs; stop it."""
    context_length = options.pop("context_length", None)
    settings: dict[str, Any] = {"device": "cpu", "quantization": "none", **options}
    # A step has a token for each, or the template would be refused.
    settings.setdefault("max_sequences", min(32, settings.get("max_step_tokens", 32)))
    config = TorchConfig(**settings)
    engine = TorchEngine(load(str(folder), folder, config, context_length))
    engine.start()
    return engine


@asynccontextmanager
async def running(folder: Path, **options: Any) -> AsyncGenerator[TorchEngine, None]:
    """An engine that is stopped in the end."""
    engine = await asyncio.to_thread(opened, folder, **options)
    try:
        yield engine
    finally:
        await asyncio.to_thread(engine.stop)


def tried_once() -> Callable[..., bool]:
    """llama.cpp's `try_out`, for files that stay as they are: the process that it takes is started
    once for each file and each way of running it."""
    from providers.local.llama_cpp_engine.trial import try_out

    said: dict[Any, bool] = {}

    def tried(name: str, path: Path, adapters: Sequence[Path], threads: int, **others: Any) -> bool:
        asked = (path, *adapters, threads, *others.items())
        if asked not in said:
            said[asked] = try_out(name, path, adapters, threads, **others)
        return said[asked]

    return tried


class Result:
    """What came of one generation."""

    def __init__(self) -> None:
        self.cached_tokens = -1
        self.prompt_scores: tuple[TokenScores, ...] = ()
        self.token_ids: list[int] = []
        self.scores: list[TokenScores | None] = []
        self.stop_reason: StopReason | None = None


async def generate(
    engine: TorchEngine,
    prompt_ids: Sequence[int],
    max_tokens: int = 16,
    *,
    logprobs: int | None = None,
    prompt_logprobs: bool = False,
    constraint: Constraint | None = None,
    adapter: str | None = None,
    **sampling: Any,
) -> Result:
    """The tokens that follow `prompt_ids`, greedily unless told otherwise, with the end token."""
    params = SamplingParams(**{"strategy": GREEDY, **sampling})
    generation = Generation(
        tuple(prompt_ids),
        params,
        max_tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        constraint=constraint,
        adapter=adapter,
    )
    result = Result()
    async for outputs in engine.generate(generation):
        for output in outputs:
            match output:
                case Prefilled(cached_tokens, scores):
                    result.cached_tokens, result.prompt_scores = cached_tokens, scores
                case Sampled(token_id, score):
                    result.token_ids.append(token_id)
                    result.scores.append(score)
                case Ended(stop_reason, token_id):
                    result.stop_reason = stop_reason
                    if token_id is not None:
                        result.token_ids.append(token_id)
    assert result.stop_reason is not None
    return result


STOP_TOKENS = [0, 2]
"""The tiny vocabulary's `<|endoftext|>` and `<|im_end|>`."""


def reference(
    folder: Path,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    guesses: Sequence[Sequence[int]] = (),
) -> list[list[int]]:
    """What transformers' own `generate` makes of each prompt, greedily, in float32.

    Args:
        folder: the model's.
        prompts: tokens.
        max_tokens: how long a reply may be.
        guesses: what each reply may be. One that is right is found to be so in one step, and what
            is wrong changes nothing. Without them they are those of all prompts in one batch.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return replies_of(model, prompts, max_tokens, guesses)


def replies_of(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    guesses: Sequence[Sequence[int]] = (),
) -> list[list[int]]:
    """As `reference`, of a model that is loaded."""
    if len(prompts) == 1 and not guesses:
        return _generated(model, prompts, max_tokens)
    rope = getattr(model.config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("longrope", "dynamic"):
        # What one step makes of a reply is not what many do: they begin as a short sequence.
        return [_generated(model, [prompt], max_tokens)[0] for prompt in prompts]
    guesses = guesses or _generated(model, prompts, max_tokens)
    return [
        list(guess)
        if _is_greedy(model, prompt, guess, max_tokens)
        else _generated(model, [prompt], max_tokens)[0]
        for prompt, guess in zip(prompts, guesses, strict=True)
    ]


def _generated(model: Any, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
    """What `generate` makes of them in one batch, where not each model minds the padding."""
    longest = max(map(len, prompts))
    padded = [[STOP_TOKENS[0]] * (longest - len(each)) + list(each) for each in prompts]
    mask = [[0] * (longest - len(each)) + [1] * len(each) for each in prompts]
    output = model.generate(
        torch.tensor(padded),
        attention_mask=torch.tensor(mask),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=STOP_TOKENS,
        pad_token_id=STOP_TOKENS[0],
    )
    return [_up_to_its_end(row) for row in output[:, longest:].tolist()]


def _up_to_its_end(reply: list[int]) -> list[int]:
    ends = (place for place, token in enumerate(reply) if token in STOP_TOKENS)
    return reply[: next(ends, len(reply)) + 1]


def _is_greedy(model: Any, prompt: Sequence[int], reply: Sequence[int], max_tokens: int) -> bool:
    """Whether each token of `reply` is the likeliest after those before it, and it ends where
    `generate` would."""
    *others, last = reply
    if any(each in STOP_TOKENS for each in others):
        return False
    if len(reply) != max_tokens and (len(reply) > max_tokens or last not in STOP_TOKENS):
        return False
    ids = torch.tensor([[*prompt, *others]])
    with torch.inference_mode():
        logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 :]
    return logits.argmax(-1).tolist() == list(reply)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the engine's thread to have done something."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (the engine's figures tell nobody of a change)
            await asyncio.sleep(0.001)
