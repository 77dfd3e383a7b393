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
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GenerationConfig,
)
from transformers.utils import logging as transformers_logging

from llama_compat.tools.formats import FORMATS, ToolFormat, guess_tool_format
from llama_compat.types import StopReason
from providers.base import ProviderStartError
from providers.local.engine import LocalModel
from providers.local.prompts.end_tokens import known_end_tokens
from providers.local.replies.detokenizer import Vocabulary
from providers.local.torch_engine.cpu_thread import on_cpu_thread
from providers.local.torch_engine.devices import choose_device, choose_dtype, current
from providers.local.torch_engine.loading.checkpoint import read_model
from providers.local.torch_engine.loading.weights import decoder_of, why_not
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.rope_lengths import LongRope
from providers.local.torch_engine.model.unbatched import (
    UnbatchedModel,
    UnbatchedRunner,
    Way,
    find_way,
)
from providers.local.torch_engine.model_runner import Runner
from providers.local.torch_engine.runners import paged
from providers.local.torch_engine.scheduling.block_manager import BLOCK_SIZE, BlockManager
from providers.local.torch_engine.scheduling.scheduler import Limits
from providers.local.torch_engine.tokenizer import HubTokenizer

log = logging.getLogger(__name__)

STEP_TOKENS = {"cpu": 128, "cuda": 2048}
"""Tokens a step: enough to be efficient, few enough for those that decode to go on meanwhile."""

LONGEST_UNBATCHED = 2**24
"""Tokens of a context, where nothing but the config bounds it: more than any model was made for."""

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
        long_rope: what long sequences turn by, where that is something else.
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
    long_rope: LongRope | None = None


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
    unbatched = None
    if reason is not None:
        unbatched = _unbatched(name, folder, config, options, device, dtype, reason)
    context_length = _context_length(name, config, options.context_length)
    limits = Limits(
        sequences=options.max_sequences if unbatched is None else 1,
        tokens=options.max_step_tokens or max(STEP_TOKENS[device.type], options.max_sequences),
        scored_tokens=SCORED_TOKENS,
        waiting=options.max_waiting,
    )
    runner: Runner
    long_rope: LongRope | None = None
    if unbatched is None:
        quantization = _quantization(name, options, device, dtype)
        decoder = _decoder(name, folder, device, dtype, quantization)
        vocab_size = len(decoder.embedding)
        runner, blocks, kernels, long_rope = paged(
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
        runner, vocab_size = unbatched
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
        prefix_cache=options.prefix_cache and unbatched is None,
        batched=unbatched is None,
        kernels=kernels,
        overlap=options.overlap,
        long_rope=long_rope,
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


def _auto_class(name: str, folder: Path, config: Any) -> Any:
    """The class that makes the model; of one that takes pictures too, one that takes text alone."""
    takes_pictures = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and not (
        # Then its config is a part of another's, and has no such class of its own.
        takes_pictures and type(config.get_text_config()) not in MODEL_FOR_CAUSAL_LM_MAPPING
    ):
        return AutoModelForCausalLM
    if takes_pictures:
        log.warning("%s takes text alone here, and no pictures", name)
        return AutoModelForImageTextToText
    raise ProviderStartError(
        f"The model '{name}' in {folder} is of the kind '{config.model_type}', which does not go on"
        " with a text: 'local::torch' runs language models and sentence-transformers. Choose one"
        " of these."
    )


def _module(name: str, folder: Path, kind: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """transformers' own model."""
    with _explained(name, folder):
        module = read_model(kind, folder, dtype=dtype)
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
) -> Decoder:
    """The model, made of its weights; those of 8 bits are kept beside it."""
    if quantization == "int8":
        from providers.local.torch_engine.loading import weight_cache

        kept = weight_cache.read(folder)
        if kept is not None:
            return kept
    module = _module(name, folder, AutoModelForCausalLM, device, dtype)
    with torch.inference_mode():
        decoder = decoder_of(module, linear.MAKES[quantization])
    if quantization == "int8":
        weight_cache.write(folder, decoder)
    return decoder


def _unbatched(
    name: str,
    folder: Path,
    config: Any,
    options: LoadOptions,
    device: torch.device,
    dtype: torch.dtype,
    reason: str,
) -> tuple[UnbatchedRunner, int]:
    """What runs transformers' own model, as it is for this reason, and how many tokens it knows."""
    if options.quantization not in ("auto", "none"):
        raise ProviderStartError(
            f"The model '{name}' can't be quantized to {options.quantization}, since {reason}: set"
            " 'quantization: none' in the template."
        )
    module = _module(name, folder, _auto_class(name, folder, config), device, dtype)
    log.warning(
        "%s runs on transformers' own code, one request at a time and without a prefix cache,"
        " since %s",
        name,
        reason,
    )
    context_length = _context_length(name, config, options.context_length)
    if context_length > LONGEST_UNBATCHED:
        raise ProviderStartError(
            f"The model '{name}' in {folder} says that its context has {context_length} tokens,"
            f" more than the {LONGEST_UNBATCHED} that can be counted here: set 'context_length' for"
            " it in the template."
        )
    model = UnbatchedModel(module)
    try:
        way, vocab_size = find_way(model, module.get_input_embeddings().num_embeddings, dtype)
    except Exception as error:  # of foreign code, whatever it stumbles over
        raise ProviderStartError(
            f"The model '{name}' in {folder} was loaded, but what it computes can't be relied on"
            f" ({error}): choose a model of another architecture."
        ) from error
    if way is not Way.pieces:
        log.warning("%s computes %s: it can't go on otherwise", name, way.words)
    return UnbatchedRunner(model, way, vocab_size), vocab_size


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
