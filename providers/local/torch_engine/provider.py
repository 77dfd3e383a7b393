"""`local::torch`: Hugging Face causal language models in this process, on CPU or CUDA."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from providers.base import ProviderConfig, ProviderStartError
from providers.imports import importing
from providers.local.models import store as model_store
from providers.local.provider import LocalProvider
from providers.local.residency.host import AnyEngine, Footprint
from providers.local.residency.ledger import Sizes
from providers.local.threads.waiting import bounded_waiting
from providers.local.torch_engine import lost_devices
from providers.local.torch_engine.config import CUDA_BYTES, TorchConfig
from providers.local.torch_engine.kinds import is_embedder, is_reranker
from providers.local.torch_engine.starting.library import TURNS, library
from providers.local.torch_engine.starting.meta_kernels import meta_kernels_later
from providers.requirements import require

if TYPE_CHECKING:
    from providers.local.torch_engine.loading.reading import Aside

log = logging.getLogger(__name__)

_GGUF_MODULES = ("accelerate", "gguf")


class TorchProvider(LocalProvider):
    """Generates with Hugging Face models that lie on this machine.

    A model's name is a folder's path, `hf:ORG/NAME` or `starter`; a folder may hold a single GGUF
    file instead of weights, which is converted once. A sentence-transformers folder embeds, and a
    cross-encoder ranks documents.
    """

    Config: ClassVar[type[ProviderConfig]] = TorchConfig
    config: TorchConfig

    embedding_parameters = LocalProvider.embedding_parameters | {
        "input_type",
        "prompt_name",
        "task",
    }
    rerank_parameters = LocalProvider.rerank_parameters | {"instruct"}
    modules = ("torch", "transformers", "safetensors")
    extra = "torch"

    @classmethod
    def load_ahead(cls) -> None:
        """Torch's library: see `library`."""
        library()

    def _open_engine(self, name: str, context_length: int | None) -> AnyEngine:
        gguf, folder = _place_of(name)
        if gguf:
            self._import_torch()
            return self._engine_of(name, _converted(name, gguf), context_length)
        from providers.local.torch_engine.loading.reading import read_aside

        with read_aside(folder, self._with_its_cache(self.config, name)) as aside:
            self._import_torch()
            return self._engine_of(name, folder, context_length, aside)

    def _engine_of(
        self,
        name: str,
        folder: Path,
        context_length: int | None,
        aside: Aside | None = None,
    ) -> AnyEngine:
        from providers.local.torch_engine import cpu_thread
        from providers.local.torch_engine.engine import started
        from providers.local.torch_engine.loading.loader import load

        config = self._with_its_cache(self.config, name)
        # Where memory is shared, others answer while this one is loaded.
        where = cpu_thread.on_cpu_thread if self._residency is None else cpu_thread.aside
        if is_reranker(folder):
            from providers.local.torch_engine.texts import reranker

            ranking = reranker.load_reranker(name, folder, config, context_length, where)
            return reranker.TorchReranker(ranking, config.max_waiting)
        if is_embedder(folder):
            from providers.local.torch_engine.texts import embedder

            loaded = embedder.load_embedder(name, folder, config, context_length, where)
            return embedder.TorchEmbedder(loaded, config.max_waiting)
        return started(load(name, folder, config, context_length, where=where, aside=aside))

    def _import_torch(self) -> None:
        """Import it before whatever else does, the conversion of a GGUF for one.

        Raises:
            ProviderStartError: it is not there.
        """
        try:
            library().join()
            with importing():
                with bounded_waiting(TURNS), meta_kernels_later():
                    import torch

                from providers.local.torch_engine import engine as _engine
                from providers.local.torch_engine.cpu_thread import on_cpu_thread
        except (ImportError, OSError) as error:
            raise ProviderStartError(
                f"The provider '{self.id}' can't import what it needs ({error}): pip install"
                " --force-reinstall 'llama-compat[torch]'"
            ) from error
        del _engine
        if self.config.threads is not None:
            # libgomp counts for each thread by itself.
            on_cpu_thread(torch.set_num_threads, self.config.threads)

    # Memory that is shared ------------------------------------------------------------------------

    def footprint(self, name: str) -> Footprint:
        """By its files; see `loading.footprint`."""
        gguf, folder = _place_of(name)
        self._import_torch()
        from providers.local.torch_engine.loading import footprint

        if gguf:
            folder = _converted(name, gguf)
        generates = not (is_embedder(folder) or is_reranker(folder))
        length = self._wanted_context_length(name)
        found = footprint.footprint(name, folder, self.config, length, generates=generates)
        adapters = map(model_store.resolve_adapter, self._sources(name))
        return footprint.with_adapters(found, list(adapters), self.config)

    def taken_by(self, footprint: Footprint, engine: AnyEngine) -> Sizes:
        """Weights and cache; what else is on a GPU can't be told apart from what others have."""
        [(device, needs)] = footprint.needs.items()
        loaded = getattr(engine, "loaded", None)
        module: Any = getattr(loaded, "model", None)
        if hasattr(module, "parameters"):  # an embedder's, or a reranker's
            return {device: sum(each.nbytes for each in module.parameters())}
        cache = getattr(loaded, "cache_bytes", None)
        if cache is None:
            cache = footprint.kv_cache or 0
        beside = 0 if device == "cpu" else min(CUDA_BYTES, needs)
        return {device: footprint.weights + cache + beside}

    def freed(self) -> None:
        """Give back what torch keeps of a GPU for itself."""
        from providers.local.torch_engine.devices import empty_cache

        empty_cache()

    def lost_devices(self) -> Sequence[str]:
        """See `Provider.lost_devices`."""
        return lost_devices.lost()


# What has to be there before a model can be loaded ------------------------------------------------


def _place_of(name: str) -> tuple[Path | None, Path]:
    """The GGUF that has to be converted, or else the folder of the model.

    Raises:
        ProviderStartError: it is not there, which is told at once, not after the seconds that torch
            takes.
    """
    gguf = _lone_gguf(Path(name).expanduser())
    return (gguf, Path()) if gguf else (None, model_store.resolve(name))


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
