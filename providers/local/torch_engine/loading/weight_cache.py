"""Weights of 8 or 4 bits kept beside their model: the next start reads them alone.

They are in `.llama-compat/int8.safetensors`, or `int4.safetensors`, in the model's folder: a
decoder's tensors by where they are in it, and as metadata the rest of it, what it was made of, and
a sum of all that. It is made anew when the model's files, this code or transformers have changed,
and when it is damaged.
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields
from mmap import mmap
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from providers.local.models.folders import fresh_folder
from providers.local.torch_engine import formats
from providers.local.torch_engine.cpu_kernels import packing, products
from providers.local.torch_engine.cpu_kernels.products import PackedLinear
from providers.local.torch_engine.loading import architectures, recurrences, weights
from providers.local.torch_engine.loading.reading import source_of
from providers.local.torch_engine.model import decoder as decoder_module
from providers.local.torch_engine.model import experts, gated_mlp, latent, norm, rope
from providers.local.torch_engine.model.decoder import Decoder, Heads, Layer, SideInput, SideInputs
from providers.local.torch_engine.model.experts import Experts, Router, Rows
from providers.local.torch_engine.model.gated_mlp import GatedMLP
from providers.local.torch_engine.model.latent import Latent
from providers.local.torch_engine.model.norm import Norm
from providers.local.torch_engine.model.recurrent import convolution, gated_delta, short_conv
from providers.local.torch_engine.model.recurrent.convolution import Convolution
from providers.local.torch_engine.model.recurrent.gated_delta import GatedDelta
from providers.local.torch_engine.model.recurrent.short_conv import ShortConv
from providers.local.torch_engine.model.rope import Rope
from providers.local.torch_engine.starting.kept_weights import (
    KeptTensor,
    KeptWeights,
    Numbers,
    file_in,
    write_weights,
)

log = logging.getLogger(__name__)

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""By what safetensors calls them."""

_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

CLASSES = {
    each.__name__: each
    for each in (
        *(Convolution, Decoder, Experts, GatedDelta, GatedMLP, Heads, Latent, Layer, Norm),
        *(PackedLinear, Rope, Router, Rows, ShortConv, SideInput, SideInputs),
    )
}
"""What a decoder with such weights is made of, beside tensors, lists, numbers and dtypes."""


def read(folder: Path, quantization: str, begun: KeptWeights | None = None) -> Decoder | None:
    """The decoder of the model in `folder`; None if it isn't kept, or is of another state of it.

    Args:
        folder: in Hugging Face's layout.
        quantization: of its weights, of `PACKED`.
        begun: reads the file, if that has begun, or another one.
    """
    file = file_in(folder, quantization)
    kept = begun if begun is not None and begun.path == file else KeptWeights(file)
    with closing(kept):
        try:
            metadata = kept.open()
            if metadata.get("source") != _source(folder):
                return None
            memory, found, sums = kept.read()
            tensors = {name: _tensor(memory, each) for name, each in found.items()}
        except (OSError, ValueError):
            return None
    if metadata.get("sum") != _sum(metadata["decoder"], sums):
        log.warning("the weights in %s are damaged, and made anew", file)
        return None
    made = _rebuilt(json.loads(metadata["decoder"]), tensors)
    assert isinstance(made, Decoder)
    return made


def write(folder: Path, decoder: Decoder, quantization: str) -> None:
    """Keep the decoder of the model in `folder`; where that can't be written, it isn't kept."""
    found: dict[str, torch.Tensor] = {}
    described = json.dumps(_described(decoder, "", found))
    tensors = {name: _numbers(each) for name, each in found.items()}
    metadata = {
        "decoder": described,
        "source": _source(folder),
        "sum": _sum(described, {name: zlib.crc32(each.data) for name, each in tensors.items()}),
    }
    file = file_in(folder, quantization)
    try:
        file.parent.mkdir(exist_ok=True)
        lock = FileLock(file.with_suffix(".lock"), timeout=0)
        with lock, fresh_folder(file.with_suffix(".unfinished")) as unfinished:
            written = unfinished / file.name
            write_weights(written, tensors, metadata)
            written.chmod(0o644)
            # Whole or not at all, for other processes and after a power failure.
            written.replace(file)
    except Timeout:
        log.info("another process is keeping the weights in %s", file)
    except OSError as error:
        log.info("the weights of %s can't be kept in %s: %s", quantization, file.parent, error)
    else:
        log.info("the weights are kept in %s", file)


def _tensor(memory: mmap, kept: KeptTensor) -> torch.Tensor:
    """One that lies in memory, which stays as long as any of them.

    Raises:
        ValueError: it isn't as long as its shape says, or of a dtype that no weight has.
    """
    dtype = _DTYPES.get(kept.dtype)
    if dtype is None or math.prod(kept.shape) * dtype.itemsize != kept.size:
        raise ValueError("it is damaged")
    if not kept.size:
        return torch.empty(kept.shape, dtype=dtype)
    count = math.prod(kept.shape)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=kept.offset).view(kept.shape)


def _numbers(tensor: torch.Tensor) -> Numbers:
    data = memoryview(tensor.contiguous().flatten().view(torch.uint8).numpy())
    return Numbers(_NAMES[tensor.dtype], tuple(tensor.shape), data)


def _sum(described: str, sums: Mapping[str, int]) -> str:
    """What changes with any part of a decoder that was kept, by the sums of its tensors."""
    return f"{zlib.crc32(json.dumps([described, sorted(sums.items())]).encode()):08x}"


def _source(folder: Path) -> str:
    """What the weights are made of: the model's files, and the code."""
    modules = (
        *(architectures, convolution, decoder_module, experts, gated_delta, gated_mlp, latent),
        *(norm, packing, products, recurrences, rope, short_conv),
    )
    files = [__file__, *(str(each.__file__) for each in modules)]
    for package in (formats, weights):
        files += map(str, Path(str(package.__file__)).parent.glob("*.py"))
    return source_of(folder, files)


def _described(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """A part of a decoder as JSON; its tensors, which that names, go into `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value.contiguous()
        return {"tensor": name}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, list):
        return [_described(each, f"{name}.{at}", tensors) for at, each in enumerate(value)]
    if type(value) in CLASSES.values():
        members = {
            field.name: _described(getattr(value, field.name), f"{name}.{field.name}", tensors)
            for field in fields(value)
        }
        return {type(value).__name__: members}
    assert value is None or isinstance(value, (int, float, str)), type(value)
    return value


def _rebuilt(described: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(described, list):
        return [_rebuilt(each, tensors) for each in described]
    if not isinstance(described, dict):
        return described
    [(kind, value)] = described.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dtype":
        return getattr(torch, value)
    return CLASSES[kind](**{name: _rebuilt(each, tensors) for name, each in value.items()})
