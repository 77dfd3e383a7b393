"""`local::llama_cpp`: GGUF models in this process, on the CPU or what llama.cpp was built for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from providers.base import ProviderConfig, ProviderStartError
from providers.local.engine import Embedder, Engine
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.media.projector_file import find_projector
from providers.local.models import store as model_store
from providers.local.models.defaults import context_beside
from providers.local.models.folders import ModelStoreError
from providers.local.models.gguf_header import parts_of, read_header
from providers.local.provider import LocalProvider
from providers.local.residency.host import AnyEngine, Footprint
from providers.local.residency.ledger import Sizes
from providers.requirements import require

log = logging.getLogger(__name__)

_ROUNDED_CELLS = 256
"""llama.cpp's caches have a multiple of so many tokens."""


@runtime_checkable
class _HasBytes(Protocol):
    """An engine that knows what it takes."""

    @property
    def taken_bytes(self) -> int:
        """Of weights and cache."""


@dataclass(frozen=True)
class _CacheFacts:
    """What a header says of the KV cache."""

    layers: int
    context_length: int
    token_bytes: int
    embeds: bool

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> _CacheFacts:
        architecture = header.get("general.architecture", "")

        def number(key: str, otherwise: int = 0) -> int:
            return int(header.get(f"{architecture}.{key}", otherwise))

        layers = number("block_count")
        heads = max(1, number("attention.head_count"))
        guessed = number("embedding_length") // heads
        width = number("attention.key_length", guessed)
        width += number("attention.value_length", guessed)
        # Its numbers have 16 bits.
        token = max(1, layers * number("attention.head_count_kv", heads) * width * 2)
        embeds = number("pooling_type") > 0
        return cls(layers, number("context_length"), token, embeds)


class LlamaCppProvider(LocalProvider):
    """Generates with GGUF models that lie on this machine, and embeds with those that are for that.

    A model's name is a file's path, `hf:ORG/NAME:FILE.gguf`, `ollama:NAME:TAG` or `starter.gguf`.
    """

    Config: ClassVar[type[ProviderConfig]] = LlamaCppConfig
    config: LlamaCppConfig

    modules = ("llama_cpp", "llguidance")
    extra = "llama-cpp"

    def _open_engine(self, name: str, context_length: int | None) -> Engine | Embedder:
        path = model_store.resolve_gguf(name)
        try:
            from providers.local.llama_cpp_engine.embedder import LlamaEmbedder
            from providers.local.llama_cpp_engine.engine import LlamaEngine
            from providers.local.llama_cpp_engine.loader import load, open_model
        except ImportError as error:
            raise ProviderStartError(
                f"The provider '{self.id}' can't import what it needs: {error}"
            ) from error
        config = self._with_its_cache(self.config, name)
        self._find_adapters()
        projector = self._projector_of(name)
        model = open_model(name, path, config, projector)
        if model.embeds:
            return LlamaEmbedder(name, model, config, context_length)
        engine = LlamaEngine(load(name, model, path, config, context_length, projector))
        engine.start()
        return engine

    def _projector_of(self, name: str) -> Path | None:
        """What makes embeddings of media for a model; None where it takes text alone.

        Raises:
            ProviderStartError: the template names one that can't be used.
        """
        from providers.local.llama_cpp_engine.media.mtmd import library

        path = find_projector(name, self.config.mmproj)
        if path is None:
            return None
        try:
            require(("PIL",), f"by the provider '{self.id}' to look at pictures", self.extra)
            library()
        except (ImportError, ProviderStartError) as error:
            if self.config.mmproj is not None:
                raise ProviderStartError(str(error)) from error
            log.warning("%s takes text alone, though %s is there: %s", name, path, error)
            return None
        return path

    # Memory that is shared ------------------------------------------------------------------------

    def footprint(self, name: str) -> Footprint:
        """By the header of its file. What llama.cpp puts on GPUs counts as that of `cuda:0`."""
        path = model_store.resolve_gguf(name)
        try:
            header = read_header(path)
            weights = sum(each.stat().st_size for each in parts_of(path))
        except (OSError, ValueError) as error:
            raise ProviderStartError(
                f"It can't be told what the model '{name}' in {path} takes of memory: {error}. Pull"
                " it again, or name another file in the template."
            ) from error
        adapters = map(model_store.resolve_gguf, self._sources(name))
        beside = sum(each.stat().st_size for each in adapters)
        projector = find_projector(name, self.config.mmproj)
        beside += 0 if projector is None else projector.stat().st_size
        wanted = self._wanted_context_length(name)
        return footprint_of(header, weights, self.config, wanted, beside)

    def taken_by(self, footprint: Footprint, engine: AnyEngine) -> Sizes:
        """Its weights, and the cache that it was given."""
        assert isinstance(engine, _HasBytes)
        whole = sum(footprint.needs.values())
        return {
            device: engine.taken_bytes * size // whole for device, size in footprint.needs.items()
        }

    def _wanted_context_length(self, name: str) -> int | None:
        """As the template says, or else as who made the model does."""
        wanted = super()._wanted_context_length(name)
        if wanted is not None:
            return wanted
        try:
            return context_beside(model_store.resolve_gguf(name))
        except ModelStoreError:
            return None  # who opens it says so

    def _find_adapters(self) -> None:
        for adapter in self.config.lora:
            if not adapter.path.is_file():
                raise ProviderStartError(
                    f"The provider '{self.id}' finds no LoRA adapter at {adapter.path.absolute()}:"
                    " give the path of a GGUF file, or leave 'lora' out."
                )


def footprint_of(
    header: Mapping[str, Any],
    weights: int,
    config: LlamaCppConfig,
    wanted: int | None,
    beside: int = 0,
) -> Footprint:
    """What a file takes.

    Args:
        header: the keys of its header.
        weights: its bytes, with those of its further parts.
        config: the provider's settings.
        wanted: the tokens of its context, if the template says so.
        beside: bytes of its adapters, and of what it sees with.
    """
    facts = _CacheFacts.of(header)
    length = min(filter(None, (facts.context_length, wanted)), default=1)
    spare = _ROUNDED_CELLS * facts.token_bytes
    kv_cache: int | None = None
    if facts.embeds:
        from providers.local.llama_cpp_engine.embedder import MAX_TOKENS

        cache = min(length, MAX_TOKENS) * facts.token_bytes
    else:
        allowed = config.kv_cache if config.kv_cache > 1 else config.kv_cache * weights
        most = length * config.max_sequences * facts.token_bytes
        # As much as the context takes that the template asks for, or else of one token.
        least = (1 if wanted is None else length) * facts.token_bytes
        cache = kv_cache = int(max(least, min(allowed, most)))
    weights += beside
    return Footprint(_placed(weights + cache + spare, facts.layers, config), weights, kv_cache)


def _placed(size: int, layers: int, config: LlamaCppConfig) -> Sizes:
    """So many bytes, where the layers go."""
    from providers.local.llama_cpp_engine.bindings.library import layers_on_gpu

    on_gpu = layers_on_gpu(config.n_gpu_layers)
    if not on_gpu:
        return {"cpu": size}
    if on_gpu < 0 or on_gpu > layers:  # what is behind the last layer goes with all of them
        return {"cuda:0": size}
    part = size * on_gpu // (layers + 1)
    return {"cuda:0": part, "cpu": size - part}
