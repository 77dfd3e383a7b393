"""A GGUF file made into a model that can run."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from llama_compat.tools.formats import FORMATS, ToolFormat, guess_tool_format
from llama_compat.types import StopReason
from providers.base import ProviderStartError
from providers.local.engine import LocalModel
from providers.local.llama_cpp_engine.bindings.context import MAX_SEQUENCES, Context
from providers.local.llama_cpp_engine.bindings.library import LlamaError, layers_on_gpu
from providers.local.llama_cpp_engine.bindings.model import AdapterScales, Model
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.media.mtmd import Projector
from providers.local.llama_cpp_engine.media.projector_file import projector_refused
from providers.local.llama_cpp_engine.media.sense import (
    TOKENS,
    LlamaSenses,
    largest_at_once,
)
from providers.local.llama_cpp_engine.scheduler import LlamaLimits
from providers.local.llama_cpp_engine.slots import Slots
from providers.local.llama_cpp_engine.tokenizer import GGUFTokenizer, GGUFVocabulary
from providers.local.llama_cpp_engine.trial import try_out
from providers.local.media.medium import Kind
from providers.local.memory import available_memory
from providers.local.models.defaults import defaults_beside
from providers.local.prompts.end_tokens import known_end_tokens
from providers.local.threads.team_size import TeamSize, sizes

log = logging.getLogger(__name__)

STEP_TOKENS = {"cpu": 128, "gpu": 512}
"""Tokens a step: enough to be efficient, few enough for those that decode to go on meanwhile."""

SCORED_TOKENS = 32
"""Of a prompt whose tokens are scored: the logits of each take vocabulary times 4 bytes."""

HELD_PREFIXES = SCORED_TOKENS
"""Sequences beside those that run, which hold what was computed of earlier prompts. llama.cpp wants
room for the logits of each, which there is for prompts that are scored."""

POOLING_RANK = 4
"""llama.cpp's `LLAMA_POOLING_TYPE_RANK`: the model compares texts, and has no embeddings."""


@dataclass(frozen=True)
class LoadedLlama:
    """A model and what an engine needs to run it.

    Attributes:
        config: the settings that it was loaded with.
        model: as a provider sees it.
        context: its KV cache and batch.
        slots: the context's sequences.
        limits: of its steps.
        always: the adapters with which all is computed.
        senses: what makes embeddings of media; None where the model takes text alone.
        projector_bytes: what that takes.
        team: with how many threads each step is computed.
    """

    config: LlamaCppConfig
    model: LocalModel
    context: Context
    slots: Slots
    limits: LlamaLimits
    team: TeamSize
    always: AdapterScales = ()
    senses: LlamaSenses | None = None
    projector_bytes: int = 0


def open_model(
    name: str, path: Path, config: LlamaCppConfig, projector: Path | None = None
) -> Model:
    """The GGUF at `path`, once another process has shown that it can be loaded and computed, with
    what makes embeddings of media for it.

    Raises:
        ProviderStartError: it can't be.
    """
    gpu_layers = layers_on_gpu(config.n_gpu_layers)
    repacked = try_out(
        name,
        path,
        [each.path for each in config.lora],
        config.threads or cpu_cores(),
        on_gpu=gpu_layers != 0,
        projector=projector,
    )
    try:
        model = Model(path, gpu_layers=gpu_layers, repacked=repacked)
    except LlamaError as error:
        raise ProviderStartError(
            f"The model '{name}' can't be loaded from {path}: {error} If it is too large for the"
            " GPU's memory, set a smaller 'n_gpu_layers' in the template."
        ) from error
    if model.encodes_first:
        raise ProviderStartError(
            f"The model '{name}' is an encoder with a decoder, which is not supported: choose a"
            " causal language model, or an embedding model."
        )
    return model


def load(
    name: str,
    model: Model,
    path: Path,
    config: LlamaCppConfig,
    context_length: int | None = None,
    projector_path: Path | None = None,
) -> LoadedLlama:
    """Make a context for a model that generates.

    Args:
        name: the provider's name for it, for messages.
        model: the model.
        path: of its file.
        config: the provider's settings.
        context_length: takes the place of the model's own where that is longer.
        projector_path: of what makes embeddings of media for it, if it takes any.

    Raises:
        ProviderStartError: there is not enough memory, or its tokenizer or template won't do.
    """
    vocabulary = GGUFVocabulary(model)
    senses, largest = None, 0
    if projector_path is not None:
        projector = _projector(name, model, projector_path, config)
        largest = largest_at_once(projector)
        senses = LlamaSenses(projector, _tokens_of_media(vocabulary), largest, config.image_cache)
    tokenizer = _tokenizer(name, path, model, vocabulary, senses)
    extent = _extent(name, model, config, context_length)
    context, always = _context(name, model, config, extent, largest)
    # Where they are apart, each has its own part.
    parts = extent.sequences if config.deterministic else 1
    length = min(extent.length, context.size // parts)
    step = extent.step_tokens if config.deterministic else None
    slots = Slots(
        context, extent.sequences, extent.held, length, reuse=config.prefix_cache, step=step
    )
    local = LocalModel(
        name=name,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        vocab_size=model.vocab_size,
        context_length=length,
        stop_tokens=_stop_tokens(model, vocabulary),
        tool_format=_tool_format(config.tool_format, name, path, model),
        defaults=defaults_beside(path),
        senses={} if senses is None else senses.by_kind,
    )
    return LoadedLlama(
        config=config,
        model=local,
        context=context,
        slots=slots,
        limits=LlamaLimits(tokens=extent.step_tokens, scored_tokens=SCORED_TOKENS),
        team=_team(config),
        always=always,
        senses=senses,
        projector_bytes=projector_path.stat().st_size if projector_path is not None else 0,
    )


def _tokenizer(
    name: str, path: Path, model: Model, vocabulary: GGUFVocabulary, senses: LlamaSenses | None
) -> GGUFTokenizer:
    """The tokenizer of a model that takes media by its `senses`.

    Raises:
        ProviderStartError: it has none that would do, or a template that can't be read.
    """
    try:
        return GGUFTokenizer(model, vocabulary, senses)
    except ValueError as error:
        raise ProviderStartError(
            f"The model '{name}' in {path} can't be used: {error}. Choose another file."
        ) from error


class _Extent(NamedTuple):
    """How much a context is made for.

    Attributes:
        sequences: how many run at the same time.
        held: how many there are, with those that hold what was computed of earlier prompts.
        length: the most tokens that one may have.
        cells: how many tokens all of them have room for together.
        step_tokens: how many a step computes.
    """

    sequences: int
    held: int
    length: int
    cells: int
    step_tokens: int


def _extent(name: str, model: Model, config: LlamaCppConfig, context_length: int | None) -> _Extent:
    """How much the settings and the memory let the context of a model be.

    Raises:
        ProviderStartError: there is not enough memory.
    """
    sequences = min(config.max_sequences, MAX_SEQUENCES)
    usual = STEP_TOKENS["gpu" if layers_on_gpu(config.n_gpu_layers) else "cpu"]
    step_tokens = config.max_step_tokens or max(usual, sequences)
    length = min(filter(None, (model.context_length, context_length)))
    cells = _cells(name, model, config.kv_cache, length, sequences, least=context_length or 1)
    # A state that is no KV cache takes memory for each sequence, and can't be cut to a prefix.
    held = sequences
    if config.deterministic:
        # Each has its own part, as large as the longest request.
        held = sequences = max(1, min(sequences, cells // length))
    elif config.prefix_cache and not model.has_state:
        held = min(sequences + HELD_PREFIXES, MAX_SEQUENCES)
    return _Extent(sequences, held, length, cells, max(step_tokens, sequences))


def _context(
    name: str, model: Model, config: LlamaCppConfig, extent: _Extent, largest: int
) -> tuple[Context, AdapterScales]:
    """The context, and the adapters with which all is computed in it.

    Args:
        name, model, config: as for `load`.
        extent: how much it is for.
        largest: so many parts of a medium may have to be in one batch.

    Raises:
        ProviderStartError: it can't be made.
    """
    try:
        context = Context(
            model,
            tokens=extent.cells,
            sequences=extent.held,
            batch_tokens=max(extent.step_tokens, largest),
            outputs=extent.sequences + SCORED_TOKENS,
            threads=config.threads or cpu_cores(),
            apart=config.deterministic,
        )
        always = [(model.adapter(each.path), each.scale) for each in config.lora]
        context.adapt(always)
    except LlamaError as error:
        raise ProviderStartError(
            f"The model '{name}' was loaded, but its context of {extent.cells} tokens can't be"
            f" made: {error} If there is not enough memory, set a smaller 'context_length' for the"
            " model or a smaller 'kv_cache'."
        ) from error
    return context, always


def _team(config: LlamaCppConfig) -> TeamSize:
    """With how many threads steps are computed: with those that the template names, or with as
    many as compute them the soonest.

    That is not looked for where it may change a reply, since attention adds up the parts that
    threads have, nor with a GPU, which computes on after a step has been handed to it.
    """
    if config.threads or config.deterministic or layers_on_gpu(config.n_gpu_layers):
        return TeamSize([config.threads or cpu_cores()])
    return TeamSize(sizes(cpu_cores()))


def _projector(name: str, model: Model, path: Path, config: LlamaCppConfig) -> Projector:
    """What makes embeddings of media.

    Raises:
        ProviderStartError: it can't be loaded, or is for another model.
    """
    try:
        return Projector(
            path,
            model,
            threads=config.threads or cpu_cores(),
            on_gpu=layers_on_gpu(config.n_gpu_layers) != 0,
        )
    except LlamaError as error:
        raise projector_refused(name, path, str(error)) from error


def _tokens_of_media(vocabulary: GGUFVocabulary) -> dict[Kind, int]:
    """What stands for a part of a medium of each kind in a prompt's tokens: the model's own token
    for that, or one that it does not have."""
    found = {}
    for index, (kind, names) in enumerate(TOKENS.items()):
        known = map(vocabulary.id_of, names)
        unknown = len(vocabulary.pieces) + index
        found[kind] = next((each for each in known if each is not None), unknown)
    return found


def _cells(
    name: str, model: Model, kv_cache: float, length: int, sequences: int, *, least: int
) -> int:
    """How many tokens the KV cache is to hold: the longest requests, or what memory there is for.

    Raises:
        ProviderStartError: not even the context that the template asks for fits.
    """
    free, each = available_memory(), model.kv_bytes_per_token
    allowed = kv_cache
    if allowed <= 1:
        # Where nobody can tell, llama.cpp has to find out.
        allowed = float("inf") if free is None else allowed * free
    elif free is not None and allowed > free:
        raise ProviderStartError(
            f"The KV cache of the model '{name}' is to have {_gib(allowed)}, but {_gib(free)} of"
            " memory are free: set a smaller 'kv_cache' in the template."
        )
    cells = int(min(length * sequences, allowed / each))
    if cells < min(length, least):
        raise ProviderStartError(
            f"The context of {length} tokens of the model '{name}' does not fit into memory: its KV"
            f" cache takes {_gib(length * each)} and gets {_gib(allowed)}. Set a smaller"
            " 'context_length' for the model in the template, or a larger 'kv_cache'."
        )
    if cells < length:
        log.warning("%s: the KV cache has room for %d tokens only", name, cells)
    return cells


def _gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def cpu_cores() -> int:
    """How many cores this process may use; two threads of one core only get in each other's way."""
    try:
        available = os.sched_getaffinity(0)
    except AttributeError:  # not on this system
        return max(1, (os.cpu_count() or 2) // 2)
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    try:
        cores = {Path(siblings.format(cpu)).read_text() for cpu in available}
    except OSError:
        return len(available)
    return len(cores)


def _stop_tokens(model: Model, vocabulary: GGUFVocabulary) -> dict[int, StopReason]:
    stop_tokens = dict.fromkeys(sorted(model.end_tokens()), StopReason.end_of_turn)
    return stop_tokens | known_end_tokens(vocabulary)


def _tool_format(wanted: str, name: str, path: Path, model: Model) -> ToolFormat | None:
    if wanted == "auto":
        given = (model.metadata(f"general.{key}") or "" for key in ("name", "basename"))
        names = " ".join([name, path.stem, *given])
        found = guess_tool_format(chat_template=model.chat_template or "", model=names)
        wanted = found or "none"
    return FORMATS.get(wanted)
