"""What runs a decoder: the room for its keys and values, and the kernels that work for it."""

from __future__ import annotations

import logging

import torch

from providers.base import ProviderStartError
from providers.local.memory import available_memory
from providers.local.torch_engine import linear
from providers.local.torch_engine.attention import CacheShape, KVCache
from providers.local.torch_engine.block_manager import BlockManager
from providers.local.torch_engine.decoder import Decoder
from providers.local.torch_engine.model_runner import PagedRunner, Runner
from providers.local.torch_engine.scheduler import Limits
from providers.local.torch_engine.self_check import StepOf, find_fault

log = logging.getLogger(__name__)

BLOCK_SIZE = 16
"""Tokens in a block of the KV cache."""

MEMORY_IF_UNKNOWN = 4 * 2**30


def paged(
    name: str,
    decoder: Decoder,
    context_length: int,
    limits: Limits,
    *,
    kv_cache: float,
    kernels: str,
    cuda_graphs: bool,
) -> tuple[Runner, BlockManager, str]:
    """What runs a model in batches, the blocks of its KV cache, and the kernels.

    Args:
        name: the provider's name for it, for messages.
        decoder: the model.
        context_length: the most tokens of a sequence.
        limits: of its steps.
        kv_cache, kernels, cuda_graphs: what the template's settings of these names say.

    Raises:
        ProviderStartError: there is not enough memory, or the kernels asked for don't work.
    """
    shape = CacheShape(
        len(decoder.layers), decoder.kv_heads, decoder.head_dim, decoder.embedding.dtype
    )
    device = decoder.embedding.device
    block_bytes = shape.bytes_per_token * BLOCK_SIZE
    allowed = kv_cache
    if allowed <= 1:
        allowed *= free_memory(device)
    needed = -(-context_length // BLOCK_SIZE) * limits.sequences
    total = min(needed, int(allowed / block_bytes))
    if total < 1:
        raise ProviderStartError(
            f"The KV cache of the model '{name}' gets {int(allowed)} bytes, less than the"
            f" {block_bytes} of one block: set a larger 'kv_cache' in the template."
        )
    cache = KVCache(shape, total, BLOCK_SIZE, device)
    chosen = _choose_kernels(name, kernels, decoder)
    runner: Runner
    if chosen == "triton":
        runner = _kernel_runner(name, decoder, cache, cuda_graphs, context_length, limits)
    elif chosen == "llvm":
        from providers.local.torch_engine.cpu_kernels.step import CPUKernels

        runner = PagedRunner(decoder, cache, CPUKernels(decoder, BLOCK_SIZE))
    else:
        runner = PagedRunner(decoder, cache)
    return runner, BlockManager(total, BLOCK_SIZE), chosen


def _choose_kernels(name: str, wanted: str, decoder: Decoder) -> str:
    """What computes beside the matrix products: `triton`, `llvm` or `sdpa`; see `TorchConfig`."""
    chosen = _suitable(decoder) if wanted == "auto" else wanted
    if chosen == "sdpa":
        return chosen
    fault = _fault(chosen, decoder)
    if fault is None:
        return chosen
    if wanted == chosen:
        raise ProviderStartError(
            f"The kernels '{chosen}' don't work for the model '{name}' on"
            f" '{decoder.embedding.device}' ({fault}): set 'kernels: auto' or 'kernels: sdpa' in"
            " the template."
        )
    log.warning(
        "%s runs on PyTorch's own attention, which is slower, since the kernels '%s' don't work"
        " here: %s",
        name,
        chosen,
        fault,
    )
    return "sdpa"


def _suitable(decoder: Decoder) -> str:
    if decoder.embedding.device.type == "cuda":
        return "triton"
    return "llvm" if _llvm_supports(decoder) else "sdpa"


def _llvm_supports(decoder: Decoder) -> bool:
    if not linear.kernels_possible():
        return False
    from providers.local.torch_engine.cpu_kernels.step import supports

    return supports(decoder)


def _fault(kernels: str, decoder: Decoder) -> str | None:
    """What keeps the model from running in these kernels: they are tried."""
    # They are given addresses: on what they are not made for, trying them would end the process.
    if kernels == "llvm" and not _llvm_supports(decoder):
        return (
            "they need an x86 CPU with AVX2, Linux, llvmlite and a model in float32 that they fit"
        )
    step_of: StepOf
    try:
        if kernels == "triton":
            from providers.local.torch_engine.kernels.runner import step_of
        else:
            from providers.local.torch_engine.cpu_kernels.step import step_of
    except ImportError as error:
        return str(error)
    return find_fault(decoder, BLOCK_SIZE, step_of)


def _kernel_runner(
    name: str,
    decoder: Decoder,
    cache: KVCache,
    cuda_graphs: bool,
    context_length: int,
    limits: Limits,
) -> Runner:
    from providers.local.torch_engine.kernels.runner import KernelRunner

    runner = KernelRunner(
        decoder,
        cache,
        tokens=limits.tokens,
        sequences=limits.sequences,
        blocks=-(-context_length // BLOCK_SIZE),
    )
    if cuda_graphs and decoder.embedding.device.type == "cuda":
        try:
            runner.record()
        except RuntimeError as error:
            # torch's OutOfMemoryError is one too.
            torch.cuda.empty_cache()
            log.warning("%s runs without CUDA graphs, since recording them failed: %s", name, error)
    log.info("%s runs in Triton kernels, with %d CUDA graphs", name, runner.graphs)
    return runner


def free_memory(device: torch.device) -> int:
    """How many bytes `device` has left; for a CPU what the system could give without swapping."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory() or MEMORY_IF_UNKNOWN
