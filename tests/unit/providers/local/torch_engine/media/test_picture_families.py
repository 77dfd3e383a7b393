"""What stands for a picture in a prompt is what transformers' own processors write."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")
pytest.importorskip("PIL", reason="needs the extra 'torch'")

from PIL import Image

from providers.local.torch_engine.media.families import FAMILIES
from tests.tiny_vision import VISION_MODELS, make_vision_model, picture

NESTED = ("idefics3", "smolvlm", "gemma3", "gemma4")
"""Whose processors take a list of pictures for each text."""

SIZES = [(90, 60), (60, 90), (1, 1), (32, 32), (33, 32), (700, 40), (97, 96), (64, 65), (500, 499)]


def processor_of(folder: Path, kind: str) -> tuple[Callable[..., Any], Any, Any]:
    """transformers' processor for pictures and text, its tokenizer, and the model's config."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    images = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    config = transformers.AutoConfig.from_pretrained(folder)
    made: Any
    if kind == "gemma3":
        for name, token_id in (
            ("boi", config.boi_token_id),
            ("eoi", config.eoi_token_id),
            ("image", config.image_token_id),
        ):
            setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(token_id))
            setattr(tokenizer, f"{name}_token_id", token_id)
        made = transformers.Gemma3Processor(
            images, tokenizer, image_seq_length=config.mm_tokens_per_image
        )
    elif kind.startswith("gemma4"):
        for name, token_id in (
            ("boi", config.boi_token_id),
            ("eoi", config.eoi_token_id),
            ("image", config.image_token_id),
        ):
            setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(token_id))
            setattr(tokenizer, f"{name}_token_id", token_id)
        # It asks for those of audio, whatever it is given.
        tokenizer.boa_token = tokenizer.eoa_token = tokenizer.audio_token = "<|audio|>"
        made = WithoutFilms["gemma4"](None, images, tokenizer, None)
    elif kind in ("idefics3", "smolvlm"):
        # SmolVLM's own needs torchvision, for films, and says the same of pictures.
        made = transformers.Idefics3Processor(images, tokenizer, image_seq_len=4)
    else:
        made = WithoutFilms[kind](images, tokenizer)
    return made, tokenizer, config


class _WithoutFilms:
    def check_argument_for_proper_class(self, name: str, argument: object) -> None:
        """Qwen's processors and Gemma 4's want torchvision, for films."""


def _without_films(name: str, *attributes: str) -> Any:
    of = classmethod(lambda cls: [*attributes, "video_processor"])
    return type(name, (_WithoutFilms, getattr(transformers, name)), {"get_attributes": of})


WithoutFilms: dict[str, Any] = {
    "qwen2_vl": _without_films("Qwen2VLProcessor", "image_processor", "tokenizer"),
    "qwen2_5_vl": _without_films("Qwen2_5_VLProcessor", "image_processor", "tokenizer"),
    "qwen3_vl": _without_films("Qwen3VLProcessor", "image_processor", "tokenizer"),
    "qwen3_vl_moe": _without_films("Qwen3VLProcessor", "image_processor", "tokenizer"),
    "gemma4": _without_films(
        "Gemma4Processor", "feature_extractor", "image_processor", "tokenizer"
    ),
}


@pytest.mark.parametrize("kind", VISION_MODELS)
def test_the_text_is_that_of_transformers_processors(tmp_path: Path, kind: str) -> None:
    folder = make_vision_model(tmp_path, kind)
    processor, tokenizer, config = processor_of(folder, kind)
    images = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    family = FAMILIES[config.model_type](config, images, tokenizer.convert_ids_to_tokens)
    for width, height in SIZES:
        image = Image.open(BytesIO(picture(width, height)))
        nested = [[image]] if config.model_type in NESTED else [image]
        given = processor(images=nested, text=[f"See {family.mark} now"])
        layout = family.sized(width, height)
        expected = tokenizer(f"See {layout.text} now").input_ids
        assert list(given["input_ids"][0]) == expected, (width, height)
        assert expected.count(family.token_id) == layout.tokens, (width, height)
