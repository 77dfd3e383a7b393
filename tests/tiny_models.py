"""Model folders small enough to be made in a test: random weights, a trained tokenizer."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.made_once import made_once

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

SAMPLE = [
    "The quick brown fox jumps over the lazy dog. 0123456789 + - * / = ( ) [ ] { } : ; , . ! ?",
    "Größe, naïve café, Ελληνικά, русский язык, 日本語のテキスト, 한국어, हिन्दी, 🙂 👩‍👩‍👧 🇫🇷",
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))\n",
] * 4
"""What the vocabularies are trained on; characters that are not in it fall into bytes."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_level_tokenizer(vocab_size: int = 400) -> Tokenizer:
    """Byte-level BPE, as GPT-2, Llama 3 and Qwen have it."""
    return Tokenizer.from_str(_trained_byte_level(vocab_size))


@cache
def _trained_byte_level(vocab_size: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SAMPLE, trainer)
    return str(tokenizer.to_str())


def sentencepiece_tokenizer() -> Tokenizer:
    """BPE with `▁` for spaces and byte fallback, as Llama 2, Mistral and Gemma have it."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = sorted("▁" + "".join(set("".join(SAMPLE)) - set(" 語🙂")))
    merges = [
        ("▁", "t"),
        ("▁t", "h"),
        ("▁th", "e"),
        ("q", "u"),
        ("▁", "qu"),
        ("o", "x"),
        ("日", "本"),
    ]
    tokens = [*SPECIAL_TOKENS, *byte_tokens, *dict.fromkeys(letters), *map("".join, merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return tokenizer


def word_piece_tokenizer() -> Tokenizer:
    """Words and `##` endings, whose text is no mere sequence of bytes."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<|endoftext|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=SPECIAL_TOKENS, show_progress=False
    )
    tokenizer.train_from_iterator(SAMPLE, trainer)
    return tokenizer


@made_once
def make_model(
    folder: Path, *, chat_template: str | None = CHAT_TEMPLATE, seed: int = 0, **config: Any
) -> Path:
    """Write a random Llama with a byte-level tokenizer to `folder`, which is returned.

    Args:
        folder: where to; made if it isn't there.
        chat_template: None leaves the model without one.
        seed: of the weights.
        config: in place of members of the model's config.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = make_tokenizer(folder, chat_template=chat_template)
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**settings | config))
    model.save_pretrained(folder)
    return folder


def make_tokenizer(folder: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> dict[str, Any]:
    """Write the tokenizer of `make_model` to `folder`; the config of the tiny models it is for."""
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=chat_template,
    )
    fast.save_pretrained(folder)
    return {
        "vocab_size": len(fast),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": fast.eos_token_id,
        "pad_token_id": fast.pad_token_id,
        # Wide enough that the likeliest token is likeliest by far, in bfloat16 too.
        "initializer_range": 0.3,
    }


@made_once
def make_speaking_model(
    folder: Path,
    reply: Sequence[str],
    *,
    after: str = "assistant\n",
    special: Collection[str] = (),
    chat_template: str | None = CHAT_TEMPLATE,
) -> Path:
    """Write a model that says `reply` and ends its turn, whatever it is asked, to `folder`.

    Args:
        folder: where to, which is returned.
        reply: what it says, a token each; no token may come twice.
        after: what it says it behind; by default the end of `CHAT_TEMPLATE`'s prompt.
        special: those of `reply` that are special tokens of the vocabulary.
        chat_template: of the model.
    """
    import torch
    from tokenizers import AddedToken
    from transformers import AutoTokenizer, LlamaForCausalLM

    assert len(set(reply)) == len(reply)
    make_model(folder, chat_template=chat_template, max_position_embeddings=2048)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    before = tokenizer(after).input_ids[-1]
    tokenizer.add_tokens(
        [AddedToken(token, special=token in special, normalized=False) for token in reply]
    )
    tokenizer.save_pretrained(folder)
    said = [*tokenizer.convert_tokens_to_ids(list(reply)), tokenizer.eos_token_id]

    model = LlamaForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    with torch.no_grad():
        for layer in model.model.layers:
            # Nothing is added to a token's own embedding, so that it alone decides on the next.
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        embeddings = torch.nn.functional.normalize(torch.randn(len(tokenizer), 64), dim=-1)
        model.model.embed_tokens.weight.copy_(embeddings)
        model.lm_head.weight.zero_()
        for token, following in zip([before, *said], said, strict=False):
            model.lm_head.weight[following] = 10 * embeddings[token]
    model.save_pretrained(folder)
    return folder


@made_once
def make_embedder(
    folder: Path,
    *,
    kind: str = "bert",
    pooling: str = "mean_tokens",
    normalize: bool = True,
    positions: int = 64,
    dense: int | None = None,
    config: Mapping[str, Any] | None = None,
    **steps: Any,
) -> Path:
    """Write a random model as sentence-transformers does to `folder`, which is returned.

    Args:
        folder: where to.
        kind: its `model_type`.
        pooling: how vectors are made of states.
        normalize: whether they have length 1.
        positions: how long a text can be.
        dense: numbers of a vector behind a dense layer; None for no such layer.
        config: in place of members of the model's config.
        steps: in place of members of the pooling's config.
    """
    import torch
    import transformers
    from safetensors.torch import save_file

    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_piece_tokenizer(), pad_token="<|endoftext|>"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(3)
    settings: dict[str, Any] = {
        "vocab_size": len(fast),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": positions,
        "pad_token_id": fast.pad_token_id,
    }
    made = transformers.AutoConfig.for_model(kind, **settings | dict(config or {}))
    transformers.AutoModel.from_config(made).save_pretrained(folder)
    layers = ["Dense"] * (dense is not None)
    kinds = ["Transformer", "Pooling", *layers, *(["Normalize"] if normalize else [])]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": "" if index == 0 else f"{index}_{step}",
            "type": f"sentence_transformers.models.{step}",
        }
        for index, step in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooled = {"word_embedding_dimension": 32, f"pooling_mode_{pooling}": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooled | steps))
    if dense is not None:
        layer = {"in_features": 32, "out_features": dense, "bias": True}
        layer["activation_function"] = "torch.nn.modules.activation.Tanh"
        (folder / "2_Dense").mkdir()
        (folder / "2_Dense" / "config.json").write_text(json.dumps(layer))
        weights = {"linear.weight": torch.randn(dense, 32), "linear.bias": torch.randn(dense)}
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    return folder


@made_once
def make_reranker(
    folder: Path, kind: str = "bert", *, labels: int = 1, positions: int = 64
) -> Path:
    """Write a random cross-encoder (`bert`, `roberta`, `xlm-roberta`) to `folder`."""
    import torch
    import transformers
    from tokenizers.processors import TemplateProcessing

    backend = word_piece_tokenizer()
    end = "<|endoftext|>"
    types = ":1" if kind == "bert" else ""
    backend.post_processor = TemplateProcessing(
        single=f"{end} $A {end}",
        pair=f"{end} $A {end} $B{types} {end}{types}",
        special_tokens=[(end, backend.token_to_id(end))],
    )
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if kind == "bert" else [])]
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=end, model_input_names=names
    )
    fast.save_pretrained(folder)
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(
        kind,
        vocab_size=len(fast), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=positions, num_labels=labels,
        pad_token_id=fast.pad_token_id, type_vocab_size=2 if kind == "bert" else 1,
        initializer_range=0.5,
    )  # fmt: skip
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    model.save_pretrained(folder)
    return folder


@made_once
def make_judge(
    folder: Path,
    *,
    chat_template: str | None = CHAT_TEMPLATE,
    words: Sequence[str] = ("yes", "no"),
    positions: int = 1024,
) -> Path:
    """Write a random Qwen 3 that knows `words` as tokens to `folder`, which is returned."""
    import torch
    import transformers

    make_model(folder, chat_template=chat_template)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(words))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(7)
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, intermediate_size=64, initializer_range=0.3,
        max_position_embeddings=positions, tie_word_embeddings=True,
        pad_token_id=None, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder
