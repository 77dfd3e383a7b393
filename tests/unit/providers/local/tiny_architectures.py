"""A tiny config for every causal language model that transformers has."""

from __future__ import annotations

from typing import Any

from transformers import CONFIG_MAPPING

VOCABULARY = 120
WINDOW = 24

_SIZES: dict[tuple[str, ...], Any] = {
    ("vocab_size", "vocab_size_per_layer_input", "shape_vocab_size"): VOCABULARY,
    ("pronunciation_vocab_size",): VOCABULARY,
    (
        *("hidden_size", "d_model", "n_embd", "n_embed", "dim", "embedding_size", "emb_dim"),
        "word_embed_proj_dim",
    ): 32,
    (
        *("intermediate_size", "ffn_dim", "d_inner", "n_inner", "decoder_ffn_dim"),
        *("encoder_ffn_dim", "ffn_hidden_size", "feed_forward_proj_dim"),
    ): 48,
    (
        *("moe_intermediate_size", "expert_intermediate_size", "shared_expert_intermediate_size"),
    ): 24,
    (
        *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"),
        *("encoder_layers", "num_decoder_layers", "num_encoder_layers"),
    ): 2,
    (
        *("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"),
        *("encoder_attention_heads", "num_decoder_attention_heads"),
        *("num_encoder_attention_heads", "n_mamba_heads"),
    ): 4,
    ("num_key_value_heads",): 2,
    (
        *("head_dim", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"),
        *("v_head_dim", "state_size", "ssm_state_size", "mamba_d_state", "mamba_n_heads"),
        *("mamba_d_head", "linear_head_dim", "linear_key_head_dim", "linear_value_head_dim"),
    ): 8,
    ("linear_num_heads", "linear_num_value_heads"): 4,
    ("linear_num_key_heads",): 2,
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"): 4,
    ("num_experts_per_tok", "num_experts_per_token"): 2,
    ("n_group", "topk_group", "mamba_n_groups", "n_groups"): 1,
    ("mamba_headdim", "chunk_size", "mamba_chunk_size"): 16,
    ("sliding_window",): WINDOW,
    ("attention_chunk_size",): 32,
    ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"): 256,
    ("initializer_range", "init_std"): 0.2,
    ("is_decoder",): True,
    ("pad_token_id",): 0,
    ("bos_token_id",): 1,
    ("eos_token_id",): 2,
}
SIZES = {name: value for names, value in _SIZES.items() for name in names}

ONE_OF_EACH = ["linear_attention", "full_attention"]
INDEXED = {
    "layer_types": ["linear_attention", "indexed_attention"],
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": 256,
    "indexer_compress_ratio": 4,
}
LATENT = {"num_key_value_heads": 4}
"""For attention with keys and values of low rank, which every head has."""

OWN: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite"), LATENT
    ),
    **dict.fromkeys(("glm_moe_dsa", "longcat_flash", "minicpm3", "youtu"), LATENT),
    **{key: {"layer_types": ONE_OF_EACH} for key in ("qwen3_next", "qwen3_5_text")},
    **{key: {"layer_types": ONE_OF_EACH} for key in ("qwen3_5_moe_text", "granitemoehybrid")},
    **{key: {"text_config": {"layer_types": ONE_OF_EACH}} for key in ("qwen3_5", "qwen3_5_moe")},
    "bailing_hybrid": {**LATENT, "layer_types": ONE_OF_EACH},
    **{
        key: {
            "layer_types": ["sliding_attention", "full_attention"],
            "per_layer_config": {},
            "head_dim": 8,
            "hidden_size_per_layer_input": 8,
        }
        for key in ("gemma4_text", "gemma4_unified_text")
    },
    "gemma4": {
        "text_config": {
            "layer_types": ["sliding_attention", "full_attention"],
            "per_layer_config": {},
            "head_dim": 8,
            "hidden_size_per_layer_input": 8,
        }
    },
    "llama4": {"text_config": {"moe_layers": [1], "no_rope_layers": [1, 0]}},
    "bamba": {"attn_layer_indices": [1]},
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10_000.0}
            for kind in ("sliding_attention", "full_attention")
        },
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    "codegen": {"rotary_dim": 8},
    "dots3_note_text": {
        **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "index_n_heads"), 4),
        **dict.fromkeys(("kv_lora_rank", "qk_nope_head_dim", "index_head_dim"), 8),
        "shared_experts_intermediate_size": 24,
    },
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    "gptj": {"rotary_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {**LATENT, "layer_types": ONE_OF_EACH},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "qwen4_exp": {"text_config": INDEXED},
    "qwen4_exp_text": INDEXED,
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": WINDOW},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "num_hidden_layers": 5,
        "layers_block_type": ["linear_attention", *["linear_attention", "hybrid"] * 2],
        "attention_head_dim": 16,
    },
    "zamba2": {
        "num_hidden_layers": 3,
        "layers_block_type": ["linear_attention", "linear_attention", "hybrid"],
    },
    "zaya": {"num_experts_per_tok": 1},
}
"""What else has to fit together, by the `model_type`."""


def tiny_config(kind: str, **members: Any) -> Any:
    """A config of this `model_type`, with two layers mostly, `members` in place of its own."""
    config_class = CONFIG_MAPPING[kind]
    own = config_class()
    settings: dict[str, Any] = _sizes(own)
    for name in getattr(config_class, "sub_configs", {}):
        part = getattr(own, name, None)
        if part is not None:
            settings[name] = _sizes(part)
    for name, value in {**OWN.get(kind, {}), **members}.items():
        if isinstance(value, dict) and isinstance(settings.get(name), dict):
            value = settings[name] | value
        settings[name] = value
    return config_class(**settings)


def _sizes(config: Any) -> dict[str, Any]:
    names = {*config.to_dict(), *getattr(config, "attribute_map", {})}
    return {name: size for name, size in SIZES.items() if name in names and _is_plain(config, name)}


def _is_plain(config: Any, name: str) -> bool:
    """Whether the config has one such value, and no part of that name or one for each layer."""
    try:
        return not isinstance(getattr(config, name, None), dict)
    except Exception:  # of a config that has it for each layer
        return False
