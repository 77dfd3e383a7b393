"""Which family the media of a model are of: a row for each `model_type`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.local.torch_engine.media.audio_families import (
    Qwen2Audio,
    VoxtralAudio,
)
from providers.local.torch_engine.media.family import MediumFamily
from providers.local.torch_engine.media.picture_families import (
    Gemma4Pictures,
    GemmaPictures,
    QwenPictures,
    TiledPictures,
)

FAMILIES: Mapping[str, type[MediumFamily[Any]]] = {
    "qwen2_vl": QwenPictures,
    "qwen2_5_vl": QwenPictures,
    "qwen3_vl": QwenPictures,
    "qwen3_vl_moe": QwenPictures,
    "gemma3": GemmaPictures,
    "gemma4": Gemma4Pictures,
    "idefics3": TiledPictures,
    "smolvlm": TiledPictures,
    "qwen2_audio": Qwen2Audio,
    "voxtral": VoxtralAudio,
}
"""By the `model_type` of the whole model."""


def multimodal_class(config: Any) -> Any:
    """transformers' class of a whole model with this config that takes more than text; None if it
    takes text alone, or does not go on with a text."""
    from transformers import (
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        MODEL_FOR_MULTIMODAL_LM_MAPPING,
    )

    # Of the others that hear, many write down what they heard and nothing else.
    known = config.model_type in FAMILIES
    mapping = MODEL_FOR_MULTIMODAL_LM_MAPPING if known else MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    return mapping.get(type(config), None)
