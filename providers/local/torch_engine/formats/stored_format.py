"""What a format of quantized checkpoints says of itself; each has a module in this room."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Parts = Mapping[str, torch.Tensor]
"""A weight's tensors, by what its format calls them."""

Settings = Mapping[str, Any]
"""The `quantization_config` of a model."""


class UnreadableError(ValueError):
    """Weights that can't be read; the message is a sentence."""


def anything(settings: Settings) -> str | None:
    """Of a format that has no settings of which some can't be read."""
    return None


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """How a kind of checkpoints keeps a quantized weight, as several tensors.

    Attributes:
        endings: of these tensors' names, behind what they have in common, by what `read` calls
            them.
        marks: those that only a quantized weight has, and each of them has one.
        values: those that hold the numbers; a weight has one of them.
        ending: of the weight's own name in the model, behind what the tensors have in common.
        bits: of a number, by which tensors there are.
        read: the weight, dequantised to this dtype. Raises ValueError: the tensors don't fit
            together.
        needs: which others a tensor can't be read without.
        unused: endings of tensors that nobody asks here, where activations and the KV cache are
            not quantized.
        why_not: what keeps weights with these settings from being read; None if nothing does.
    """

    endings: Mapping[str, str]
    marks: Collection[str]
    values: Collection[str]
    ending: str
    bits: Callable[[Collection[str], Settings], int]
    read: Callable[[Parts, Settings, torch.dtype], torch.Tensor]
    needs: Mapping[str, Collection[str]]
    unused: tuple[str, ...] = ()
    why_not: Callable[[Settings], str | None] = anything
