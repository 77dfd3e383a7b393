"""Weights that wait in main memory while their model is not on its device.

Tensors stay the ones that they are, wherever something refers to them: what they lie in is copied
to main memory, byte by byte, and made empty, and gets its bytes back later. So what comes back is
the same to the bit, however tensors share what they lie in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from itertools import chain
from typing import Any

import torch

from providers.local.engine import Engine
from providers.local.torch_engine.cpu_thread import on_device
from providers.local.torch_engine.devices import host_buffer, loading
from providers.local.torch_engine.loading.loader import LoadedModel, limits_of, with_room
from providers.local.torch_engine.loading.paged import paged
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.tokenizer import HubTokenizer

log = logging.getLogger(__name__)

PIECE_BYTES = 64 * 2**20
"""Of main memory that is taken at once. PyTorch rounds what is locked there up to a power of two,
so that larger pieces would take up to twice what they hold."""

LEAST_PIECE = 2**20


class UnparkableError(ValueError):
    """A model has something of which it is not known where its numbers lie."""


class ParkedWeights:
    """Takes the weights of a model from their device into main memory.

    Args:
        weights: what has them: a `Decoder`, or a module of PyTorch's. Nothing may compute with it
            until `restore` was called.

    Raises:
        UnparkableError: see there.
        RuntimeError: the main memory is not enough; the weights are where they were.

    Attributes:
        size: how many bytes of main memory they take.
    """

    def __init__(self, weights: object) -> None:
        self._storages = [(each, each.nbytes()) for each in storages_of(weights)]
        total = sum(size for _, size in self._storages)
        is_cuda = any(each.device.type == "cuda" for each, _ in self._storages)
        self._pieces = [_main_memory(size, locked=is_cuda) for size in piece_sizes(total)]
        self.size = sum(len(piece) for piece in self._pieces)
        for there, here in self._pairs():
            here.copy_(there, non_blocking=True)
        self._wait()
        for storage, _ in self._storages:
            storage.resize_(0)

    def restore(self) -> None:
        """Put them where they were, and let go of the main memory.

        Raises:
            torch.OutOfMemoryError: the device has no room; the model is lost.
        """
        for storage, size in self._storages:
            storage.resize_(size)
        for there, here in self._pairs():
            there.copy_(here, non_blocking=True)
        self._wait()
        self.close()

    def close(self) -> None:
        """Let go of the main memory."""
        self._pieces.clear()
        _give_back_locked_memory()

    def _pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """What lies on the device, and its place in main memory, piece by piece."""
        piece, at = 0, 0
        for storage, size in self._storages:
            whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            done = 0
            while done < size:
                if at == len(self._pieces[piece]):
                    piece, at = piece + 1, 0
                count = min(size - done, len(self._pieces[piece]) - at)
                yield whole[done : done + count], self._pieces[piece][at : at + count]
                done, at = done + count, at + count

    def _wait(self) -> None:
        for device in {each.device for each, _ in self._storages}:
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()


def parked_bytes(weights: object) -> int:
    """How many bytes of main memory `weights` would take; 0 where they can't be parked."""
    try:
        return sum(piece_sizes(sum(each.nbytes() for each in storages_of(weights))))
    except UnparkableError as error:
        log.info("weights can't wait in main memory: %s", error)
        return 0


def piece_sizes(total: int) -> list[int]:
    """Of the pieces of main memory that hold so many bytes, in bytes."""
    whole, rest = divmod(total, PIECE_BYTES)
    sizes = [PIECE_BYTES] * whole
    if rest:
        sizes.append(max(LEAST_PIECE, 1 << (rest - 1).bit_length()))
    return sizes


def storages_of(weights: object) -> list[torch.UntypedStorage]:
    """What the tensors of `weights` lie in, each once.

    Raises:
        UnparkableError: there is something else in it than tensors and what holds them.
    """
    found: dict[tuple[torch.device, int], torch.UntypedStorage] = {}
    for tensor in _tensors_in(weights):
        if tensor.layout is not torch.strided:
            raise UnparkableError(f"its numbers are laid out as {tensor.layout}")
        storage = tensor.untyped_storage()
        if storage.nbytes():
            found.setdefault((tensor.device, storage.data_ptr()), storage)
    return list(found.values())


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from chain(value.parameters(), value.buffers())
    elif isinstance(value, list | tuple):
        yield from _all_in(value)
    elif isinstance(value, Mapping):
        yield from _all_in(value.values())
    elif is_dataclass(value):
        # What it computed of its fields once is among its attributes, and not among them.
        names = {*value.__dataclass_fields__, *getattr(value, "__dict__", ())}
        yield from _all_in(getattr(value, name) for name in sorted(names))
    elif value is not None and not isinstance(value, bool | int | float | str | torch.dtype):
        raise UnparkableError(f"it has a {type(value).__name__}, which may hold numbers")


def _all_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    return chain.from_iterable(map(_tensors_in, values))


def _main_memory(size: int, *, locked: bool) -> torch.Tensor:
    """So many bytes; locked ones, which the system never moves, are copied several times sooner."""
    if locked:
        try:
            return host_buffer(size, dtype=torch.uint8, device=torch.device("cuda"))
        except RuntimeError as error:
            log.info("weights are parked in memory that is not locked: %s", error)
    return torch.empty(size, dtype=torch.uint8)


def _give_back_locked_memory() -> None:
    """Have PyTorch keep no locked memory that nothing is in."""
    if not torch.cuda.is_initialized():
        return
    public = getattr(torch.accelerator, "empty_host_cache", None)  # from PyTorch 2.12 on
    (public or torch._C._host_emptyCache)()


# A whole model -----------------------------------------------------------------------------------


class ParkedTorchModel:
    """A model whose weights are in main memory; see `providers.local.engine.ParkedModel`.

    Args:
        loaded: the model, whose engine was stopped; its weights are taken from their device.
        opens: makes an engine of it that runs.

    Raises:
        RuntimeError: the main memory is not enough.
    """

    def __init__(self, loaded: LoadedModel, opens: Callable[[LoadedModel], Engine]) -> None:
        # What has the KV cache goes; a model that is not batched has none.
        self._loaded = loaded
        if loaded.batched:
            self._loaded = replace(loaded, runner=_NoRunner(), states=None)
        self._opens = opens
        self._weights = on_device(loaded.device, ParkedWeights, loaded.weights)
        self.size = self._weights.size

    def reopened(self) -> Engine:
        """See `ParkedModel`."""
        device = self._loaded.device
        with loading(f"model '{self._loaded.model.name}'"):
            on_device(device, self._weights.restore)
            return self._opens(on_device(device, _anew, self._loaded))

    def close(self) -> None:
        """See `ParkedModel`."""
        self._weights.close()


def _anew(loaded: LoadedModel) -> LoadedModel:
    """The same model, with a KV cache that holds nothing, and all else that it had stopped."""
    old, config = loaded.model, loaded.config
    assert isinstance(old.tokenizer, HubTokenizer)
    model = replace(old, tokenizer=old.tokenizer.reopened())
    limits = limits_of(config, loaded.device, batched=loaded.batched)
    if not loaded.batched:
        return replace(loaded, model=model, limits=limits)
    assert isinstance(loaded.weights, Decoder)
    made = paged(model.name, loaded.weights, loaded.longest, limits, config)
    length = with_room(model.name, loaded.longest, made.blocks)
    return replace(
        loaded,
        model=replace(model, context_length=length),
        limits=limits,
        **vars(made),
    )


class _NoRunner:
    """The forward pass of a model whose weights are elsewhere; see `Runner`."""

    def forward(self, chunks: object, chosen: object = None) -> torch.Tensor:
        """Nobody asks for it."""
        raise RuntimeError("the model's weights are not on its device")
