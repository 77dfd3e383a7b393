"""What a model makes of media, read from its folder: its tower, and how that is fed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from providers.local.media.medium import Kind
from providers.local.torch_engine.formats.known import quantized_in
from providers.local.torch_engine.formats.weight_files import late_weights
from providers.local.torch_engine.loading.checkpoint import IncompleteError, plain_config
from providers.local.torch_engine.media.families import FAMILIES, multimodal_class
from providers.local.torch_engine.media.family import Spell
from providers.local.torch_engine.media.sense import TorchSense

PARTS = ("language_model", "text_model")
"""What transformers calls the part of a model that reads text."""


NOTHING: Mapping[str, Any] = {
    "layer_types": [],
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
}
"""What configs say of layers, where there are none."""


class TextOnlyError(Exception):
    """Why a model that was made for more than text takes text alone here; the message is a part of
    a sentence."""


def read_sense(
    folder: Path, spell: Spell, vocab_size: int, device: torch.device, dtype: torch.dtype, room: int
) -> TorchSense:
    """What the model in `folder`, which was made for more than text, makes of that.

    Args:
        folder: in Hugging Face's layout.
        spell: how its tokens are written.
        vocab_size: how many there are.
        device: where its tower is to be.
        dtype: in which that computes.
        room: see `TorchSense`.

    Raises:
        TextOnlyError: it takes none here.
        Exception: of a damaged file, whatever its reader stumbles over.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    family = FAMILIES.get(config.model_type)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise TextOnlyError(f"'{config.model_type}' is none of {known}")
    names = ("preprocessor_config.json", "processor_config.json")
    if not any((folder / name).is_file() for name in names):
        raise TextOnlyError(f"its folder has no {names[0]}, which says how to prepare them")
    token_id = family.token_of(config)
    if token_id >= vocab_size:
        raise TextOnlyError(f"its token for media, {token_id}, has no embedding")
    processor = _PROCESSORS[family.kind](folder)
    if family.kind == "image" and hasattr(config, "audio_config"):
        config.audio_config = None  # of a model that hears, too
    tower = _tower(folder, config, dtype).to(device)
    return TorchSense(family(config, processor, spell), tower, dtype, room)


def _picture_processor(folder: Path) -> Any:
    from transformers import AutoImageProcessor

    if find_spec("PIL") is None:
        raise TextOnlyError("the package pillow is not there: pip install 'llama-compat[torch]'")
    # With torchvision, which need not be there, it would be another: one class, one result.
    return AutoImageProcessor.from_pretrained(folder, local_files_only=True, backend="pil")


def _audio_processor(folder: Path) -> Any:
    from transformers import AutoFeatureExtractor

    return AutoFeatureExtractor.from_pretrained(folder, local_files_only=True)


_PROCESSORS: Mapping[Kind, Callable[[Path], Any]] = {
    "image": _picture_processor,
    "audio": _audio_processor,
}
"""What reads how media of a kind are prepared."""


def _tower(folder: Path, config: Any, dtype: torch.dtype) -> Any:
    """transformers' model, of which the part that reads text is gone."""
    text = config.get_text_config()
    text.num_hidden_layers = 0
    for name, none in NOTHING.items():
        if getattr(text, name, None) is not None:
            setattr(text, name, none)
    kind = multimodal_class(config)
    settings: dict[str, Any] = {"dtype": dtype, "output_loading_info": True}
    quantized = quantized_in(folder)
    with _unreported():
        if quantized is None:
            module, found = kind.from_pretrained(
                folder, config=config, local_files_only=True, **settings
            )
        else:
            with late_weights(folder, quantized, dtype) as weights:
                module, found = kind.from_pretrained(
                    None, config=plain_config(config), state_dict=weights, **settings
                )
    missing = sorted(name for name in found["missing_keys"] if not name.startswith("lm_head"))
    if missing:
        raise IncompleteError(f"it lacks {missing[0]} and more of what takes media.")
    tower = module.eval().model
    for part in PARTS:
        if hasattr(tower, part):
            setattr(tower, part, torch.nn.Identity())
    return tower


@contextmanager
def _unreported() -> Iterator[None]:
    """Without transformers' report of the weights that are left over: all that read text."""
    from transformers.utils import logging as transformers_logging

    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
