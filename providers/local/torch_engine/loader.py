"""A model folder made into a model that can run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging as transformers_logging

from llama_compat.tools.formats import FORMATS, ToolFormat, guess_tool_format
from llama_compat.types import StopReason
from providers.base import ProviderStartError
from providers.local.detokenizer import Vocabulary
from providers.local.end_tokens import known_end_tokens
from providers.local.engine import LocalModel
from providers.local.torch_engine import linear
from providers.local.torch_engine.block_manager import BLOCK_SIZE, BlockManager
from providers.local.torch_engine.cpu_thread import on_cpu_thread
from providers.local.torch_engine.decoder import Decoder
from providers.local.torch_engine.devices import choose_device, choose_dtype, current
from providers.local.torch_engine.model_runner import Runner, UnbatchedRunner
from providers.local.torch_engine.runners import paged
from providers.local.torch_engine.scheduler import Limits
from providers.local.torch_engine.tokenizer import HubTokenizer
from providers.local.torch_engine.weights import decoder_of, why_not

log = logging.getLogger(__name__)

STEP_TOKENS = {"cpu": 128, "cuda": 2048}
"""Tokens a step: enough to be efficient, few enough for those that decode to go on meanwhile."""

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
        kernels: what computes them beside the matrix products: `triton`, `llvm` or `sdpa`.
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
    prompt_attention: str = "auto"
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
    device = choose_device(options.device)
    return on_cpu_thread(current(device)(_load), name, folder, options, device)


def _load(name: str, folder: Path, options: LoadOptions, device: torch.device) -> LoadedModel:
    dtype = choose_dtype(options.dtype, device)
    transformers_logging.disable_progress_bar()
    with _explained(name, folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        generation = _generation_config(folder)
    if not tokenizer.is_fast:
        raise ProviderStartError(
            f"The model '{name}' in {folder} has no fast tokenizer (a tokenizer.json): save one"
            " there with transformers' AutoTokenizer, or choose another model."
        )
    hub_tokenizer = HubTokenizer(tokenizer)
    vocabulary = Vocabulary(tokenizer.backend_tokenizer)
    stop_tokens = _stop_tokens(
        (generation, config, config.get_text_config(), tokenizer), vocabulary
    )
    reason = why_not(config)
    quantization, kernels = "none", "sdpa"
    # First of all: it says what is wrong with a folder that has no language model.
    module = None if reason is None else _unbatched(name, folder, options, device, dtype, reason)
    context_length = _context_length(name, config, options.context_length)
    limits = Limits(
        sequences=options.max_sequences if module is None else 1,
        tokens=options.max_step_tokens or STEP_TOKENS[device.type],
        scored_tokens=SCORED_TOKENS,
        waiting=options.max_waiting,
    )
    runner: Runner
    if module is None:
        quantization = _quantization(name, options, device, dtype)
        decoder = _decoder(name, folder, device, dtype, quantization, context_length)
        vocab_size = len(decoder.embedding)
        runner, blocks, kernels = paged(
            name,
            decoder,
            context_length,
            limits,
            kv_cache=options.kv_cache,
            kernels=options.kernels,
            prompt_attention=options.prompt_attention,
            cuda_graphs=options.cuda_graphs,
        )
    else:
        vocab_size = module.get_input_embeddings().num_embeddings
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
        prefix_cache=options.prefix_cache and module is None,
        batched=module is None,
        kernels=kernels,
        overlap=options.overlap,
    )


@contextmanager
def _explained(name: str, folder: Path) -> Iterator[None]:
    """What transformers has against a folder, as an error for people."""
    try:
        yield
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        raise ProviderStartError(
            f"The model '{name}' in {folder} can't be loaded: {_first_sentence(error)} Pull it"
            " again or name another folder in the template."
        ) from error


def _module(name: str, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
    """transformers' own model."""
    with _explained(name, folder):
        module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=dtype)
    try:
        return module.eval().to(device)
    except torch.OutOfMemoryError as error:
        raise ProviderStartError(
            f"The model '{name}' does not fit into the memory of '{device}': set 'device: cpu', a"
            " smaller dtype, or choose a smaller model."
        ) from error


def _decoder(
    name: str,
    folder: Path,
    device: torch.device,
    dtype: torch.dtype,
    quantization: str,
    context_length: int,
) -> Decoder:
    """The model, made of its weights; those of 8 bits are kept beside it."""
    if quantization == "int8":
        from providers.local.torch_engine import weight_cache

        kept = weight_cache.read(folder, context_length)
        if kept is not None:
            return kept
    module = _module(name, folder, device, dtype)
    with torch.inference_mode():
        decoder = decoder_of(module, linear.MAKES[quantization], context_length)
    if quantization == "int8":
        weight_cache.write(folder, decoder)
    return decoder


def _unbatched(
    name: str,
    folder: Path,
    options: LoadOptions,
    device: torch.device,
    dtype: torch.dtype,
    reason: str,
) -> Any:
    """transformers' own model, to run as it is for this reason."""
    if options.quantization not in ("auto", "none"):
        raise ProviderStartError(
            f"The model '{name}' can't be quantized to {options.quantization}, since {reason}: set"
            " 'quantization: none' in the template."
        )
    module = _module(name, folder, device, dtype)
    log.warning(
        "%s runs on transformers' own code, one request at a time and without a prefix cache,"
        " since %s",
        name,
        reason,
    )
    return module


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


def _context_length(name: str, config: Any, wanted: int | None) -> int:
    own = getattr(config.get_text_config(), "max_position_embeddings", None)
    known = [length for length in (own, wanted) if length is not None]
    if not known:
        raise ProviderStartError(
            f"The model '{name}' does not say how long its context is: set 'context_length' for it"
            " in the template."
        )
    return min(known)


def _generation_config(folder: Path) -> GenerationConfig | None:
    if not (folder / "generation_config.json").exists():
        return None
    return GenerationConfig.from_pretrained(folder, local_files_only=True)


def _stop_tokens(sources: Sequence[Any], vocabulary: Vocabulary) -> dict[int, StopReason]:
    stop_tokens = {
        token_id: StopReason.end_of_turn
        for source in sources
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
