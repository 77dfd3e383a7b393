"""Where models run, and in which numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec

import torch

from providers.base import ProviderStartError


def choose_device(device: str) -> torch.device:
    """The device that the template's word stands for: with `auto`, CUDA where there is one.

    Raises:
        ProviderStartError: this machine has no such device.
    """
    available = torch.cuda.is_available()
    if device == "auto":
        return torch.device("cuda" if available else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda" and not (
        available and (chosen.index or 0) < torch.cuda.device_count()
    ):
        raise ProviderStartError(
            f"The template asks for the device '{device}', but torch sees"
            f" {torch.cuda.device_count()} CUDA devices: set 'device: auto' or 'device: cpu', or"
            " install a torch that is built for this machine's GPU."
        )
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype that the template's word stands for: with `auto`, bfloat16 on CUDA."""
    if dtype != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[
            dtype
        ]
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


FP8_CAPABILITY = (8, 9)
"""Of CUDA, from which on GPUs know FP8: Ada, Hopper and newer."""


def lacks_fp8(device: torch.device) -> str | None:
    """What keeps a device from computing with FP8, in words; None where it can."""
    if device.type != "cuda":
        return "FP8 needs a GPU with CUDA capability 8.9 or more (Ada, Hopper or newer)"
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        own = ".".join(map(str, capability))
        return f"FP8 needs CUDA capability 8.9 or more (Ada, Hopper or newer), and this has {own}"
    if find_spec("triton") is None:
        return "FP8 needs Triton, which is not installed"
    return None


@lru_cache
def processors(device: torch.device) -> int:
    """How many a GPU has; 1 of what is none."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@contextmanager
def current(device: torch.device) -> Iterator[None]:
    """Make a GPU this thread's own: there Triton launches and events are recorded.

    PyTorch's operations go where their tensors are.
    """
    if device.type == "cpu":
        yield
    else:
        with torch.cuda.device(device):
            yield
