"""`local::llama_cpp`: GGUF models in this process, on the CPU or what llama.cpp was built for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt

from providers.base import ProviderConfig, ProviderStartError
from providers.local.engine import Embedder, Engine
from providers.local.models import store as model_store
from providers.local.provider import LocalConfig, LocalProvider, enough_for_each


class LoraConfig(BaseModel):
    """A LoRA adapter."""

    model_config = ConfigDict(extra="forbid")

    path: Path
    """A GGUF file with an adapter for the model."""

    scale: float = 1.0
    """How strong it is; 0 is off."""


class LlamaCppConfig(LocalConfig):
    """Where and how the models run."""

    n_gpu_layers: Annotated[int, Field(ge=-1)] = -1
    """Layers that go to the GPU, if llama-cpp-python was built for one; -1 for all."""

    threads: PositiveInt | None = None
    """CPU threads of a model; the cores that the process may use, unless told otherwise."""

    max_sequences: Annotated[PositiveInt, Field(le=256)] = 8
    """How many requests are generated at the same time; the others wait."""

    max_waiting: PositiveInt = 256
    """How many requests may wait; more are answered with 429."""

    max_step_tokens: Annotated[PositiveInt | None, AfterValidator(enough_for_each)] = None
    """Tokens of prompts and replies that one step computes; 128 on the CPU, 512 on a GPU."""

    kv_cache: Annotated[float, Field(gt=0)] = 0.5
    """The KV cache's memory: up to 1 a share of what is free, more than 1 a number of bytes. It
    never takes more than `max_sequences` of the longest requests need."""

    prefix_cache: bool = True
    """Whether what was computed of a prompt is kept for others that begin the same."""

    lora: tuple[LoraConfig, ...] = ()
    """LoRA adapters that are applied to the models."""


class LlamaCppProvider(LocalProvider):
    """Generates with GGUF models that lie on this machine, and embeds with those that are for that.

    A model's name is a file's path, `hf:ORG/NAME:FILE.gguf` or `starter.gguf`.
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
            from providers.local.llama_cpp_engine.loader import (
                LoadOptions,
                load,
                open_model,
            )
        except ImportError as error:
            raise ProviderStartError(
                f"The provider '{self.id}' can't import what it needs: {error}"
            ) from error
        config = self.config
        options = LoadOptions(
            gpu_layers=config.n_gpu_layers,
            threads=config.threads,
            tool_format=config.tool_format,
            context_length=context_length,
            max_sequences=config.max_sequences,
            max_waiting=config.max_waiting,
            max_step_tokens=config.max_step_tokens,
            kv_cache=config.kv_cache,
            prefix_cache=config.prefix_cache,
            adapters=[(self._adapter(each.path), each.scale) for each in config.lora],
        )
        model = open_model(name, path, options)
        if model.embeds:
            return LlamaEmbedder(name, model, options)
        engine = LlamaEngine(load(name, model, path, options))
        engine.start()
        return engine

    def _adapter(self, path: Path) -> Path:
        path = path.expanduser()
        if not path.is_file():
            raise ProviderStartError(
                f"The provider '{self.id}' finds no LoRA adapter at {path.absolute()}: give the"
                " path of a GGUF file, or leave 'lora' out."
            )
        return path
