"""`local::torch`: Hugging Face causal language models in this process, on CPU or CUDA."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import ClassVar

from providers.base import ProviderConfig, ProviderStartError
from providers.local.engine import Embedder, Engine, Reranker
from providers.local.models import store as model_store
from providers.local.provider import LocalProvider
from providers.local.torch_engine.config import TorchConfig
from providers.local.waiting import bounded_waiting
from providers.requirements import require

log = logging.getLogger(__name__)

TURNS = 1000
"""How often torch's threads look for each other before they sleep, 15 to 45 microseconds, as the
CPU goes; see `waiting`. A step has more of such meetings than llama.cpp's, of threads that are less
far apart. Beside busy processes there are fewer threads; see `thread_team`."""

_GGUF_MODULES = ("accelerate", "gguf")


class TorchProvider(LocalProvider):
    """Generates with Hugging Face models that lie on this machine.

    A model's name is a folder's path, `hf:ORG/NAME` or `starter`; a folder may hold a single GGUF
    file instead of weights, which is converted once. A sentence-transformers folder embeds, and a
    cross-encoder ranks documents.
    """

    Config: ClassVar[type[ProviderConfig]] = TorchConfig
    config: TorchConfig

    modules = ("torch", "transformers", "safetensors")
    extra = "torch"

    def _open_engine(self, name: str, context_length: int | None) -> Engine | Embedder | Reranker:
        # A model that is not there is told at once, not after the seconds that torch takes.
        gguf = _lone_gguf(Path(name).expanduser())
        folder = Path() if gguf else model_store.resolve(name)
        try:
            # Before whatever else imports it, the conversion of a GGUF for one.
            with bounded_waiting(TURNS):
                import torch

            from providers.local.torch_engine import embedder, reranker
            from providers.local.torch_engine.cpu_thread import on_cpu_thread
            from providers.local.torch_engine.engine import TorchEngine
            from providers.local.torch_engine.loading.loader import load
        except (ImportError, OSError) as error:
            raise ProviderStartError(
                f"The provider '{self.id}' can't import what it needs ({error}): pip install"
                " --force-reinstall 'llama-compat[torch]'"
            ) from error
        if gguf:
            folder = _converted(name, gguf)
        config = self.config
        if config.threads is not None:
            # libgomp counts for each thread by itself.
            on_cpu_thread(torch.set_num_threads, config.threads)
        if reranker.is_reranker(folder):
            ranking = reranker.load_reranker(name, folder, config, context_length)
            return reranker.TorchReranker(ranking, config.max_waiting)
        if embedder.is_embedder(folder):
            loaded = embedder.load_embedder(name, folder, config, context_length)
            return embedder.TorchEmbedder(loaded, config.max_waiting)
        engine = TorchEngine(load(name, folder, config, context_length))
        engine.start()
        return engine


# What has to be there before a model can be loaded ------------------------------------------------


def _converted(name: str, gguf: Path) -> Path:
    """The folder beside `gguf` into which it is converted, once, for the model `name`."""
    folder = gguf.with_name(f"{gguf.stem}-safetensors")
    if not folder.is_dir():
        require(_GGUF_MODULES, f"to convert {gguf}")
        from providers.local.torch_engine.cpu_thread import on_cpu_thread
        from providers.local.torch_engine.loading.gguf_import import convert_gguf

        log.info("converting %s to %s; this is done once and takes a minute or so", gguf, folder)
        try:
            on_cpu_thread(convert_gguf, gguf, folder)
        except (OSError, ValueError) as error:
            raise ProviderStartError(
                f"The model '{name}' can't be converted to {folder}: {error}. Use a GGUF that"
                " transformers knows, in a folder that can be written to."
            ) from error
    return folder


def _lone_gguf(path: Path) -> Path | None:
    """The GGUF file that `path` is, or that is the only model in the folder `path`."""
    if path.suffix == ".gguf" and path.is_file():
        return path
    if not path.is_dir() or (path / "config.json").exists():
        return None
    files = list(path.glob("*.gguf"))
    return files[0] if len(files) == 1 else None
