"""Where models run, in which numbers, and what to do when a device fails."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec

import torch

from llama_compat.errors import APIError
from providers.base import ProviderStartError
from providers.local.torch_engine import lost_devices

_NO_MEMORY = ("out of memory", "can't allocate memory", "_ALLOC_FAILED")
"""What is said by those that have an error for it which is no `torch.OutOfMemoryError`: CUDA,
Triton, PyTorch on CPUs, and cuBLAS."""


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

FP8_GPUS = "CUDA capability {}.{} or more (Ada, Hopper or newer)".format(*FP8_CAPABILITY)
"""The same in words."""


def lacks_fp8(device: torch.device) -> str | None:
    """What keeps a device from computing with FP8, in words; None where it can."""
    if device.type != "cuda":
        return f"FP8 needs a GPU with {FP8_GPUS}"
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        own = ".".join(map(str, capability))
        return f"FP8 needs {FP8_GPUS}, and this has {own}"
    if find_spec("triton") is None:
        return "FP8 needs Triton, which is not installed"
    return None


@lru_cache
def processors(device: torch.device) -> int:
    """How many a GPU has; 1 of what is none."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def place_of(device: torch.device) -> str:
    """What a device is called where there may be several: `cpu`, `cuda:0`."""
    return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"


@contextmanager
def current(device: torch.device) -> Iterator[None]:
    """Make a GPU this thread's own: there Triton launches and events are recorded.

    PyTorch's operations go where their tensors are.

    Raises:
        APIError: 503; the GPU is lost to this process, or was with what was computed here.
    """
    if device.type == "cpu":
        yield
        return
    if (refusal := lost_devices.refusal(place_of(device))) is not None:
        raise refusal
    try:
        with torch.cuda.device(device):
            yield
    except APIError:
        raise
    except Exception as error:
        check(device, error)
        raise


_recording = threading.Lock()


@contextmanager
def recording() -> Iterator[None]:
    """A CUDA graph is recorded, by this thread alone: PyTorch waits for all of a device before that
    and in `empty_cache`, which breaks off what another thread records."""
    with _recording:
        yield


def empty_cache() -> None:
    """Give back what PyTorch keeps of GPUs for itself, where it has any and all are there."""
    if torch.cuda.is_initialized() and not lost_devices.lost():
        with _recording:
            torch.cuda.empty_cache()


_buffers_change = threading.Lock()
_host_buffers: list[weakref.ref[torch.Tensor]] = []
_kept: list[torch.Tensor] = []


def host_buffer(*shape: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Main memory of some content that is copied to or from `device` while the host goes on."""
    if device.type == "cpu":
        return torch.empty(shape, dtype=dtype)
    buffer = torch.empty(shape, dtype=dtype, pin_memory=True)
    # Models are loaded beside each other.
    with _buffers_change:
        _host_buffers[:] = [each for each in _host_buffers if each() is not None]
        _host_buffers.append(weakref.ref(buffer))
    return buffer


def _keep_host_buffers() -> None:
    """To free one, PyTorch asks the GPU when it has done with it, and aborts the process where that
    is lost."""
    with _buffers_change:
        _kept.extend(buffer for each in _host_buffers if (buffer := each()) is not None)
        _host_buffers.clear()


# When something fails -----------------------------------------------------------------------------


def check(device: torch.device, error: Exception) -> None:
    """See whether `device` is still there after something has failed on it.

    What the error says does not tell: the same comes of what a kernel did, and of how it was to be
    launched. A device that is lost fails at whatever it is asked.

    Raises:
        APIError: 503; it is lost to this process.
    """
    if device.type == "cpu":
        return
    place = place_of(device)
    if lost_devices.refusal(place) is None and not _answers(device):
        lost_devices.lose(place, error)
        _keep_host_buffers()
    if (refusal := lost_devices.refusal(place)) is not None:
        raise refusal from error


def _answers(device: torch.device) -> bool:
    """Whether a GPU gets through what it was given. One stream is waited for, as to wait for all of
    them would break off a graph that another thread records."""
    try:
        torch.cuda.current_stream(device).synchronize()
    except RuntimeError:
        return False
    return True


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was short, and nothing else is wrong."""
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(each in said for each in _NO_MEMORY)


def give_back(device: torch.device, error: BaseException) -> None:
    """Have what was computed until `error` given back, to others on a GPU too: the frames that it
    came through hold it."""
    traceback.clear_frames(error.__traceback__)
    if device.type == "cuda":
        empty_cache()


@contextmanager
def within_memory(name: str, device: torch.device) -> Iterator[None]:
    """Something is computed for one request of the model `name`.

    Raises:
        APIError: 503; the memory of `device` is not enough.
    """
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        give_back(device, error)
        raise no_memory(name, device) from error


def no_memory(name: str, device: torch.device) -> APIError:
    """The error for a request of the model `name` that has no room on `device`."""
    return APIError(
        503,
        f"The memory of '{device}' is not enough for this request of model '{name}'. Send a shorter"
        " prompt or a lower max_tokens, or retry when less is running.",
        code="out_of_memory",
    ).about(name)


@contextmanager
def loading(what: str) -> Iterator[None]:
    """`what`, such as "model 'small'", or something for it, is brought to its device.

    Raises:
        ProviderStartError: the device has no room for it, or is lost to this process.
    """
    try:
        yield
    except APIError as error:
        raise ProviderStartError(f"The {what} can't be loaded: {error.message}") from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        # What was loaded until then would stay as long as somebody has the error.
        traceback.clear_frames(error.__traceback__)
        gc.collect()
        empty_cache()
        raise ProviderStartError(
            f"The {what} does not fit into the memory that its device has left ({error}):"
            " set a smaller 'kv_cache' or 'context_length', have fewer models there or give them"
            " less `memory`, set 'device: cpu', or choose a smaller model."
        ) from error
