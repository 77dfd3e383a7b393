"""Which kernels work for a decoder: those that it could run in are tried first."""

from __future__ import annotations

import logging
from functools import partial

import torch

from providers.base import ProviderStartError
from providers.local.block_manager import BLOCK_SIZE
from providers.local.torch_engine.loading.self_check import StepOf, find_fault
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder

log = logging.getLogger(__name__)


def choose_kernels(
    name: str, wanted: str, decoder: Decoder, *, cached: torch.dtype | None = None
) -> str:
    """What computes beside the matrix products: `triton`, `llvm` or `sdpa`; see `TorchConfig`.

    Args:
        name: the provider's name for the model, for messages.
        wanted: what `TorchConfig.kernels` says.
        decoder: the model.
        cached: what its cache's tensors are; None for the dtype of the model.

    Raises:
        ProviderStartError: the kernels asked for don't work.
    """
    chosen = _suitable(decoder) if wanted == "auto" else wanted
    if chosen == "sdpa":
        return chosen
    fault = _fault(chosen, decoder, cached=cached)
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
    if decoder.unusual is not None:
        return "sdpa"
    if decoder.embedding.device.type == "cuda":
        return "triton"
    return "llvm" if _llvm_supports(decoder) else "sdpa"


def _llvm_supports(decoder: Decoder) -> bool:
    if not linear.kernels_possible():
        return False
    from providers.local.torch_engine.cpu_kernels.step import supports

    return supports(decoder)


def _fault(kernels: str, decoder: Decoder, *, cached: torch.dtype | None) -> str | None:
    """What keeps the model from running in these kernels, with such a cache: they are tried."""
    if decoder.unusual is not None:
        return f"it has {decoder.unusual}, which they don't compute"
    # They are given addresses: on what they are not made for, trying them would end the process.
    if kernels == "llvm" and not _llvm_supports(decoder):
        return (
            "they need an x86 CPU with AVX2, Linux, llvmlite and a model in float32 that they fit"
        )
    step_of: StepOf
    try:
        if kernels == "triton":
            from providers.local.torch_engine.kernels.kernel_runner import step_of
        else:
            from providers.local.torch_engine.cpu_kernels.step import step_of as cpu_step_of

            step_of = partial(cpu_step_of, packed=cached == torch.int8)
    except ImportError as error:
        return str(error)
    return find_fault(decoder, BLOCK_SIZE, step_of, cached=cached)
