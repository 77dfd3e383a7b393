"""`local::torch`: Hugging Face causal language models in this process, on CPU or CUDA."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, PositiveInt, StringConstraints

from providers.base import ProviderConfig, ProviderStartError
from providers.local.engine import Embedder, Engine
from providers.local.models import store as model_store
from providers.local.provider import LocalConfig, LocalProvider, enough_for_each
from providers.local.requirements import require
from providers.local.waiting import bounded_waiting

log = logging.getLogger(__name__)

TURNS = 300
"""How often torch's threads look for each other before they sleep; see `waiting`. A step has more
of such meetings than llama.cpp's, of threads that are less far apart."""

_GGUF_MODULES = ("accelerate", "gguf")


class TorchConfig(LocalConfig):
    """Where and how the models run."""

    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    """`auto` (CUDA where there is one, else CPU), `cpu`, `cuda` or `cuda:N`."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto` is float32 on the CPU and bfloat16 on CUDA."""

    quantization: Literal["auto", "none", "float16", "int8"] = "auto"
    """Of the weights, for CPUs: `float16` reads half as much memory and changes next to nothing,
    `int8` a quarter, and makes the model say some things otherwise. `auto` is `int8` on CPUs that
    can, else `float16`, unless `dtype` is set."""

    kernels: Literal["auto", "triton", "llvm", "sdpa"] = "auto"
    """What computes attention and the small operations: Triton kernels, on CUDA alone, kernels
    compiled by LLVM, on x86 CPUs alone, or PyTorch's own operations. `auto` tries the kernels
    against these when the model is loaded, and goes on without them, with a warning, if the results
    differ."""

    prompt_attention: Literal["auto", "flashinfer", "flash_attn", "triton"] = "auto"
    """What computes the attention of prompts beside the Triton kernels: one of these packages, or a
    kernel of our own. `auto` takes a package that is installed, for models in half precision on
    CUDA, if its results are PyTorch's when the model is loaded."""

    cuda_graphs: bool = True
    """Whether the kernels of a step in which all sequences decode are launched as one graph."""

    overlap: bool = True
    """Whether, with Triton kernels, a step is launched before the tokens of the one before it are
    read, so that the GPU does not wait for the host."""

    threads: PositiveInt | None = None
    """CPU threads of one operation, in place of torch's own choice; they are the process's, whose
    models take turns with them, a step at a time."""

    max_sequences: PositiveInt = 32
    """How many requests are generated at the same time; the others wait."""

    max_waiting: PositiveInt = 256
    """How many requests may wait; more are answered with 429."""

    max_step_tokens: Annotated[PositiveInt | None, AfterValidator(enough_for_each)] = None
    """Tokens of prompts and replies that one step computes; 128 on the CPU, 2048 on CUDA, and
    `max_sequences` at least."""

    kv_cache: Annotated[float, Field(gt=0)] = 0.5
    """The KV cache's memory: up to 1 a share of what is free, more than 1 a number of bytes. It
    never takes more than `max_sequences` of the longest requests need."""

    prefix_cache: bool = True
    """Whether what was computed of a prompt is kept for others that begin the same."""


class TorchProvider(LocalProvider):
    """Generates with Hugging Face models that lie on this machine.

    A model's name is a folder's path, `hf:ORG/NAME` or `starter`; a folder may hold a single GGUF
    file instead of weights, which is converted once. A sentence-transformers folder embeds.
    """

    Config: ClassVar[type[ProviderConfig]] = TorchConfig
    config: TorchConfig

    modules = ("torch", "transformers", "safetensors")
    extra = "torch"

    def _open_engine(self, name: str, context_length: int | None) -> Engine | Embedder:
        try:
            # Before whatever else imports it, the conversion of a GGUF for one.
            with bounded_waiting(TURNS):
                import torch

            from providers.local.torch_engine import embedder
            from providers.local.torch_engine.cpu_thread import on_cpu_thread
            from providers.local.torch_engine.engine import Engine
            from providers.local.torch_engine.loading.loader import LoadOptions, load
        except (ImportError, OSError) as error:
            raise ProviderStartError(
                f"The provider '{self.id}' can't import what it needs ({error}): pip install"
                " --force-reinstall 'llama-compat[torch]'"
            ) from error
        folder = _model_folder(name)
        config = self.config
        if config.threads is not None:
            # libgomp counts for each thread by itself.
            on_cpu_thread(torch.set_num_threads, config.threads)
        if embedder.is_embedder(folder):
            loaded = embedder.load_embedder(
                name,
                folder,
                device=config.device,
                dtype=config.dtype,
                context_length=context_length,
                control_tokens=config.control_tokens == "all",
            )
            return embedder.Embedder(loaded, config.max_waiting)
        options = LoadOptions(
            device=config.device,
            dtype=config.dtype,
            quantization=config.quantization,
            kernels=config.kernels,
            prompt_attention=config.prompt_attention,
            cuda_graphs=config.cuda_graphs,
            overlap=config.overlap,
            tool_format=config.tool_format,
            context_length=context_length,
            max_sequences=config.max_sequences,
            max_waiting=config.max_waiting,
            max_step_tokens=config.max_step_tokens,
            kv_cache=config.kv_cache,
            prefix_cache=config.prefix_cache,
        )
        engine = Engine(load(name, folder, options))
        engine.start()
        return engine


# What has to be there before a model can be loaded ------------------------------------------------


def _model_folder(name: str) -> Path:
    """The folder of the model `name`; a lone GGUF is converted into a folder beside it, once."""
    gguf = _lone_gguf(Path(name).expanduser())
    if gguf is None:
        return model_store.resolve(name)
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
