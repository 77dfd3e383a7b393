"""A model folder made into a model that can run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from llama_compat.tools.formats import FORMATS, ToolFormat, guess_tool_format
from llama_compat.types import StopReason
from providers.base import ProviderStartError
from providers.local.block_manager import BLOCK_SIZE, BlockManager
from providers.local.engine import LocalModel
from providers.local.models.quantized import is_fp8, is_int4
from providers.local.prompts.end_tokens import known_end_tokens
from providers.local.replies.detokenizer import HubVocabulary
from providers.local.torch_engine.adapters.peft_folder import AdapterReader
from providers.local.torch_engine.config import PACKED, AheadConfig, DraftConfig, TorchConfig
from providers.local.torch_engine.cpu_thread import RunsIn, on_cpu_thread
from providers.local.torch_engine.devices import (
    FP8_GPUS,
    choose_device,
    choose_dtype,
    current,
    lacks_fp8,
    loading,
)
from providers.local.torch_engine.loading.checkpoint import read_model
from providers.local.torch_engine.loading.paged import Execution, paged
from providers.local.torch_engine.loading.reading import (
    Aside,
    FolderReading,
    ReadTokenizer,
    keep_reading,
    kept_reading,
    read_folder,
)
from providers.local.torch_engine.loading.weights import decoder_of
from providers.local.torch_engine.media.families import multimodal_class
from providers.local.torch_engine.media.sense import TorchSense
from providers.local.torch_engine.media.tower import TextOnlyError, read_sense
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.scheduling.scheduler import StepLimits
from providers.local.torch_engine.starting.kept_weights import KeptWeights, file_in
from providers.local.torch_engine.tokenizer import HubTokenizer

if TYPE_CHECKING:
    from providers.local.torch_engine.heads.head import GuessingHead
    from providers.local.torch_engine.model.unbatched import UnbatchedRunner
    from providers.local.torch_engine.scheduling.draft import Draft

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
    "int4": "an x86 CPU with AVX2, Linux and the package llvmlite",
    "fp8": f"a GPU with {FP8_GPUS} and Triton",
}
"""For each kind of weights; see `linear.MAKES`."""


@dataclass(frozen=True, kw_only=True)
class LoadedModel(Execution):
    """A model and what an engine needs to run it.

    Attributes:
        config: the settings that it was loaded with.
        model: as a provider sees it.
        limits: of its steps.
        device: where it is.
        dtype: of its weights and activations.
        quantization: of its weights, one of `linear.MAKES`.
        batched: whether sequences share forward passes.
        adapters: reads adapters for it; None where it runs on transformers' own code.
        weights: what has them: a `Decoder`, or transformers' own model.
        longest: the tokens of a sequence for which there is a place, were there memory for them.
        draft: the smaller model that goes ahead of it, where it has one.
        sense: what it makes of media; None if it takes text alone.
    """

    config: TorchConfig
    model: LocalModel
    limits: StepLimits
    device: torch.device
    dtype: torch.dtype
    quantization: str
    batched: bool
    adapters: AdapterReader | None = None
    weights: object = None
    longest: int = 0
    draft: Draft | None = None
    sense: TorchSense | None = None


def load(
    name: str,
    folder: Path,
    config: TorchConfig,
    context_length: int | None = None,
    *,
    where: RunsIn = on_cpu_thread,
    aside: Aside | None = None,
) -> LoadedModel:
    """Load the model in `folder`.

    Args:
        name: the provider's name for it, for messages.
        folder: in Hugging Face's layout.
        config: the provider's settings.
        context_length: takes the place of the model's own where that is longer or not known.
        where: the thread in which that is done; `aside`, where other models compute meanwhile.
        aside: what is being read of the folder; None where that has not begun.

    Raises:
        ProviderStartError: the folder or the device won't do.
    """
    device = choose_device(config.device)
    with loading(f"model '{name}'"):
        load_on = current(device)(load_here)
        return where(load_on, name, folder, config, context_length, device, aside)


def load_here(
    name: str,
    folder: Path,
    config: TorchConfig,
    wanted_length: int | None,
    device: torch.device,
    aside: Aside | None = None,
) -> LoadedModel:
    """As `load`, in this thread."""
    dtype = choose_dtype(config.dtype, device)
    known = kept_reading(folder) if aside is None else aside.reading.result()
    read, is_new = _read(name, folder, known), known is None
    length = _context_length(name, read.positions, wanted_length)
    asked = _Asked(name, folder, config, length, device, dtype)
    if read.unbatched is None:
        begun = None if aside is None else aside.weights
        made = _in_batches(asked, read, begun, is_new=is_new)
    else:
        made = _one_by_one(asked, read.unbatched)
    sense = _sense(asked, read, made.vocab_size) if read.is_multimodal else None
    loaded = LoadedModel(
        config=config,
        model=_local_model(asked, read, made, sense),
        limits=made.limits,
        device=device,
        dtype=dtype,
        quantization=made.quantization,
        batched=read.unbatched is None,
        adapters=made.adapters,
        weights=made.weights,
        longest=length,
        sense=sense,
        **vars(made.execution),
    )
    if not isinstance(config.speculation, AheadConfig):
        return loaded
    from providers.local.torch_engine.drafts import check_ahead, load_draft

    check_ahead(loaded)
    if isinstance(config.speculation, DraftConfig):
        return replace(loaded, draft=load_draft(loaded, config.speculation))
    return loaded


class _Asked(NamedTuple):
    """Which model is to be loaded, and how.

    Attributes:
        name: the provider's name for it, for messages.
        folder: in Hugging Face's layout.
        config: the provider's settings.
        context_length: in tokens, were there memory for them.
        device: where it is to be.
        dtype: of its weights and activations.
    """

    name: str
    folder: Path
    config: TorchConfig
    context_length: int
    device: torch.device
    dtype: torch.dtype


class _Made(NamedTuple):
    """A model that runs: by what, as in `LoadedModel`, and how many tokens it knows."""

    execution: Execution
    limits: StepLimits
    weights: object
    vocab_size: int
    quantization: str = "none"
    adapters: AdapterReader | None = None


def _read(name: str, folder: Path, kept: FolderReading | None) -> FolderReading:
    """What is read of a folder before its weights, where that was not kept.

    Raises:
        ProviderStartError: it is damaged, has no fast tokenizer, or is no language model.
    """
    with _explained(name, folder):
        read = kept or read_folder(folder)
    if read is None:
        raise ProviderStartError(
            f"The model '{name}' in {folder} has no fast tokenizer (a tokenizer.json): save one"
            " there with transformers' AutoTokenizer, or choose another model."
        )
    if read.unbatched is not None:
        _auto_class(name, folder)  # what is no language model is told before its settings are
    return read


def _in_batches(
    asked: _Asked, read: FolderReading, begun: KeptWeights | None, *, is_new: bool
) -> _Made:
    """What runs a model whose sequences share forward passes."""
    name, folder, config, length, device, dtype = asked
    if config.deterministic:
        _check_deterministic(name, device, dtype, None)
    limits = limits_of(config, device, batched=True)
    quantization = chosen_quantization(name, folder, config, device, dtype)
    decoder = _decoder(asked, quantization, begun)
    if quantization in PACKED and is_new:
        _keep_beside_weights(folder, read, quantization)
    heads: Sequence[GuessingHead] = ()
    if isinstance(config.speculation, AheadConfig):
        from providers.local.torch_engine.drafts import load_heads

        heads = load_heads(name, folder, config, decoder, quantization)
    execution = paged(name, decoder, length, limits, config, heads)
    return _Made(
        execution=execution,
        limits=limits,
        weights=decoder,
        vocab_size=len(decoder.embedding),
        quantization=quantization,
        adapters=AdapterReader(name, decoder, partial(_text_config, name, folder)),
    )


def _local_model(
    asked: _Asked, read: FolderReading, made: _Made, sense: TorchSense | None
) -> LocalModel:
    """The model as a provider sees it."""
    name, tokenizer = asked.name, read.tokenizer
    hub_tokenizer = HubTokenizer(tokenizer)
    vocabulary = HubVocabulary(tokenizer.backend_tokenizer)
    ends = dict.fromkeys(read.end_tokens, StopReason.end_of_turn)
    return LocalModel(
        name=name,
        tokenizer=hub_tokenizer,
        vocabulary=vocabulary,
        vocab_size=made.vocab_size,
        context_length=with_room(name, asked.context_length, made.execution.blocks),
        stop_tokens=ends | known_end_tokens(vocabulary),
        tool_format=_tool_format(asked.config.tool_format, name, asked.folder, tokenizer),
        senses={} if sense is None else {sense.kind: sense},
    )


def limits_of(config: TorchConfig, device: torch.device, *, batched: bool) -> StepLimits:
    """Of the steps of a model that is loaded with `config`."""
    return StepLimits(
        sequences=config.max_sequences if batched else 1,
        tokens=config.max_step_tokens or max(STEP_TOKENS[device.type], config.max_sequences),
        scored_tokens=SCORED_TOKENS,
    )


def with_room(name: str, context_length: int, blocks: BlockManager) -> int:
    """How many tokens of a context the KV cache has room for."""
    room = blocks.total * blocks.block_size
    if room < context_length:
        log.warning("%s: the KV cache has room for %d tokens only", name, room)
    return min(context_length, room)


def _sense(asked: _Asked, read: FolderReading, vocab_size: int) -> TorchSense | None:
    """What a model that was made for more than text makes of that; None, with a warning, if
    nothing."""
    name, folder, config, _, device, dtype = asked
    spell = read.tokenizer.backend_tokenizer.id_to_token
    try:
        if read.unbatched is not None:
            raise TextOnlyError(read.unbatched)
        with _explained(name, folder, but=TextOnlyError):
            return read_sense(folder, spell, vocab_size, device, dtype, config.image_cache)
    except TextOnlyError as error:
        log.warning("%s takes text alone here, since %s", name, error)
        return None


@contextmanager
def _explained(name: str, folder: Path, *, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """What transformers has against a folder, as an error for people."""
    try:
        yield
    except but:
        raise
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        raise ProviderStartError(
            f"The model '{name}' in {folder} can't be loaded: {_first_sentence(error)} Pull it"
            " again or name another folder in the template."
        ) from error


def _text_config(name: str, folder: Path) -> Any:
    """transformers' config of a model's text."""
    from transformers import AutoConfig

    with _explained(name, folder):
        return AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config()


def _auto_class(name: str, folder: Path) -> Any:
    """The class that makes the model; of one that takes more, one that takes text alone."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        AutoConfig,
        AutoModelForCausalLM,
    )

    with _explained(name, folder):
        architecture = AutoConfig.from_pretrained(folder, local_files_only=True)
    multimodal = multimodal_class(architecture)
    if type(architecture) in MODEL_FOR_CAUSAL_LM_MAPPING and not (
        # Then its config is a part of another's, and has no such class of its own.
        multimodal is not None
        and type(architecture.get_text_config()) not in MODEL_FOR_CAUSAL_LM_MAPPING
    ):
        return AutoModelForCausalLM
    if multimodal is not None:
        return multimodal
    raise ProviderStartError(
        f"The model '{name}' in {folder} is of the kind '{architecture.model_type}', which does not"
        " go on with a text: 'local::torch' runs language models and sentence-transformers. Choose"
        " one of these."
    )


def _module(name: str, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
    """transformers' own model."""
    kind = _auto_class(name, folder)
    with _explained(name, folder):
        module = read_model(kind, folder, dtype=dtype)
    return module.eval().to(device)


def _decoder(asked: _Asked, quantization: str, begun: KeptWeights | None) -> Decoder:
    """The model, made of its weights; those that are packed are kept beside it."""
    name, folder, config, _, device, dtype = asked
    make = (linear.APART if config.deterministic else linear.MAKES)[quantization]
    if quantization in PACKED:
        from providers.local.torch_engine.loading import weight_cache

        kept = weight_cache.read(folder, quantization, begun)
        if kept is not None:
            return kept
    module = _module(name, folder, device, dtype)
    with torch.inference_mode():
        decoder = decoder_of(module, make, linear.HEADS.get(quantization))
    if quantization in PACKED:
        weight_cache.write(folder, decoder, quantization)
    return decoder


def _keep_beside_weights(folder: Path, read: FolderReading, quantization: str) -> None:
    """Keep what was read, where the weights are kept: without these it would save nothing."""
    if file_in(folder, quantization).is_file():
        keep_reading(folder, read)


def _one_by_one(asked: _Asked, reason: str) -> _Made:
    """What runs transformers' own model, as it is for this reason, a sequence at a time.

    Raises:
        ProviderStartError: the settings ask for what it has not, or it can't be relied on.
    """
    name, folder, config, length, device, dtype = asked
    _check_unbatched(asked, reason)
    module = _module(name, folder, device, dtype)
    log.warning(
        "%s runs on transformers' own code, one request at a time and without a prefix cache,"
        " since %s",
        name,
        reason,
    )
    if length > LONGEST_UNBATCHED:
        raise ProviderStartError(
            f"The model '{name}' in {folder} says that its context has {length} tokens,"
            f" more than the {LONGEST_UNBATCHED} that can be counted here: set 'context_length' for"
            " it in the template."
        )
    runner, vocab_size = _unbatched_runner(asked, module)
    blocks = BlockManager(-(-length // BLOCK_SIZE), BLOCK_SIZE)
    return _Made(
        execution=Execution(runner=runner, blocks=blocks),
        limits=limits_of(config, device, batched=False),
        weights=module,
        vocab_size=vocab_size,
    )


def _check_unbatched(asked: _Asked, reason: str) -> None:
    """See that the settings ask for nothing that transformers' own models have not.

    Raises:
        ProviderStartError: they do.
    """
    name, config = asked.name, asked.config
    if config.kv_cache_dtype != "auto":
        raise ProviderStartError(
            f"The model '{name}' can't have 'kv_cache_dtype: {config.kv_cache_dtype}', since"
            f" {reason}: leave it out of the template."
        )
    if config.quantization not in ("auto", "none"):
        raise ProviderStartError(
            f"The model '{name}' can't be quantized to {config.quantization}, since {reason}: set"
            " 'quantization: none' in the template."
        )
    if config.deterministic:
        _check_deterministic(name, asked.device, asked.dtype, reason)


def _unbatched_runner(asked: _Asked, module: Any) -> tuple[UnbatchedRunner, int]:
    """What runs a model of transformers, and how many tokens it knows.

    Raises:
        ProviderStartError: it can't be relied on.
    """
    from providers.local.torch_engine.model.unbatched import (
        UnbatchedModel,
        UnbatchedRunner,
        Way,
        find_way,
    )

    model = UnbatchedModel(module)
    tokens = module.get_input_embeddings().num_embeddings
    try:
        way, vocab_size = find_way(model, tokens, asked.dtype)
    except Exception as error:  # of foreign code, whatever it stumbles over
        raise ProviderStartError(
            f"The model '{asked.name}' in {asked.folder} was loaded, but what it computes can't be"
            f" relied on ({error}): choose a model of another architecture."
        ) from error
    if way is not Way.pieces:
        log.warning("%s computes %s: it can't go on otherwise", asked.name, way.words)
    return UnbatchedRunner(model, way, vocab_size), vocab_size


def _check_deterministic(
    name: str, device: torch.device, dtype: torch.dtype, unbatched: str | None
) -> None:
    """See that nothing a step computes depends on what else is in it.

    Raises:
        ProviderStartError: that can't be had here.
    """
    missing = None
    if device.type != "cpu" or dtype != torch.float32:
        missing = f"it would run on '{device}' in {str(dtype).removeprefix('torch.')}"
    elif unbatched is not None:
        missing = f"it would run on transformers' own code, since {unbatched}"
    elif not linear.has_onednn():
        missing = "this CPU's products of matrices change with the number of rows"
    if missing is not None:
        raise ProviderStartError(
            f"The model '{name}' can't be 'deterministic', as {missing}: that is for x86 CPUs, in"
            " float32 or with weights of 4, 8 or 16 bits, and for models that run in batches. Leave"
            " 'deterministic' out of the template, or set 'device: cpu'."
        )


def chosen_quantization(
    name: str, folder: Path, config: TorchConfig, device: torch.device, dtype: torch.dtype
) -> str:
    """How the weights of a model that is batched are kept: one of `linear.MAKES`.

    Raises:
        ProviderStartError: not as the template says.
    """
    possible = [
        kind
        for kind, there in (
            ("int8", linear.kernels_possible()),
            ("int4", linear.kernels_possible()),
            ("float16", linear.fbgemm_available()),
        )
        if there and device.type == "cpu" and dtype == torch.float32
    ]
    if dtype == torch.bfloat16 and lacks_fp8(device) is None:
        possible = ["fp8"]
    wanted = config.quantization
    if wanted == "auto":
        # Who asks for float32 means it.
        if not possible or config.dtype != "auto":
            return "none"
        for kind, is_kept in (("int4", is_int4), ("fp8", is_fp8)):
            if kind in possible and is_kept(folder):
                return kind
        return possible[0] if device.type == "cpu" else "none"
    if wanted not in ("none", *possible):
        its_dtype = "bfloat16" if wanted == "fp8" else "float32"
        here = f"'{device}' in {str(dtype).removeprefix('torch.')}"
        raise ProviderStartError(
            f"The model '{name}' can't run with 'quantization: {wanted}': that needs"
            f" {NEEDS[wanted]}, and dtype {its_dtype}, and it would run on {here}. Set"
            " 'quantization: none'."
        )
    return wanted


def _context_length(name: str, own: int | None, wanted: int | None) -> int:
    known = [length for length in (own, wanted) if length is not None]
    if not known:
        raise ProviderStartError(
            f"The model '{name}' does not say how long its context is: set 'context_length' for it"
            " in the template."
        )
    return min(known)


def _tool_format(
    wanted: str, name: str, folder: Path, tokenizer: ReadTokenizer
) -> ToolFormat | None:
    if wanted == "auto":
        templates = tokenizer.chat_template or ""
        if not isinstance(templates, str):
            templates = "\n".join(templates.values())
        # The folder may have any name; the config still has the one that the model was given.
        config = json.loads((folder / "config.json").read_text("utf-8"))
        given = (config.get(member, "") for member in ("_name_or_path", "_model_name_or_path"))
        names = " ".join([name, str(folder), *map(str, given)])
        wanted = guess_tool_format(chat_template=templates, model=names) or "none"
    return FORMATS.get(wanted)


def _first_sentence(error: Exception) -> str:
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return line if line.endswith(".") else line + "."
