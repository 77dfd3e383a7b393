"""GGUF files small enough to be made in a test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
"""Kinds of tokens in a GGUF's header."""

_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_of(
    folder: Path,
    path: Path,
    *,
    pooling: int | None = None,
    axes: tuple[int, ...] = (),
    called: Mapping[str, int] | None = None,
    **metadata: Any,
) -> Path:
    """Write the Llama of `tests.tiny_models` in `folder` to the GGUF `path`, which is returned.

    Args:
        folder: in Hugging Face's layout, with a byte-level tokenizer.
        path: where to.
        pooling: how embeddings are pooled, as llama.cpp numbers it; None for none.
        axes: by how many numbers of a head each of four axes turns, in pairs: then it is a Qwen 2
            VL of the same weights.
        called: control tokens, and which of the vocabulary's they take the place of.
        metadata: whole numbers in place of those in the header, by the name of their key in
            `gguf.Keys.LLM`.
    """
    config = json.loads((folder / "config.json").read_text())
    architecture = "qwen2vl" if axes else "llama"
    writer = gguf.GGUFWriter(path, architecture)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    numbers = {
        "CONTEXT_LENGTH": config["max_position_embeddings"],
        "EMBEDDING_LENGTH": config["hidden_size"],
        "BLOCK_COUNT": config["num_hidden_layers"],
        "FEED_FORWARD_LENGTH": config["intermediate_size"],
        **metadata,
    }
    for name, number in numbers.items():
        writer.add_uint32(getattr(gguf.Keys.LLM, name).format(arch=architecture), number)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config.get("rope_parameters", {}).get("rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    if axes:
        writer.add_rope_dimension_sections(axes)
    _write_tokenizer(writer, folder, called or {})
    for name, tensor in load_file(folder / "model.safetensors").items():
        for letter, count in (("q", heads), ("k", kv_heads)):
            if f"self_attn.{letter}_proj.weight" in name and not axes:
                tensor = _rotated(tensor, count)
        writer.add_tensor(_renamed(name), np.ascontiguousarray(tensor, np.float32))
        if axes and name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            bias = np.zeros(len(tensor), np.float32)
            writer.add_tensor(_renamed(name.replace("weight", "bias")), bias)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def projector_of(
    path: Path,
    kind: str,
    *,
    hears: bool = False,
    width: int = 64,
    image: int = 32,
    longest: int = 64,
    seed: int = 5,
) -> Path:
    """Write what makes random embeddings of media (an `mmproj`) to `path`, which is returned.

    Args:
        path: where to.
        kind: of projector: `idefics3`, `gemma3` or `qwen2vl_merger` of pictures, or `voxtral` of
            audio.
        hears: whether one of pictures is one of audio as well, of the kind `voxtral`.
        width: of the embeddings.
        image: width and height of the pictures that it looks at, in pixels; patches have 8.
        longest: of `idefics3`, of what a picture is scaled to before it is cut into such.
        seed: of the weights.
    """
    writer = gguf.GGUFWriter(path, "clip")
    shapes: dict[str, tuple[int, ...]] = {}
    if kind != "voxtral":
        shapes |= _sees(writer, kind, width, image, longest)
    if hears or kind == "voxtral":
        shapes |= _hears(writer, width)
    chosen = np.random.default_rng(seed)
    for name, shape in shapes.items():
        writer.add_tensor(name, (chosen.standard_normal(shape) * 0.3).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_INNER = 32
"""The width of what sees, and of what hears."""


def _layer(tower: str) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "ln1", "ln2"):
        shapes[f"{tower}.blk.0.{name}.weight"] = (_INNER, _INNER) if name[0] == "a" else (_INNER,)
        shapes[f"{tower}.blk.0.{name}.bias"] = (_INNER,)
    for name, size in (("ffn_up", 2 * _INNER), ("ffn_down", _INNER)):
        shapes[f"{tower}.blk.0.{name}.weight"] = (size, 3 * _INNER - size)
        shapes[f"{tower}.blk.0.{name}.bias"] = (size,)
    return shapes | {f"{tower}.post_ln.weight": (_INNER,), f"{tower}.post_ln.bias": (_INNER,)}


def _numbers(writer: gguf.GGUFWriter, part: str, **numbers: int) -> None:
    shared = {
        "embedding_length": _INNER,
        "feed_forward_length": 2 * _INNER,
        "block_count": 1,
        "attention.head_count": 2,
    }
    for name, number in (shared | numbers).items():
        writer.add_uint32(f"clip.{part}.{name.replace('__', '.')}", number)
    writer.add_float32(f"clip.{part}.attention.layer_norm_epsilon", 1e-6)


def _sees(
    writer: gguf.GGUFWriter, kind: str, width: int, image: int, longest: int
) -> dict[str, tuple[int, ...]]:
    """Say that there is what sees; its tensors."""
    patch, merged = 8, 2
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.vision.projector_type", kind)
    writer.add_bool("clip.use_gelu", True)
    _numbers(
        writer,
        "vision",
        image_size=image,
        patch_size=patch,
        projection_dim=width,
        projector__scale_factor=merged,
        preproc_image_size=longest,
    )
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    shapes: dict[str, tuple[int, ...]] = {"v.patch_embd.weight": (_INNER, 3, patch, patch)}
    if kind == "qwen2vl_merger":
        shapes["v.patch_embd.weight.1"] = (_INNER, 3, patch, patch)
    else:
        shapes["v.patch_embd.bias"] = (_INNER,)
        shapes["v.position_embd.weight"] = ((image // patch) ** 2, _INNER)
    together = _INNER * merged**2
    projectors: dict[str, dict[str, tuple[int, ...]]] = {
        "idefics3": {"mm.model.fc.weight": (width, together)},
        "gemma3": {
            "mm.input_projection.weight": (_INNER, width),
            "mm.soft_emb_norm.weight": (_INNER,),
        },
        "qwen2vl_merger": {
            "mm.0.weight": (together, together),
            "mm.0.bias": (together,),
            "mm.2.weight": (width, together),
            "mm.2.bias": (width,),
        },
    }
    return shapes | _layer("v") | projectors[kind]


WINDOW_TOKENS = 30
"""Of the 30 s that `voxtral` hears at once."""


def _hears(writer: gguf.GGUFWriter, width: int) -> dict[str, tuple[int, ...]]:
    """Say that there is what hears; its tensors."""
    places, mels = 1500, 80
    stacked = places // WINDOW_TOKENS
    layer = _layer("a")
    # Whisper's keys have none.
    del layer["a.blk.0.attn_k.bias"]
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.audio.projector_type", "voxtral")
    _numbers(
        writer,
        "audio",
        num_mel_bins=mels,
        projection_dim=width,
        projector__stack_factor=stacked,
    )
    return {
        "a.conv1d.1.weight": (_INNER, mels, 3),
        "a.conv1d.1.bias": (_INNER, 1),
        "a.conv1d.2.weight": (_INNER, _INNER, 3),
        "a.conv1d.2.bias": (_INNER, 1),
        "a.position_embd.weight": (places, _INNER),
        **layer,
        "mm.a.mlp.1.weight": (width, _INNER * stacked),
        "mm.a.mlp.2.weight": (width, width),
    }


def lora_of(path: Path, *, layers: int, size: int, strength: float) -> Path:
    """Write a LoRA adapter for the output of the attention of all layers to `path`."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 1.0)
    chosen = np.random.default_rng(3)
    for layer in range(layers):
        first = chosen.standard_normal((1, size)).astype(np.float32)
        second = (chosen.standard_normal((size, 1)) * strength).astype(np.float32)
        writer.add_tensor(f"blk.{layer}.attn_output.weight.lora_a", first)
        writer.add_tensor(f"blk.{layer}.attn_output.weight.lora_b", second)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def lora_gguf_of(adapter: Path, model: Path, path: Path) -> Path:
    """Write the adapter of `tests.tiny_adapters` in a folder, which is for the model in another, to
    the GGUF `path`, which is returned."""
    config = json.loads((model / "config.json").read_text())
    settings = json.loads((adapter / "adapter_config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", settings["lora_alpha"])
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    for name, tensor in load_file(adapter / "adapter_model.safetensors").items():
        module, which = name.removeprefix("base_model.model.").split(".lora_")
        for letter, count in heads.items():
            if which.startswith("B") and module.endswith(f"self_attn.{letter}_proj"):
                tensor = _rotated(tensor, count)
        own = f"{_renamed(f'{module}.weight')}.lora_{which[0].lower()}"
        writer.add_tensor(own, np.ascontiguousarray(tensor, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_tokenizer(writer: gguf.GGUFWriter, folder: Path, called: Mapping[str, int]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ids: dict[str, int] = dict(tokenizer["model"]["vocab"])
    kinds = dict.fromkeys(ids.values(), NORMAL)
    for added in tokenizer["added_tokens"]:
        ids[added["content"]] = added["id"]
        kinds[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    tokens = sorted(ids, key=ids.__getitem__)
    for token, id in called.items():
        tokens[id], kinds[id] = token, CONTROL
        ids[token] = id
    merges = tokenizer["model"]["merges"]
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds[id] for id in range(len(tokens))])
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_eos_token_id(ids[settings["eos_token"]])
    writer.add_add_bos_token(False)
    template = settings.get("chat_template")
    if template is None and (folder / "chat_template.jinja").is_file():
        template = (folder / "chat_template.jinja").read_text()
    if template is not None:
        writer.add_chat_template(template)


def _renamed(name: str) -> str:
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    _, _, layer, rest = name.split(".", 3)
    part, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{_LAYER[part]}.{kind}"


def _rotated(tensor: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Queries and keys in the order in which llama.cpp rotates them: pairs beside each other."""
    rows = tensor.shape[0] // heads // 2
    return tensor.reshape(heads, 2, rows, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)
