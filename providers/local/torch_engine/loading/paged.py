"""Gives a decoder its KV cache, and the runner with the kernels that suit it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import torch

from providers.base import ProviderStartError
from providers.local.block_manager import BLOCK_SIZE, BlockManager
from providers.local.memory import available_memory
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading.kernel_choice import (
    choose_kernels,
    choose_prompt_attention,
)
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.kv_cache import KVCache
from providers.local.torch_engine.model.rope_lengths import LongRope
from providers.local.torch_engine.model_runner import PagedRunner, Runner
from providers.local.torch_engine.scheduling.scheduler import StepLimits

if TYPE_CHECKING:
    from providers.local.torch_engine.kernels.kernel_runner import KernelRunner

log = logging.getLogger(__name__)

MEMORY_IF_UNKNOWN = 4 * 2**30


class Paged(NamedTuple):
    """What runs a model in batches.

    Attributes:
        runner: its forward pass.
        blocks: of its KV cache.
        kernels: what computes beside the matrix products.
        long_rope: what long sequences turn by, where that is something else.
        cache_bytes: what the KV cache takes.
    """

    runner: Runner
    blocks: BlockManager
    kernels: str
    long_rope: LongRope | None
    cache_bytes: int


def paged(
    name: str,
    decoder: Decoder,
    context_length: int,
    limits: StepLimits,
    config: TorchConfig,
) -> Paged:
    """Make what runs a model in batches.

    Args:
        name: the provider's name for it, for messages.
        decoder: the model.
        context_length: the most tokens of a sequence, where there is memory for them.
        limits: of its steps.
        config: the provider's settings.

    Raises:
        ProviderStartError: there is not enough memory, or the kernels asked for don't work.
    """
    shape = decoder.cache_shape
    device = decoder.embedding.device
    block_bytes = shape.bytes_per_token * BLOCK_SIZE
    allowed = config.kv_cache
    if allowed <= 1:
        allowed *= free_memory(device)
    needed = -(-context_length // BLOCK_SIZE) * limits.sequences
    total = min(needed, int(allowed / block_bytes))
    if total < 1:
        raise ProviderStartError(
            f"The KV cache of the model '{name}' gets {int(allowed)} bytes, less than the"
            f" {block_bytes} of one block: set a larger 'kv_cache' in the template."
        )
    # No sequence is longer than the cache, whatever the config says.
    positions = min(context_length, total * BLOCK_SIZE)
    long_rope = decoder.reach(positions)
    cache = KVCache(shape, total, BLOCK_SIZE, device)
    chosen = choose_kernels(name, config.kernels, decoder)
    prompts = choose_prompt_attention(name, config.prompt_attention, decoder, chosen)
    runner: Runner
    if chosen == "triton":
        from providers.local.torch_engine.kernels.kernel_runner import KernelRunner

        kernel_runner = KernelRunner(
            decoder,
            cache,
            tokens=limits.tokens,
            sequences=limits.sequences,
            blocks=-(-positions // BLOCK_SIZE),
            prompts=prompts,
        )
        # Which experts a step takes is known once it runs, so that no graph can be recorded of it.
        if config.cuda_graphs and device.type == "cuda" and not decoder.has_experts:
            _record(name, kernel_runner)
        log.info("%s runs in Triton kernels, with %d CUDA graphs", name, kernel_runner.graphs)
        runner = kernel_runner
    elif chosen == "llvm":
        from providers.local.torch_engine.cpu_kernels.step import AS_ROWS, CPUKernels

        kernels = CPUKernels(decoder, BLOCK_SIZE, apart=config.deterministic)
        runner = PagedRunner(decoder, cache, kernels, apart=config.deterministic, as_rows=AS_ROWS)
    else:
        runner = PagedRunner(decoder, cache, apart=config.deterministic)
    blocks = BlockManager(total, BLOCK_SIZE)
    return Paged(runner, blocks, chosen, long_rope, total * block_bytes)


def _record(name: str, runner: KernelRunner) -> None:
    try:
        runner.record()
    except RuntimeError as error:
        # torch's OutOfMemoryError is one too.
        torch.cuda.empty_cache()
        log.warning("%s runs without CUDA graphs, since recording them failed: %s", name, error)


def free_memory(device: torch.device) -> int:
    """How many bytes `device` has left; for a CPU what the system could give without swapping."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory() or MEMORY_IF_UNKNOWN
