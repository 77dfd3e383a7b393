"""The weights in a folder read into transformers' model: all that it has, and nothing left over.

transformers fills a weight that a checkpoint lacks with random numbers and passes over what the
model has no place for, with a note in the log. Here either is an error.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch

from providers.local.torch_engine.formats.known import Quantized, quantized_in
from providers.local.torch_engine.formats.weight_files import late_weights

log = logging.getLogger(__name__)

NAMED = 4
"""Weights that an error names; of the others it says how many they are."""

QWEN_PREDICTORS = "mtp."
"""What begins the names of layers that predict further tokens (MTP) in Qwen's checkpoints."""

PREDICTOR = "eh_proj.weight"
"""What each such layer has in those of DeepSeek and many since, where it is counted as a layer
behind the model's last."""


class IncompleteError(ValueError):
    """A checkpoint is not the one of its config; the message is a sentence."""


def read_model(kind: Any, folder: Path, *, spare: Collection[str] = (), **settings: Any) -> Any:
    """transformers' model with the weights in `folder`; quantized ones are plain numbers in it.

    Args:
        kind: the auto class that makes it.
        folder: where config and weights are.
        spare: the model's parts that nobody will ask, whose weights may be missing.
        settings: of `from_pretrained`.

    Raises:
        IncompleteError: weights are missing, or left over.
        UnreadableError: they are quantized in a way that can't be read here.
    """
    # A GGUF has its config inside.
    quantized = None if "gguf_file" in settings else quantized_in(folder)
    if quantized is None:
        module, found = kind.from_pretrained(
            folder, local_files_only=True, output_loading_info=True, **settings
        )
    else:
        module, found = _dequantised(kind, folder, quantized, **settings)
    missing = sorted(name for name in found["missing_keys"] if name.split(".")[0] not in spare)
    if missing:
        raise IncompleteError(
            f"it lacks {_listed(missing)}: without {_them(missing)} it would say random things."
        )
    computed = [name for name, _ in module.named_buffers()]
    over = sorted(name for name in found["unexpected_keys"] if not _ends(computed, name))
    beside = predictors_in(over)
    own = [name for name in over if not name.startswith(beside) and _is_own(module, name)]
    if own:
        raise IncompleteError(
            f"its config has no place for {_listed(own)}: config and weights are of different"
            " models, or of different states of one."
        )
    if over:
        log.warning("%s: not used, since the model has no such part: %s", folder, _listed(over))
    return module


def _dequantised(
    kind: Any, folder: Path, quantized: Quantized, *, dtype: torch.dtype
) -> tuple[Any, dict[str, Any]]:
    """transformers' model and what it says of its loading; to it the weights were never others."""
    from transformers import AutoConfig  # which takes as long as all else that a start does

    config = plain_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    with torch.device("meta"):
        # An auto class can't be asked for itself without a folder, from which it would read.
        made = type(kind.from_config(config))
    with late_weights(folder, quantized, dtype) as weights:
        module, found = made.from_pretrained(
            None, config=config, state_dict=weights, output_loading_info=True, dtype=dtype
        )
    return module, found


def plain_config(config: Any) -> Any:
    """A config that says nothing of quantized weights any more."""
    for each in (config, config.get_text_config()):
        if hasattr(each, "quantization_config"):
            del each.quantization_config
    return config


def predictors_in(names: Iterable[str]) -> tuple[str, ...]:
    """What the names of the weights of all such layers begin with, in a checkpoint with these."""
    return (
        QWEN_PREDICTORS,
        *(name.removesuffix(PREDICTOR) for name in names if name.endswith(f".{PREDICTOR}")),
    )


def predictors_behind(names: Iterable[str], config: Any) -> list[str]:
    """What the names of the weights of such layers begin with, in the order in which they predict;
    Qwen's all begin alike.

    Args:
        names: of the weights in a checkpoint.
        config: transformers', of the model.
    """
    there = list(names)
    if any(name.startswith(QWEN_PREDICTORS) for name in there):
        return [QWEN_PREDICTORS]
    first = config.get_text_config().num_hidden_layers
    starts = (f"model.layers.{number}." for number in itertools.count(first))
    return [*itertools.takewhile(lambda each: any(n.startswith(each) for n in there), starts)]


def _is_own(module: Any, name: str) -> bool:
    """Whether a weight that has no place is of a part that the model has.

    Others are what somebody trained beside it: heads for scores, predictors of further tokens.
    """
    base = getattr(module, module.base_model_prefix, module)
    parts = {part for each in (module, base) for part, _ in each.named_children()}
    return name.removeprefix(f"{module.base_model_prefix}.").split(".")[0] in parts


def _ends(names: Iterable[str], end: str) -> bool:
    """Whether one of `names` is `end`, behind a prefix perhaps: old checkpoints keep buffers."""
    return any(name == end or name.endswith(f".{end}") for name in names)


def _listed(names: list[str]) -> str:
    shown, more = names[:NAMED], len(names) - NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _them(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"
