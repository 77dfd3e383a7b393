"""Where checkpoints keep layers that predict further tokens (MTP), beside those of the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

QWEN = "mtp."
"""What the names of their weights begin with in Qwen's checkpoints."""

MARK = "eh_proj.weight"
"""What each of them has in those of DeepSeek and many since, where it is counted as a layer behind
the model's last."""


def predictors_in(names: Iterable[str]) -> tuple[str, ...]:
    """What the names of the weights of all of them begin with, of a checkpoint with these."""
    return (QWEN, *(name.removesuffix(MARK) for name in names if name.endswith(f".{MARK}")))


def first_predictor(names: Iterable[str], config: Any) -> str | None:
    """What the names of the first one's weights begin with; None without one.

    Args:
        names: of the weights in a checkpoint.
        config: transformers', of the model.
    """
    starts = (QWEN, f"model.layers.{config.get_text_config().num_hidden_layers}.")
    there = list(names)
    return next((each for each in starts if any(name.startswith(each) for name in there)), None)
