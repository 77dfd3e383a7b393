"""The tensors in a folder's files, and which of them are one weight."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

from providers.local.torch_engine.formats.header import header_of
from providers.local.torch_engine.formats.known import Quantized
from providers.local.torch_engine.formats.stored_format import (
    Parts,
    StoredFormat,
    UnreadableError,
)

PLAIN = ("F64", "F32", "F16", "BF16")
"""What safetensors calls the dtypes that a weight has which isn't quantized."""


class StoredTensor(NamedTuple):
    """What a file's header says of a tensor.

    Attributes:
        file: where it is.
        dtype: as safetensors calls it.
        shape: of it.
        size: in bytes.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    size: int

    @property
    def numbers(self) -> int:
        """How many it has."""
        return math.prod(self.shape)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors of a model: those that its index names, since there may be others beside
    them, of the same weights in another layout."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if index.is_file():
        named = json.loads(index.read_text("utf-8"))["weight_map"].values()
        return [folder / name for name in sorted(set(named))]
    return sorted(folder.glob("*.safetensors"))


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """All tensors by their names, by the headers of the files
    (https://github.com/huggingface/safetensors#format).

    Raises:
        ValueError: a file is damaged.
    """
    found: dict[str, StoredTensor] = {}
    for path in weight_files(folder):
        _, header = header_of(path)
        for name, tensor in header.items():
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                found[name] = StoredTensor(
                    path, tensor["dtype"], tuple(tensor["shape"]), end - begin
                )
    return found


def weights_of(names: Collection[str], stored: StoredFormat) -> dict[str, dict[str, str]]:
    """The weights that tensors of these names are.

    Returns:
        By the weight's name in the model, its tensors' names by what the format calls them.
        Plain weights are not among them.

    Raises:
        UnreadableError: a part of one is missing.
    """
    found: dict[str, dict[str, str]] = {}
    there = {name for name in names if not _is_unused(name, stored)}
    for mark in stored.marks:
        ending = stored.endings[mark]
        for name in there:
            if name.endswith(ending):
                stem = name.removesuffix(ending)
                found.setdefault(stem + stored.ending, {}).update(
                    (part, stem + other)
                    for part, other in stored.endings.items()
                    if stem + other in there
                )
    # Without numbers it is none: it may be called like a part of one by chance.
    found = {
        weight: parts
        for weight, parts in found.items()
        if any(part in parts for part in stored.values)
    }
    for weight, parts in found.items():
        stem = weight.removesuffix(stored.ending)
        for need in (need for part in parts for need in stored.needs.get(part, ())):
            if need not in parts:
                raise UnreadableError(
                    f"it lacks {stem}{stored.endings[need]}, without which {weight} can't be read."
                )
    return found


def numbers_in(tensors: Mapping[str, StoredTensor], quantized: Quantized) -> dict[str, int]:
    """How many numbers each weight has once it is read, plain ones included.

    Raises:
        UnreadableError: a part of one is missing.
    """
    weights = weights_of(tensors, quantized.stored)
    parts_of_some = {name for parts in weights.values() for name in parts.values()}
    found = {
        name: tensor.numbers
        for name, tensor in tensors.items()
        if name not in parts_of_some and not _is_unused(name, quantized.stored)
    }
    for weight, parts in weights.items():
        values = next(parts[part] for part in quantized.stored.values if part in parts)
        bits = quantized.stored.bits(parts, quantized.settings)
        found[weight] = tensors[values].size * 8 // bits
    return found


class LateWeight:
    """Stands for a weight where transformers asks for its tensors: it is read when it is asked
    for with `[...]`, as a tensor in a file is."""

    def __init__(self, name: str, parts: Mapping[str, Any], read: Callable[[Parts], torch.Tensor]):
        self._name = name
        self._parts = parts
        self._read = read

    def __getitem__(self, index: Any) -> torch.Tensor:
        """The weight, or a part of it."""
        try:
            with torch.inference_mode(mode=False), torch.no_grad():
                return self._read({part: each[...] for part, each in self._parts.items()})[index]
        except (KeyError, RuntimeError, ValueError, IndexError) as error:
            raise UnreadableError(f"{self._name} can't be read: {error}.") from error


@contextmanager
def plain_weights(folder: Path) -> Iterator[dict[str, Any]]:
    """What a model in `folder` has that isn't quantized, by the names of its weights: each is read
    where it is asked for with `[...]`."""
    with ExitStack() as stack:
        found: dict[str, Any] = {}
        for path in weight_files(folder):
            file = stack.enter_context(safe_open(path, framework="pt"))
            found |= {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        yield found


@contextmanager
def late_weights(
    folder: Path, quantized: Quantized, dtype: torch.dtype
) -> Iterator[dict[str, Any]]:
    """What a quantized model in `folder` has, by the names of its weights: each is read, and
    dequantised to `dtype`, when its turn has come, so that none is there twice but a few.

    Raises:
        UnreadableError: a part of one is missing.
    """
    tensors = stored_tensors(folder)
    if not tensors:
        raise UnreadableError("its quantized weights are not there as safetensors.")
    weights = weights_of(tensors, quantized.stored)
    parts_of_some = {name for parts in weights.values() for name in parts.values()}
    with ExitStack() as stack:
        files = {
            path: stack.enter_context(safe_open(path, framework="pt"))
            for path in sorted({tensor.file for tensor in tensors.values()})
        }
        found: dict[str, Any] = {}
        for name, tensor in tensors.items():
            if name in parts_of_some or _is_unused(name, quantized.stored):
                continue
            if name.endswith(".weight") and tensor.dtype not in PLAIN:
                raise UnreadableError(f"{name} is quantized ({tensor.dtype}), and has no scale.")
            found[name] = files[tensor.file].get_slice(name)
        for weight, parts in weights.items():
            found[weight] = LateWeight(
                weight,
                {part: files[tensors[name].file].get_slice(name) for part, name in parts.items()},
                lambda parts: quantized.stored.read(parts, quantized.settings, dtype),
            )
        yield found


def _is_unused(name: str, stored: StoredFormat) -> bool:
    return name.endswith(tuple(f"{before}{end}" for end in stored.unused for before in "._"))
