"""Folders of models that take pictures, small enough to be made in a test: random weights, a
trained tokenizer, an image processor, and a chat template in the manner of the family's own."""

from __future__ import annotations

import base64
import random
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.made_once import made_once
from tests.tiny_models import SPECIAL_TOKENS, byte_level_tokenizer

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,
}

PARTS = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}PICTURE"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_PARTS_ALONE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""SmolVLM's own, which writes nothing of a content that is a text."""

_QWEN_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
_TILE_TOKENS = [
    *("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
]
_GEMMA_TOKENS = ["<start_of_image>", "<end_of_image>", "<image_soft_token>"]
_GEMMA_4_TOKENS = ["<|image>", "<image|>", "<|image|>", "<|video|>", "<|audio|>"]

VISION_MODELS = (
    *(
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen3_vl",
        "qwen3_vl_moe",
        "gemma3",
        "gemma4",
        "gemma4 that looks ahead",
    ),
    *("idefics3", "smolvlm"),
)


@made_once
def make_vision_model(folder: Path, kind: str, seed: int = 0) -> Path:
    """Write a random model of one of `VISION_MODELS` to `folder`, which is returned."""
    import torch
    import transformers

    extra, template = {
        "gemma3": (_GEMMA_TOKENS, PARTS.replace("PICTURE", "<start_of_image>")),
        **{
            each: (_GEMMA_4_TOKENS, PARTS.replace("PICTURE", "\n\n<|image|>\n\n"))
            for each in ("gemma4", "gemma4 that looks ahead")
        },
        "smolvlm": (_TILE_TOKENS, _PARTS_ALONE),
        "idefics3": (_TILE_TOKENS, _PARTS_ALONE),
    }.get(
        kind,
        (
            _QWEN_TOKENS,
            PARTS.replace("PICTURE", "<|vision_start|><|image_pad|><|vision_end|>"),
        ),
    )
    backend = byte_level_tokenizer()
    backend.add_special_tokens(extra)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token=SPECIAL_TOKENS[0],
        chat_template=template,
    )
    fast.save_pretrained(folder)
    ids = {token: fast.convert_tokens_to_ids(token) for token in extra}
    text = TEXT | {
        "vocab_size": len(fast),
        "bos_token_id": None,
        "eos_token_id": fast.eos_token_id,
        "pad_token_id": fast.pad_token_id,
    }
    torch.manual_seed(seed)
    config, processor = _MAKES[kind](text, ids)
    config.eos_token_id = fast.eos_token_id
    model = transformers.AutoModelForImageTextToText.from_config(config)
    widen(model)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def widen(model: Any) -> None:
    """Make the random numbers of a model's tower so wide that what comes of it decides on the next
    token."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif (
                "language_model" not in name and "text_model" not in name and "lm_head" not in name
            ):
                parameter.normal_(std=0.2)


def _qwen(kind: str) -> Any:
    def make(text: dict[str, Any], ids: dict[str, int]) -> tuple[Any, Any]:
        import transformers
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
            Qwen2VLImageProcessorPil,
        )

        patch = 8
        vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": patch, "in_chans": 3}
        rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
        if kind == "qwen2_vl":
            vision |= {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}
        elif kind == "qwen2_5_vl":
            vision |= {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64}
            vision |= {"window_size": 32, "fullatt_block_indexes": [1]}
        else:
            vision |= {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64}
            vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
            rope["mrope_section"] = [4, 2, 2]
        if kind == "qwen3_vl_moe":
            text = text | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
        if not kind.startswith("qwen3"):
            text = {name: value for name, value in text.items() if name != "head_dim"}
        config = transformers.AutoConfig.for_model(
            kind,
            text_config=text | {"rope_parameters": rope},
            vision_config=vision,
            image_token_id=ids["<|image_pad|>"],
            video_token_id=ids["<|video_pad|>"],
            vision_start_token_id=ids["<|vision_start|>"],
            vision_end_token_id=ids["<|vision_end|>"],
        )
        processor = Qwen2VLImageProcessorPil(
            patch_size=patch, size={"shortest_edge": 16 * 16 * 4, "longest_edge": 16 * 16 * 40}
        )
        return config, processor

    return make


def _gemma(text: dict[str, Any], ids: dict[str, int]) -> tuple[Any, Any]:
    import transformers
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    size = 56
    vision = {
        **dict.fromkeys(("hidden_size", "intermediate_size"), 32),
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": 7,
        "image_size": size,
    }
    config = transformers.Gemma3Config(
        text_config=text
        | {
            "sliding_window": 24,
            "query_pre_attn_scalar": 1,
            # Its embeddings are scaled by 8.
            "initializer_range": 0.05,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        vision_config=vision,
        mm_tokens_per_image=16,
        boi_token_index=ids["<start_of_image>"],
        eoi_token_index=ids["<end_of_image>"],
        image_token_index=ids["<image_soft_token>"],
    )
    return config, Gemma3ImageProcessorPil(size={"height": size, "width": size})


def _gemma_4(*, looks_ahead: bool) -> Any:
    """In the manner of E2B, or of the large ones."""

    def make(text: dict[str, Any], ids: dict[str, int]) -> tuple[Any, Any]:
        import transformers
        from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

        vision = {
            **dict.fromkeys(("hidden_size", "intermediate_size"), 32),
            **dict.fromkeys(("num_attention_heads", "num_key_value_heads"), 2),
            "num_hidden_layers": 2,
            "head_dim": 16,
            "patch_size": 4,
            "pooling_kernel_size": 2,
            "position_embedding_size": 64,
            "standardize": looks_ahead,
        }
        small = {"num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8}
        large = {"hidden_size_per_layer_input": 0, "use_bidirectional_attention": "vision"}
        kinds = ["sliding_attention", "full_attention"]
        config = transformers.Gemma4Config(
            text_config={
                **text,
                **(large if looks_ahead else small),
                "num_hidden_layers": 4,
                "layer_types": kinds * 2,
                "global_head_dim": 32,
                "sliding_window": 24,
                "vocab_size_per_layer_input": text["vocab_size"],
                "initializer_range": 0.05,
            },
            vision_config=vision,
            boi_token_id=ids["<|image>"],
            eoi_token_id=ids["<image|>"],
            image_token_id=ids["<|image|>"],
            video_token_id=ids["<|video|>"],
            audio_token_id=ids["<|audio|>"],
        )
        return config, Gemma4ImageProcessorPil(
            patch_size=4, pooling_kernel_size=2, max_soft_tokens=70
        )

    return make


def _tiles(kind: str) -> Any:
    def make(text: dict[str, Any], ids: dict[str, int]) -> tuple[Any, Any]:
        import transformers
        from transformers.models.idefics3.image_processing_pil_idefics3 import (
            Idefics3ImageProcessorPil,
        )
        from transformers.models.smolvlm.image_processing_pil_smolvlm import (
            SmolVLMImageProcessorPil,
        )

        size = 32
        vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
        vision |= {"num_attention_heads": 2, "patch_size": 8, "image_size": size}
        config = transformers.AutoConfig.for_model(
            kind,
            text_config=text | {"model_type": "llama"},
            vision_config=vision,
            scale_factor=2,
            image_token_id=ids["<image>"],
            tie_word_embeddings=False,
        )
        made = SmolVLMImageProcessorPil if kind == "smolvlm" else Idefics3ImageProcessorPil
        return config, made(size={"longest_edge": 3 * size}, max_image_size={"longest_edge": size})

    return make


_MAKES: dict[str, Any] = {
    **{kind: _qwen(kind) for kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")},
    "gemma3": _gemma,
    "gemma4": _gemma_4(looks_ahead=False),
    "gemma4 that looks ahead": _gemma_4(looks_ahead=True),
    **{kind: _tiles(kind) for kind in ("smolvlm", "idefics3")},
}


def picture(width: int, height: int, seed: int = 0, kind: str = "PNG", mode: str = "RGB") -> bytes:
    """A file of random blocks of colour."""
    from PIL import Image

    chosen = random.Random(seed)
    small = Image.frombytes("RGB", (4, 4), chosen.randbytes(48))
    file = BytesIO()
    large = small.resize((width, height), Image.Resampling.NEAREST)
    # Pillow makes greys of 16 bits of greys alone.
    large.convert("L" if mode == "I;16" else mode).convert(mode).save(file, kind)
    return file.getvalue()


def data_url(content: bytes, kind: str = "image/png") -> str:
    """The `data:` URL of a file."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
