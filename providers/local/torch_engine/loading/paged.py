"""Gives a decoder its KV cache, and the runner with the kernels that suit it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from providers.base import ProviderStartError
from providers.local.block_manager import BLOCK_SIZE, BlockManager
from providers.local.memory import available_memory
from providers.local.torch_engine.config import AheadConfig, TorchConfig
from providers.local.torch_engine.devices import check, give_back, lacks_fp8
from providers.local.torch_engine.heads.head import GuessingHead
from providers.local.torch_engine.heads.head_runner import HeadRunner
from providers.local.torch_engine.loading.kernel_choice import choose_kernels
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.kv_cache import PACKED, CacheShape, KVCache
from providers.local.torch_engine.model.recurrent.states import StatePool, affordable
from providers.local.torch_engine.model.rope import LongRope
from providers.local.torch_engine.model_runner import PagedRunner, Runner
from providers.local.torch_engine.scheduling.scheduler import StepLimits
from providers.local.torch_engine.scheduling.speculation import MOST_ROWS
from providers.local.torch_engine.scheduling.state_slots import StateSlots

if TYPE_CHECKING:
    from providers.local.torch_engine.kernels.kernel_runner import KernelRunner

log = logging.getLogger(__name__)

MEMORY_IF_UNKNOWN = 4 * 2**30


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What runs a model, and where that keeps what it computed.

    Attributes:
        runner: its forward pass.
        blocks: of its KV cache.
        kernels: what computes beside the matrix products: `triton`, `llvm` or `sdpa`.
        long_rope: what long sequences turn by, where that is something else.
        states: who has which, where its layers have some.
        cache_bytes: what the KV cache and the states take; None where it grows with each sequence.
        head: that guesses for it, where it has one.
    """

    runner: Runner
    blocks: BlockManager
    kernels: str = "sdpa"
    long_rope: LongRope | None = None
    states: StateSlots | None = None
    cache_bytes: int | None = None
    head: HeadRunner | None = None


def paged(
    name: str,
    decoder: Decoder,
    context_length: int,
    limits: StepLimits,
    config: TorchConfig,
    heads: Sequence[GuessingHead] = (),
) -> Execution:
    """Make what runs a model in batches.

    Args:
        name: the provider's name for it, for messages.
        decoder: the model.
        context_length: the most tokens of a sequence, where there is memory for them.
        limits: of its steps; fewer sequences, where their states don't fit.
        config: the provider's settings.
        heads: that guess for it; their keys and values lie beside the model's.

    Raises:
        ProviderStartError: there is not enough memory, or the kernels asked for don't work.
    """
    device, shape = decoder.embedding.device, decoder.cache_shape
    if config.kv_cache_dtype != "auto":
        _check_packed(name, config.kv_cache_dtype, decoder)
        shape = replace(shape, dtype=PACKED[config.kv_cache_dtype])
    rows = [each for head in heads for each in head.inner.cache_shape.layers]
    beside = CacheShape(rows, shape.dtype)
    token_bytes = shape.bytes_per_token + beside.bytes_per_token
    block_bytes = token_bytes * BLOCK_SIZE
    allowed = config.kv_cache
    if allowed <= 1:
        allowed *= free_memory(device)
    slots = _slots(name, decoder, allowed, limits, config)
    states = None if slots is None else slots.states
    state_bytes = 0 if states is None else states.nbytes
    allowed -= state_bytes
    needed = -(-context_length // BLOCK_SIZE) * limits.sequences
    total = min(needed, _affordable_blocks(name, allowed, block_bytes))
    # No sequence is longer than the cache, whatever the config says.
    positions = min(context_length, total * BLOCK_SIZE)
    long_rope = decoder.reach(positions)
    cache = KVCache(shape, total, BLOCK_SIZE, device)
    for head in heads:
        head.inner.reach(positions)
    ahead = HeadRunner(heads, total, BLOCK_SIZE, beside) if heads else None
    chosen = choose_kernels(name, config.kernels, decoder, cached=shape.dtype)
    if chosen == "triton":
        runner = _in_triton(name, decoder, cache, positions, limits, config, states)
    else:
        runner = _with_torch(decoder, cache, config, states, ahead, chosen)
    return Execution(
        runner=runner,
        blocks=BlockManager(total, BLOCK_SIZE),
        kernels=chosen,
        long_rope=long_rope,
        states=slots,
        cache_bytes=total * block_bytes + state_bytes,
        head=ahead,
    )


def _affordable_blocks(name: str, allowed: float, block_bytes: int) -> int:
    """How many blocks there are in `allowed` bytes.

    Raises:
        ProviderStartError: not one.
    """
    blocks = int(allowed / block_bytes)
    if blocks < 1:
        raise ProviderStartError(
            f"The KV cache of the model '{name}' gets {int(allowed)} bytes, less than the"
            f" {block_bytes} of one block: set a larger 'kv_cache' in the template."
        )
    return blocks


def _in_triton(
    name: str,
    decoder: Decoder,
    cache: KVCache,
    positions: int,
    limits: StepLimits,
    config: TorchConfig,
    states: StatePool | None,
) -> Runner:
    """What runs a model in Triton kernels, of sequences of so many `positions` at most."""
    from providers.local.torch_engine.kernels.kernel_runner import KernelRunner

    runner = KernelRunner(
        decoder,
        cache,
        tokens=limits.tokens,
        sequences=limits.sequences,
        blocks=-(-positions // BLOCK_SIZE),
        states=states,
    )
    if config.cuda_graphs and decoder.embedding.device.type == "cuda" and runner.are_alike:
        _record(name, runner, decoder.embedding.device)
    log.info("%s runs in Triton kernels, with %d CUDA graphs", name, runner.graphs)
    return runner


def _with_torch(
    decoder: Decoder,
    cache: KVCache,
    config: TorchConfig,
    states: StatePool | None,
    head: HeadRunner | None,
    kernels: str,
) -> Runner:
    """What runs a model by PyTorch's operations, with `llvm` kernels between its products or
    without."""
    apart = config.deterministic
    if kernels != "llvm":
        return PagedRunner(decoder, cache, apart=apart, states=states, head=head)
    from providers.local.torch_engine.cpu_kernels.step import AS_ROWS, CPUKernels

    packed = any(each.dtype == torch.int8 for each in cache.layers)
    own = CPUKernels(decoder, BLOCK_SIZE, apart=apart, packed=packed)
    return PagedRunner(decoder, cache, own, apart=apart, as_rows=AS_ROWS, states=states, head=head)


def _check_packed(name: str, kind: str, decoder: Decoder) -> None:
    """Whether the cache of this model can have 8 bits a number, as `kv_cache_dtype` says.

    Raises:
        ProviderStartError: it can't.
    """
    device, dtype = decoder.embedding.device, decoder.embedding.dtype
    if kind == "int8" and (device.type != "cpu" or dtype != torch.float32):
        raise ProviderStartError(
            f"The model '{name}' can't have 'kv_cache_dtype: int8' on '{device}' in"
            f" {str(dtype).removeprefix('torch.')}: that is for CPUs and float32, or weights of"
            " fewer bits there. Leave it out of the template, or set 'fp8' on a GPU."
        )
    if kind == "fp8" and (missing := lacks_fp8(device)) is not None:
        raise ProviderStartError(
            f"The model '{name}' can't have 'kv_cache_dtype: fp8' on '{device}': {missing}. Leave"
            " it out of the template, or set 'int8' on a CPU."
        )
    if any(each.latent is not None for each in decoder.layers):
        raise ProviderStartError(
            f"The model '{name}' can't have 'kv_cache_dtype: {kind}': of a token it keeps the few"
            " numbers that keys and values are made of, as they are. Leave it out of the template."
        )


def _slots(
    name: str, decoder: Decoder, allowed: float, limits: StepLimits, config: TorchConfig
) -> StateSlots | None:
    """The states of a model whose layers have some, in `allowed` bytes, of which keys and values
    get the rest.

    Raises:
        ProviderStartError: there is not even room for one.
    """
    shapes = decoder.state_shapes
    if not shapes:
        return None
    each = sum(shape.nbytes for shape in shapes.values())
    tried = states_tried(config)
    running, kept = affordable(
        allowed, each, limits.sequences, keeps=config.prefix_cache, tried=tried
    )
    if running < 1:
        raise ProviderStartError(
            f"The KV cache of the model '{name}' gets {int(allowed)} bytes, of which half is for"
            f" states, and a request's state takes {each}: set a larger 'kv_cache' in the template."
        )
    if running < limits.sequences:
        log.warning(
            "%s: %d requests run at a time, since the state of each takes %d bytes of 'kv_cache'",
            name,
            running,
            each,
        )
        limits.sequences = running
    log.info("%s: %d states of %d bytes, to run and to go on from", name, running + kept, each)
    pool = StatePool(shapes, running + kept + tried, decoder.embedding.device)
    return StateSlots(pool, running, tried)


def states_tried(config: TorchConfig) -> int:
    """How many states there are to go back to from guesses, of a model whose layers have some: one
    for each token that a step may guess."""
    return MOST_ROWS - 1 if isinstance(config.speculation, AheadConfig) else 0


def _record(name: str, runner: KernelRunner, device: torch.device) -> None:
    try:
        runner.record()
    except RuntimeError as error:  # torch's OutOfMemoryError is one too
        check(device, error)
        give_back(device, error)
        log.warning("%s runs without CUDA graphs, since recording them failed: %s", name, error)


def free_memory(device: torch.device) -> int:
    """How many bytes `device` has left; for a CPU what the system could give without swapping."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory() or MEMORY_IF_UNKNOWN
