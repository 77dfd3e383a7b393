"""`local::llama_cpp`: GGUF models in this process, on the CPU or what llama.cpp was built for."""

from __future__ import annotations

from typing import ClassVar

from providers.base import ProviderConfig, ProviderStartError
from providers.local.engine import Embedder, Engine
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.models import store as model_store
from providers.local.provider import LocalProvider


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
            from providers.local.llama_cpp_engine.loader import load, open_model
        except ImportError as error:
            raise ProviderStartError(
                f"The provider '{self.id}' can't import what it needs: {error}"
            ) from error
        config = self.config
        self._find_adapters()
        model = open_model(name, path, config)
        if model.embeds:
            return LlamaEmbedder(name, model, config, context_length)
        engine = LlamaEngine(load(name, model, path, config, context_length))
        engine.start()
        return engine

    def _find_adapters(self) -> None:
        for adapter in self.config.lora:
            if not adapter.path.is_file():
                raise ProviderStartError(
                    f"The provider '{self.id}' finds no LoRA adapter at {adapter.path.absolute()}:"
                    " give the path of a GGUF file, or leave 'lora' out."
                )
