"""A model folder made into a model that can run."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from llama_compat.tools.formats import FORMATS, ToolFormat, guess_tool_format
from llama_compat.types import StopReason
from providers.base import ProviderStartError
from providers.local.detokenizer import Vocabulary
from providers.local.end_tokens import known_end_tokens
from providers.local.engine import LocalModel
from providers.local.memory import available_memory
from providers.local.torch_engine import linear
from providers.local.torch_engine.attention import CacheShape, KVCache
from providers.local.torch_engine.block_manager import BlockManager
from providers.local.torch_engine.cpu_thread import on_cpu_thread
from providers.local.torch_engine.decoder import Decoder
from providers.local.torch_engine.devices import choose_device, choose_dtype
from providers.local.torch_engine.model_runner import PagedRunner, Runner, UnbatchedRunner
from providers.local.torch_engine.scheduler import Limits
from providers.local.torch_engine.self_check import StepOf, find_fault
from providers.local.torch_engine.tokenizer import HubTokenizer
from providers.local.torch_engine.weights import decoder_of, why_not

log = logging.getLogger(__name__)

BLOCK_SIZE = 16
"""Tokens in a block of the KV cache."""

STEP_TOKENS = {"cpu": 128, "cuda": 2048}
"""Tokens a step: enough to be efficient, few enough for those that decode to go on meanwhile."""

MEMORY_IF_UNKNOWN = 4 * 2**30

SCORED_TOKENS = 128
"""Of a prompt whose tokens are scored: the logits of each take vocabulary times 4 bytes."""


NEEDS = {
    "float16": "a CPU with FBGEMM's kernels (x86 with AVX2)",
    "int8": "an x86 CPU with AVX2, Linux and the package llvmlite",
}
"""For each kind of weights; see `linear.MAKES`."""


@dataclass(frozen=True)
class LoadedModel:
    """A model and what an engine needs to run it.

    Attributes:
        model: as a provider sees it.
        runner: its forward pass.
        blocks: of its KV cache.
        limits: of its steps and queue.
        device: where it is.
        dtype: of its weights and activations.
        quantization: of its weights, one of `linear.MAKES`.
        prefix_cache: whether what was computed is kept for prompts that begin the same.
        batched: whether sequences share forward passes.
        kernels: what computes them beside the matrix products, `triton` or `sdpa`.
        overlap: whether a step may be launched before the tokens of the one before it are read.
    """

    model: LocalModel
    runner: Runner
    blocks: BlockManager
    limits: Limits
    device: torch.device
    dtype: torch.dtype
    quantization: str
    prefix_cache: bool
    batched: bool
    kernels: str
    overlap: bool


@dataclass(frozen=True)
class LoadOptions:
    """How a model is to run; what the template's settings of the same names say.

    `context_length` takes the place of the model's own where that is longer or not known. A
    `kv_cache` of at most 1 is a share of the memory that is free when the model is loaded, more
    than that a number of bytes.
    """

    device: str = "auto"
    dtype: str = "auto"
    quantization: str = "auto"
    kernels: str = "auto"
    cuda_graphs: bool = True
    overlap: bool = True
    tool_format: str = "auto"
    context_length: int | None = None
    max_sequences: int = 32
    max_waiting: int = 256
    max_step_tokens: int | None = None
    kv_cache: float = 0.5
    prefix_cache: bool = True


def load(name: str, folder: Path, options: LoadOptions) -> LoadedModel:
    """Load the model in `folder`.

    Args:
        name: the provider's name for it, for messages.
        folder: in Hugging Face's layout.
        options: how it is to run.

    Raises:
        ProviderStartError: the folder or the device won't do.
    """
    return on_cpu_thread(_load, name, folder, options)


def _load(name: str, folder: Path, options: LoadOptions) -> LoadedModel:
    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device)
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=dtype)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ProviderStartError(
            f"The model '{name}' in {folder} can't be loaded: {_first_sentence(error)} Pull it"
            " again or name another folder in the template."
        ) from error
    if not tokenizer.is_fast:
        raise ProviderStartError(
            f"The model '{name}' in {folder} has no fast tokenizer (a tokenizer.json): save one"
            " there with transformers' AutoTokenizer, or choose another model."
        )
    module = _to_device(module.eval(), device, name)
    hub_tokenizer = HubTokenizer(tokenizer)
    vocabulary = Vocabulary(tokenizer.backend_tokenizer)
    vocab_size = module.get_input_embeddings().num_embeddings
    stop_tokens = _stop_tokens(module, tokenizer, vocabulary)
    context_length = _context_length(name, module, options.context_length)
    reason = why_not(module.config)
    quantization, kernels = "none", "sdpa"
    limits = Limits(
        sequences=options.max_sequences if reason is None else 1,
        tokens=options.max_step_tokens or STEP_TOKENS[device.type],
        scored_tokens=SCORED_TOKENS,
        waiting=options.max_waiting,
    )
    runner: Runner
    if reason is None:
        quantization = _quantization(name, options, device, dtype)
        runner, blocks, kernels = paged(name, module, options, quantization, context_length, limits)
    else:
        _warn_unbatched(name, options.quantization, reason)
        runner = UnbatchedRunner(module)
        blocks = BlockManager(-(-context_length // BLOCK_SIZE), BLOCK_SIZE)
    room = blocks.total * BLOCK_SIZE
    if room < context_length:
        log.warning("%s: the KV cache has room for %d tokens only", name, room)
    return LoadedModel(
        model=LocalModel(
            name=name,
            tokenizer=hub_tokenizer,
            vocabulary=vocabulary,
            vocab_size=vocab_size,
            context_length=min(context_length, room),
            stop_tokens=stop_tokens,
            tool_format=_tool_format(options.tool_format, name, folder, tokenizer),
        ),
        runner=runner,
        blocks=blocks,
        limits=limits,
        device=device,
        dtype=dtype,
        quantization=quantization,
        prefix_cache=options.prefix_cache and reason is None,
        batched=reason is None,
        kernels=kernels,
        overlap=options.overlap,
    )


def _warn_unbatched(name: str, quantization: str, reason: str) -> None:
    if quantization not in ("auto", "none"):
        raise ProviderStartError(
            f"The model '{name}' can't be quantized to {quantization}, since {reason}: set"
            " 'quantization: none' in the template."
        )
    log.warning(
        "%s runs on transformers' own code, one request at a time and without a prefix cache,"
        " since %s",
        name,
        reason,
    )


def paged(
    name: str,
    module: Any,
    options: LoadOptions,
    quantization: str,
    context_length: int,
    limits: Limits,
) -> tuple[Runner, BlockManager, str]:
    """What runs a transformers model in batches, the blocks of its KV cache, and the kernels.

    Args:
        name: the provider's name for it, for messages.
        module: on its device, with a config that passes `why_not`; it is used up.
        options: how it is to run.
        quantization: of its weights, one of `linear.MAKES`.
        context_length: the most tokens of a sequence.
        limits: of its steps.

    Raises:
        ProviderStartError: there is not enough memory, or the kernels asked for don't work.
    """
    make = linear.MAKES[quantization]
    with torch.inference_mode():
        decoder = decoder_of(module, make, context_length)
    shape = CacheShape(
        len(decoder.layers), decoder.kv_heads, decoder.head_dim, decoder.embedding.dtype
    )
    device = decoder.embedding.device
    block_bytes = shape.bytes_per_token * BLOCK_SIZE
    allowed = options.kv_cache
    if allowed <= 1:
        allowed *= free_memory(device)
    needed = -(-context_length // BLOCK_SIZE) * options.max_sequences
    total = min(needed, int(allowed / block_bytes))
    if total < 1:
        raise ProviderStartError(
            f"The KV cache of the model '{name}' gets {int(allowed)} bytes, less than the"
            f" {block_bytes} of one block: set a larger 'kv_cache' in the template."
        )
    cache = KVCache(shape, total, BLOCK_SIZE, device)
    kernels = _choose_kernels(name, options.kernels, decoder)
    runner: Runner
    if kernels == "triton":
        runner = _kernel_runner(name, decoder, cache, options.cuda_graphs, context_length, limits)
    elif kernels == "llvm":
        from providers.local.torch_engine.cpu_kernels.step import CPUKernels

        runner = PagedRunner(decoder, cache, CPUKernels(decoder, BLOCK_SIZE))
    else:
        runner = PagedRunner(decoder, cache)
    return runner, BlockManager(total, BLOCK_SIZE), kernels


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


def _quantization(name: str, options: LoadOptions, device: torch.device, dtype: torch.dtype) -> str:
    possible = [
        kind
        for kind, there in (
            ("int8", linear.kernels_possible()),
            ("float16", linear.fbgemm_available()),
        )
        if there and device.type == "cpu" and dtype == torch.float32
    ]
    if options.quantization == "auto":
        # Who asks for float32 means it.
        return possible[0] if possible and options.dtype == "auto" else "none"
    if options.quantization not in ("none", *possible):
        raise ProviderStartError(
            f"The model '{name}' can't run with 'quantization: {options.quantization}': that needs"
            f" {NEEDS[options.quantization]}, and dtype float32. Set 'quantization: none'."
        )
    return options.quantization


def _to_device(model: Any, device: torch.device, name: str) -> Any:
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        raise ProviderStartError(
            f"The model '{name}' does not fit into the memory of '{device}': set 'device: cpu', a"
            " smaller dtype, or choose a smaller model."
        ) from error


def _context_length(name: str, model: Any, wanted: int | None) -> int:
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    known = [length for length in (own, wanted) if length is not None]
    if not known:
        raise ProviderStartError(
            f"The model '{name}' does not say how long its context is: set 'context_length' for it"
            " in the template."
        )
    return min(known)


def _stop_tokens(model: Any, tokenizer: Any, vocabulary: Vocabulary) -> dict[int, StopReason]:
    stop_tokens = {
        token_id: StopReason.end_of_turn
        for source in (model.generation_config, model.config, tokenizer)
        for token_id in _as_list(getattr(source, "eos_token_id", None))
    }
    return stop_tokens | known_end_tokens(vocabulary)


def _tool_format(wanted: str, name: str, folder: Path, tokenizer: Any) -> ToolFormat | None:
    if wanted == "auto":
        templates = tokenizer.chat_template or ""
        if isinstance(templates, dict):
            templates = "\n".join(templates.values())
        # The folder may have any name; the config still has the one that the model was given.
        config = json.loads((folder / "config.json").read_text("utf-8"))
        given = (config.get(member, "") for member in ("_name_or_path", "_model_name_or_path"))
        names = " ".join([name, str(folder), *map(str, given)])
        wanted = guess_tool_format(chat_template=templates, model=names) or "none"
    return FORMATS.get(wanted)


def _as_list(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _first_sentence(error: Exception) -> str:
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return line if line.endswith(".") else line + "."
