"""Which kernels work for a decoder: those that it could run in are tried first."""

from __future__ import annotations

import logging
from functools import partial
from importlib.util import find_spec

import torch

from providers.base import ProviderStartError
from providers.local.block_manager import BLOCK_SIZE
from providers.local.torch_engine.kernels import prompts
from providers.local.torch_engine.kernels.prompts import PromptAttention
from providers.local.torch_engine.loading.self_check import StepOf, find_fault
from providers.local.torch_engine.model import kv_cache, linear
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


def choose_prompt_attention(
    name: str, wanted: str, decoder: Decoder, kernels: str, *, cached: torch.dtype | None = None
) -> PromptAttention | None:
    """What computes the attention of prompts.

    Args:
        name: the provider's name for the model, for messages.
        wanted: what `TorchConfig.prompt_attention` says.
        decoder: the model.
        kernels: which `choose_kernels` chose.
        cached: what the cache's tensors are; None for the dtype of the model.

    Returns:
        None for what computes that of replies.

    Raises:
        ProviderStartError: the package asked for doesn't work.
    """
    if wanted == "triton":
        return None
    if wanted != "auto":
        packages = [wanted]
    elif cached in kv_cache.PACKED.values():
        return None
    else:
        packages = [each for each in prompts.PACKAGES if _may_serve(each, decoder, kernels)]
    for package in packages:
        try:
            attention = prompts.PACKAGES[package](decoder.embedding.device)
            fault = _prompts_fault(attention, decoder, kernels, cached)
        except Exception as error:
            # Whatever they raise where a driver or another package's version doesn't suit them.
            fault = f"{type(error).__name__}: {error}"
        if fault is None:
            log.info("%s computes its prompts' attention by %s", name, package)
            return attention
        if wanted == package:
            raise ProviderStartError(
                f"The model '{name}' can't have its prompts' attention computed by '{package}' on"
                f" '{decoder.embedding.device}' ({fault}): set 'prompt_attention: auto' or"
                " 'prompt_attention: triton' in the template."
            )
        log.warning("%s goes without '%s', which doesn't work here: %s", name, package, fault)
    return None


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


def _may_serve(package: str, decoder: Decoder, kernels: str) -> bool:
    """Whether it is there, and made for such a decoder."""
    weights = decoder.embedding
    return (
        kernels == "triton"
        and weights.device.type == "cuda"
        and weights.dtype in (torch.float16, torch.bfloat16)
        and find_spec(package) is not None
    )


def _prompts_fault(
    attention: PromptAttention, decoder: Decoder, kernels: str, cached: torch.dtype | None
) -> str | None:
    """What keeps it from computing the model's prompts: it is tried."""
    if cached in kv_cache.PACKED.values():
        return "it is not given a cache of 8 bits, which 'kv_cache_dtype' asks for"
    if kernels != "triton":
        return f"it needs the kernels 'triton', and the model runs in '{kernels}'"
    from providers.local.torch_engine.kernels.kernel_runner import step_of

    return find_fault(decoder, BLOCK_SIZE, partial(step_of, prompts=attention))
