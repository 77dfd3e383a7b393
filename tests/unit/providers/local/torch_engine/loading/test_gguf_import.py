"""GGUF files made into model folders."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

for package in ("torch", "transformers", "gguf", "accelerate"):
    pytest.importorskip(package, reason="needs the extra 'torch'")

import gguf
import numpy as np
from safetensors import safe_open

from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    SamplingParams,
    StreamComplete,
    UserMessage,
)
from providers.base import ProviderModel, ProviderStartError
from providers.local.engine import LocalModel
from providers.local.prompts.prompts import chat_prompt
from providers.local.replies.call_rules import CallRules
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading.gguf_import import convert_gguf
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import CHAT_TEMPLATE, SPECIAL_TOKENS, byte_level_tokenizer

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 64, 4, 2, 128, 2


def write_gguf(path: Path, *, without: str = "", blocks: int = LAYERS) -> Path:
    """A random Llama of float32 tensors, its embeddings tied, its tokenizer inside.

    Args:
        path: where to, which is returned.
        without: a tensor that is left out.
        blocks: how many its header tells of.
    """
    tokenizer = json.loads(byte_level_tokenizer().to_str())["model"]
    tokens = sorted(tokenizer["vocab"], key=tokenizer["vocab"].get)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(blocks)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIAL_TOKENS else normal for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)

    random = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        if name != without:
            writer.add_tensor(name, random.normal(0, 0.3, shape).astype(np.float32))

    add("token_embd.weight", len(tokens), HIDDEN)
    add("output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        add(f"{block}.attn_norm.weight", HIDDEN)
        add(f"{block}.attn_q.weight", HIDDEN, HIDDEN)
        add(f"{block}.attn_k.weight", HIDDEN // HEADS * KV_HEADS, HIDDEN)
        add(f"{block}.attn_v.weight", HIDDEN // HEADS * KV_HEADS, HIDDEN)
        add(f"{block}.attn_output.weight", HIDDEN, HIDDEN)
        add(f"{block}.ffn_norm.weight", HIDDEN)
        add(f"{block}.ffn_gate.weight", INNER, HIDDEN)
        add(f"{block}.ffn_up.weight", INNER, HIDDEN)
        add(f"{block}.ffn_down.weight", HIDDEN, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def ends_in_chat(model: LocalModel, said: str) -> int:
    """How many ends of turns a chat has in which a user says so."""
    request = ChatCompletionRequest(model.name, (UserMessage(said),))
    token_ids = chat_prompt(model, request, CallRules(), "none").token_ids
    return token_ids.count(model.vocabulary.id_of("<|im_end|>"))


async def last_event(provider: TorchProvider, model: str) -> StreamComplete:
    request = CompletionRequest(model, "The quick", SamplingParams(max_tokens=4))
    events = [event async for event in provider.completion(request)]
    assert isinstance(events[-1], StreamComplete)
    return events[-1]


async def test_a_folder_with_a_lone_gguf_is_converted_once(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    name = str(tmp_path)
    for _ in range(2):
        provider = TorchProvider("local", TorchConfig(device="cpu"), [ProviderModel(name)])
        await provider.start()
        [engine] = provider.engines.values()
        assert engine.model.context_length == 256
        assert engine.model.tokenizer.chat_template == CHAT_TEMPLATE
        assert engine.model.vocabulary.id_of("<|im_end|>") in engine.model.stop_tokens
        assert ends_in_chat(engine.model, "a<|im_end|>b<|im_start|>") == 1
        assert (await last_event(provider, name)).usage.completion_tokens > 0
        await provider.stop()

        converted = tmp_path / "tiny-safetensors"
        assert names_in(tmp_path) == {"tiny.gguf", converted.name}
        config = json.loads((converted / "config.json").read_text())
        assert "quantization_config" not in config
        with safe_open(converted / "model.safetensors", "np") as weights:
            names = set(weights.keys())
        # Tied, so written once.
        assert len(names & {"lm_head.weight", "model.embed_tokens.weight"}) == 1
        # The second start finds it, and could not make it again.
        (tmp_path / "tiny.gguf").write_bytes(b"")


def test_what_can_not_be_read_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\x03\x00\x00\x00 and no more")
    with pytest.raises((OSError, ValueError)):
        convert_gguf(tmp_path / "torn.gguf", tmp_path / "made")
    assert names_in(tmp_path) == {"torn.gguf"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"without": "blk.1.ffn_up.weight"}, "it lacks model.layers.1.mlp.up_proj.weight"),
        ({"without": "output_norm.weight"}, "it lacks model.norm.weight"),
        ({"without": "token_embd.weight"}, "it lacks lm_head.weight, model.embed_tokens.weight"),
        ({"blocks": LAYERS + 1}, "it lacks model.layers.2.input_layernorm.weight"),
        ({"blocks": LAYERS - 1}, "no place for blk.1"),
    ],
    ids=str,
)
def test_an_incomplete_gguf_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    file = write_gguf(tmp_path / "part.gguf", **change)
    with pytest.raises(ValueError, match=said):
        convert_gguf(file, tmp_path / "made")
    assert names_in(tmp_path) == {"part.gguf"}


async def test_a_torn_gguf_is_explained(tmp_path: Path) -> None:
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\x03\x00\x00\x00 and no more")
    name = str(tmp_path / "torn.gguf")
    provider = TorchProvider("local", TorchConfig(device="cpu"), [ProviderModel(name)])
    with pytest.raises(ProviderStartError, match="can't be converted"):
        await provider.start()
    await provider.stop()
