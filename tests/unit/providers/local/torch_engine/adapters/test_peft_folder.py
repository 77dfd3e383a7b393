"""PEFT's folders: what is read of them, and what is refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from providers.base import ProviderStartError
from tests.tiny_adapters import make_adapter, merged
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, make_architecture, reference, running

PROMPT = list(range(20, 61))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": 1, "alpha": 1.0},
        {"use_rslora": True},
        {"rank_pattern": {"q_proj": 8, "layers.1.mlp.up_proj": 2}},
        {"alpha_pattern": {"o_proj": 32, ".*down_proj": 1}},
        {"rank_pattern": {"k_proj": 7}, "alpha_pattern": {"k_proj": 3}, "use_rslora": True},
        {"init_lora_weights": "gaussian"},
        {"target_modules": "all-linear"},
    ],
    ids=str,
)
async def test_what_the_settings_say_is_computed(
    tmp_path: Path, model: Path, settings: dict[str, Any]
) -> None:
    adapter = make_adapter(tmp_path / "adapter", model, seed=3, **settings)
    [wanted] = reference(merged(tmp_path / "merged", model, adapter), [PROMPT], 16)
    async with running(model) as engine:
        engine.load_adapter(str(adapter))
        result = await generate(engine, PROMPT, adapter=str(adapter))
    assert result.token_ids == wanted


async def refusal(model: Path, adapter: Path) -> str:
    async with running(model) as engine:
        with pytest.raises(ProviderStartError) as refused:
            engine.load_adapter(str(adapter))
        assert not engine.adapters
    return str(refused.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"use_dora": True}, "it has DoRA (`use_dora`), which is not supported"),
        ({"modules_to_save": ["lm_head"]}, "it has whole modules of its own (`modules_to_save`)"),
        ({"bias": "all"}, "it has trained biases (`bias: all`)"),
        ({"peft_type": "IA3"}, "it is of the kind 'IA3', and only LoRA is supported"),
        ({"lora_bias": True}, "it has biases of its own"),
        ({"fan_in_fan_out": True}, "it has weights that lie the other way round"),
        ({"layer_replication": [[0, 2]]}, "it has layers that are repeated"),
        ({"init_lora_weights": "pissa_niter_4"}, "its training began with other weights"),
        ({"r": 5}, "has the rank 4, and its adapter_config.json says 5"),
        ({"r": None}, "its adapter_config.json says no rank"),
        ({"lora_alpha": "much"}, "says no rank ('r') or no 'lora_alpha'"),
    ],
    ids=str,
)
async def test_what_is_not_supported_is_refused(
    tmp_path: Path, model: Path, settings: dict[str, Any], reason: str
) -> None:
    adapter = make_adapter(tmp_path / "adapter", model)
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    said = await refusal(model, adapter)
    assert said.startswith(f"The adapter '{adapter}' can't be used with the model '{model}': ")
    assert reason in said


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"hidden_size": 96}, "it was trained for another model: its q_proj"),
        ({"intermediate_size": 96}, "it was trained for another model"),
        ({"num_hidden_layers": 3}, "it adapts layer 2, and the model has 2"),
    ],
    ids=str,
)
async def test_an_adapter_for_another_model_is_refused(
    tmp_path: Path, model: Path, config: dict[str, int], reason: str
) -> None:
    other = make_model(tmp_path / "other", **config)
    said = await refusal(model, make_adapter(tmp_path / "adapter", other))
    assert reason.split(":")[0] in said


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.lm_head.lora_A.weight",
        "base_model.model.model.embed_tokens.lora_embedding_A",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
        "base_model.model.vision_tower.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.audio_tower.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.0.mlp.experts.0.up_proj.lora_A.weight",
    ],
)
async def test_weights_of_something_else_are_refused_by_name(
    tmp_path: Path, model: Path, name: str
) -> None:
    adapter = make_adapter(tmp_path / "adapter", model)
    file = adapter / "adapter_model.safetensors"
    save_file({**load_file(file), name: torch.ones(4, 64)}, file)
    assert f"it has '{name}'" in await refusal(model, adapter)


async def test_half_of_a_module_is_refused(tmp_path: Path, model: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", model)
    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    del tensors["base_model.model.model.layers.1.self_attn.o_proj.lora_B.weight"]
    save_file(tensors, file)
    said = await refusal(model, adapter)
    assert "the two matrices of self_attn.o_proj of layer 1 don't fit together" in said


@pytest.mark.parametrize(
    ("name", "module", "reason"),
    [
        ("youtu", "o_proj", "it adapts keys and values of low rank (layers.0.self_attn.o_proj)"),
        (
            "gemma4_text without shared layers",
            "k_proj",
            "it adapts keys that are values too (layers.1.self_attn.k_proj)",
        ),
    ],
)
async def test_attention_of_other_kinds_is_refused(
    tmp_path: Path, name: str, module: str, reason: str
) -> None:
    model = make_architecture(tmp_path / "model", name)
    adapter = make_adapter(tmp_path / "adapter", model, modules=[module])
    assert reason in await refusal(model, adapter)


async def test_experts_are_refused(tmp_path: Path) -> None:
    model = make_architecture(tmp_path / "model", "qwen3_moe")
    dense = make_architecture(tmp_path / "dense", "qwen3")
    adapter = make_adapter(tmp_path / "adapter", dense, modules=["up_proj"])
    assert "it adapts experts (layers.0.mlp.up_proj)" in await refusal(model, adapter)
    # Of the same model the attention may be adapted.
    adapter = make_adapter(tmp_path / "attention", model, modules=["q_proj", "o_proj"])
    [wanted] = reference(merged(tmp_path / "merged", model, adapter), [PROMPT], 16)
    async with running(model) as engine:
        engine.load_adapter(str(adapter))
        result = await generate(engine, PROMPT, adapter=str(adapter))
    assert result.token_ids == wanted


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("adapter_config.json", b"{", "its files can't be read"),
        ("adapter_config.json", b"[]", "its adapter_config.json holds no settings"),
        ("adapter_model.safetensors", b"12", "its files can't be read"),
        ("adapter_model.safetensors", None, "is not whole"),
        ("adapter_config.json", None, "There is no adapter (a folder with an adapter_config.json"),
    ],
)
async def test_files_that_are_damaged_or_missing(
    tmp_path: Path, model: Path, name: str, content: bytes | None, reason: str
) -> None:
    adapter = make_adapter(tmp_path / "adapter", model)
    if content is None:
        (adapter / name).unlink()
    else:
        (adapter / name).write_bytes(content)
    assert reason in await refusal(model, adapter)


async def test_a_model_that_runs_on_foreign_code_takes_none(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    config = transformers.GPT2Config(
        vocab_size=400, n_embd=64, n_layer=2, n_head=4, n_positions=512, eos_token_id=2
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(model)
    said = await refusal(model, tmp_path)
    assert "takes no adapters, as it runs on transformers' own code" in said
