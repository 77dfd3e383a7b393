"""What a model folder will take of memory, told by its files before anything of it is loaded."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig

from providers.base import ProviderStartError
from providers.local.models import store as model_store
from providers.local.residency.host import Footprint
from providers.local.torch_engine.config import (
    CUDA_BYTES,
    PACKED,
    DraftConfig,
    EagleConfig,
    MTPConfig,
    TorchConfig,
)
from providers.local.torch_engine.devices import choose_device, choose_dtype, place_of
from providers.local.torch_engine.formats.known import quantized_in
from providers.local.torch_engine.formats.weight_files import numbers_in, stored_tensors
from providers.local.torch_engine.loading.architectures import state_shapes, why_not
from providers.local.torch_engine.loading.loader import chosen_quantization
from providers.local.torch_engine.loading.paged import states_tried
from providers.local.torch_engine.media.families import multimodal_class
from providers.local.torch_engine.model.kv_cache import PACKED as PACKED_CACHE
from providers.local.torch_engine.model.kv_cache import CacheShape, RowShape
from providers.local.torch_engine.model.recurrent.states import affordable
from providers.local.torch_engine.starting.kept_weights import file_in

MOST = 2**24
"""Tokens of a context that nothing bounds."""

INT8_BYTES = 1 + 2 / 32
"""Of a weight of 8 bits: itself, and its part of a scale."""

FP8_BYTES = 1 + 4 / 1024
"""Of one in FP8: itself, and its part of a scale."""

INT4_BYTES = 0.5 + 3 / 32
"""Of one of 4 bits: itself, and its part of a scale and a zero."""


@dataclass(frozen=True)
class WeightCounts:
    """How many numbers there are.

    Attributes:
        all: in all tensors.
        embedding: in the table of embeddings, which stays as it is.
        side: in that of what each layer takes of a token, which stays too.
        tower: in what takes media, which does too.
        head: in what tells the tokens, where that is not the table of embeddings.
        experts: in those that a router chooses from.
    """

    all: int
    embedding: int
    side: int = 0
    tower: int = 0
    head: int = 0
    experts: int = 0


TOWERS = (
    *("visual", "vision_tower", "vision_model", "audio_tower"),
    *("multi_modal_projector", "connector"),
)
"""What transformers calls the parts of models that take media."""


def footprint(
    name: str,
    folder: Path,
    config: TorchConfig,
    context_length: int | None,
    *,
    generates: bool,
    counts: WeightCounts | None = None,
) -> Footprint:
    """What the model in `folder` takes.

    Args:
        name: the provider's name for it, for messages.
        folder: in Hugging Face's layout.
        config: the provider's settings.
        context_length: the most tokens of a sequence, if the template says so.
        generates: whether it has a KV cache.
        counts: of its weights, where those are not in the folder yet.

    Raises:
        ProviderStartError: its files make no sense.
    """
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    place = place_of(device)
    try:
        counts = counts or count_weights(folder)
        architecture = AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        raise ProviderStartError(
            f"It can't be told what the model '{name}' in {folder} takes of memory: {error}. Pull"
            " it again or name another folder in the template."
        ) from error
    read = counts.all * dtype.itemsize
    if not generates:
        return Footprint({place: read}, read)
    # In main memory they are where they would wait already, and what takes media can't wait.
    parks = 0 if place == "cpu" or multimodal_class(architecture) is not None else read
    loading = stays = read
    if why_not(architecture) is None:
        quantization = chosen_quantization(name, folder, config, device, dtype)
        stays = weight_bytes(counts, dtype, quantization)
        loading = _kept_bytes(folder, quantization) or read
    head = NO_HEAD
    if isinstance(config.speculation, EagleConfig):
        head = _head(config, config.speculation, device, dtype)
        loading, stays, parks = loading + head.loading, stays + head.stays, 0
    if isinstance(config.speculation, MTPConfig):
        # Its weights are among the model's.
        head = head._replace(token=_mtp_token_bytes(folder, architecture, config, dtype))
        parks = 0
    cache = cache_bytes(architecture, config, dtype, context_length, stays, head.token)
    beside = 0 if place == "cpu" else CUDA_BYTES
    if isinstance(config.speculation, DraftConfig):
        own_length = getattr(architecture.get_text_config(), "max_position_embeddings", None)
        draft = _draft(config, config.speculation, own_length, context_length)
        # It stays with its model, and leaves with it.
        loading, stays, parks = loading + draft, stays + draft, 0
    return Footprint({place: max(loading, stays) + cache + beside}, stays, cache, parks)


def _kept_bytes(folder: Path, quantization: str) -> int:
    """What is read of a model whose weights were kept as they are computed with; 0 of others."""
    if quantization not in PACKED:
        return 0
    kept = file_in(folder, quantization)
    return kept.stat().st_size if kept.is_file() else 0


def _mtp_token_bytes(
    folder: Path, architecture: Any, config: TorchConfig, dtype: torch.dtype
) -> int:
    """What the head that a model was published with keeps of a token."""
    from providers.local.torch_engine.heads.mtp_checkpoint import layer_config, layers_in

    layers = len(layers_in(stored_tensors(folder), architecture))
    return layers * _token_bytes(layer_config(architecture), config, dtype)


def _draft(config: TorchConfig, settings: DraftConfig, *lengths: int | None) -> int:
    """What a draft takes: its weights, and its cache, for sequences as long as the shortest of
    `lengths` that is known."""
    from providers.local.torch_engine.drafts import draft_config

    longest = min(each for each in (*lengths, MOST) if each is not None)
    folder = model_store.resolve(settings.draft)
    own = draft_config(config, settings)
    found = footprint(settings.draft, folder, own, longest, generates=True)
    return max(found.needs.values())


class _Head(NamedTuple):
    """What a head takes.

    Attributes:
        loading, stays: its weights, while they are read and later.
        token: a token in the cache, where the head has a layer beside those of the model.
    """

    loading: int
    stays: int
    token: int


NO_HEAD = _Head(0, 0, 0)


def _head(
    config: TorchConfig, settings: EagleConfig, device: torch.device, dtype: torch.dtype
) -> _Head:
    from providers.local.torch_engine.drafts import head_quantization
    from providers.local.torch_engine.heads.eagle_checkpoint import HeadConfig
    from providers.local.torch_engine.heads.head import HeadError

    folder = model_store.resolve(settings.eagle)
    try:
        counts, layer = count_weights(folder), HeadConfig.of(folder).layer
    except (HeadError, OSError, ValueError, KeyError, struct.error) as error:
        raise ProviderStartError(
            f"It can't be told what '{settings.eagle}' in {folder} takes of memory, as {error}:"
            " name an EAGLE-3 head in 'speculation', or leave that out of the template."
        ) from error
    quantization = head_quantization(folder, config, settings, device, dtype)
    made = weight_bytes(counts, dtype, quantization)
    token = _token_bytes(layer, config, dtype)
    return _Head(counts.all * dtype.itemsize + made, made, token)


def _token_bytes(layers: Any, config: TorchConfig, dtype: torch.dtype) -> int:
    """What a token takes in the cache of these layers, which transformers' config describes."""
    kind = PACKED_CACHE.get(config.kv_cache_dtype, dtype)
    return cache_shape(layers, kind).bytes_per_token


def with_adapters(model: Footprint, folders: Sequence[Path], config: TorchConfig) -> Footprint:
    """What a model takes with its adapters, which are in these folders; what can't be read takes
    nothing, and is refused when it is loaded."""
    taken = 0
    for folder in folders:
        with suppress(OSError, ValueError, KeyError, TypeError, struct.error):
            taken += sum(tensor.numbers for tensor in stored_tensors(folder).values())
    dtype = choose_dtype(config.dtype, choose_device(config.device))
    more = taken * dtype.itemsize
    needs = {device: size + more for device, size in model.needs.items()}
    return model._replace(needs=needs, weights=model.weights + more)


def count_weights(folder: Path) -> WeightCounts:
    """How many numbers the weights in `folder` have, once they are read.

    Raises:
        ValueError: there are none, a file is damaged, or they can't be read here.
    """
    tensors = stored_tensors(folder)
    if not tensors:
        # Older files say nothing of themselves; nearly all of them have 16 bits.
        sizes = [each.stat().st_size for each in folder.glob("pytorch_model*.bin")]
        if not sizes:
            raise ValueError("there are no weights")
        return WeightCounts(sum(sizes) // 2, 0)
    quantized = quantized_in(folder)
    if quantized is None:
        return counts_of({name: tensor.numbers for name, tensor in tensors.items()})
    return counts_of(numbers_in(tensors, quantized))


def counts_of(numbers: Mapping[str, int]) -> WeightCounts:
    """How many numbers there are, by how many each tensor of a name has."""

    def largest(end: str) -> int:
        return max((count for name, count in numbers.items() if name.endswith(end)), default=0)

    towers = [
        count for name, count in numbers.items() if not set(TOWERS).isdisjoint(name.split("."))
    ]
    return WeightCounts(
        sum(numbers.values()),
        largest("embed_tokens.weight"),
        largest("embed_tokens_per_layer.weight"),
        sum(towers),
        largest("lm_head.weight"),
        sum(count for name, count in numbers.items() if "experts" in name.split(".")),
    )


def weight_bytes(counts: WeightCounts, dtype: torch.dtype, quantization: str) -> int:
    """What they take once they are loaded, in numbers of this kind."""
    if quantization == "none":
        return int(counts.all * dtype.itemsize)
    # The tables stay as they are; where one is the head as well, that may be one more, quantized.
    plain = (counts.embedding + counts.side + counts.tower) * dtype.itemsize
    others = counts.all - counts.side - counts.tower
    if quantization == "fp8":
        # The head and experts stay too.
        left = counts.head + counts.experts
        packed = others - counts.embedding - left
        return int(plain + left * dtype.itemsize + packed * FP8_BYTES)
    if quantization == "int4":
        # The head, as large as the table, has 8 bits.
        layers = others - counts.embedding
        return int(plain + counts.embedding * INT8_BYTES + layers * INT4_BYTES)
    return int(plain + others * {"float16": 2, "int8": INT8_BYTES}[quantization])


def cache_bytes(
    architecture: Any,
    config: TorchConfig,
    dtype: torch.dtype,
    context_length: int | None,
    weights: int,
    beside: int = 0,
) -> int:
    """What the KV cache gets, states included: so many bytes where the template says that, a share
    of what the weights take where it says a share; never more than the longest sequences need.

    What is free, of which a share would be otherwise, depends on who else is loaded at the moment.
    """
    text = architecture.get_text_config()
    shapes = state_shapes(text)
    token = _token_bytes(text, config, dtype) + beside
    own = getattr(text, "max_position_embeddings", None)
    known = [length for length in (own, context_length) if length is not None]
    allowed: float = config.kv_cache if config.kv_cache > 1 else config.kv_cache * weights
    sequences, states = config.max_sequences, 0
    if shapes:
        each = sum(shape.nbytes for shape in shapes)
        tried = states_tried(config)
        sequences, kept = affordable(
            allowed, each, sequences, keeps=config.prefix_cache, tried=tried
        )
        states = (sequences + kept + tried) * each
        allowed -= states
    if known:
        # In whole blocks, of which the last is rarely full.
        allowed = min(allowed, sequences * (min(known) + 16) * token)
    return max(int(allowed), int(16 * token)) + states


def cache_shape(text: Any, dtype: torch.dtype) -> CacheShape:
    """What a token of a model with this text config takes in the KV cache, as
    `Decoder.cache_shape` has it once it is loaded; of layers that keep nothing of it, nothing."""
    layers = text.num_hidden_layers - (getattr(text, "num_kv_shared_layers", None) or 0)
    layers -= len(state_shapes(text))
    rank = getattr(text, "kv_lora_rank", None)
    if rank:
        return CacheShape([RowShape(1, rank + text.qk_rope_head_dim)] * layers, dtype)
    # Where layers differ, the config has one for each.
    own = getattr(text, "per_layer_config", None)
    return CacheShape([_rows_of(own[at] if own else text) for at in range(layers)], dtype)


def _rows_of(layer: Any) -> RowShape:
    heads = layer.num_attention_heads
    keys = getattr(layer, "num_key_value_heads", None) or heads
    return RowShape(2 * keys, getattr(layer, "head_dim", None) or layer.hidden_size // heads)
