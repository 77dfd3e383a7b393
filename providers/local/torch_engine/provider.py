"""`local::torch`: Hugging Face causal language models in this process, on CPU or CUDA."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import PositiveInt, StringConstraints

from llama_compat.errors import context_length_exceeded, invalid_parameter
from llama_compat.mixins import (
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
)
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    SamplingParams,
    StreamEvent,
)
from providers.base import Provider, ProviderConfig, ProviderModel, ProviderStartError
from providers.local import model_store
from providers.local.torch_engine.prompts import chat_prompt, text_prompt
from providers.local.torch_engine.sequence import Generation

if TYPE_CHECKING:
    from providers.local.torch_engine.engine import Engine
    from providers.local.torch_engine.loader import LoadedModel

log = logging.getLogger(__name__)

_MODULES = ("torch", "transformers", "safetensors")
_GGUF_MODULES = ("accelerate", "gguf")


class TorchConfig(ProviderConfig):
    """Where and how the models run."""

    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    """`auto` (CUDA where there is one, else CPU), `cpu`, `cuda` or `cuda:N`."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto` is float32 on the CPU and bfloat16 on CUDA."""

    threads: PositiveInt | None = None
    """CPU threads of one operation, in place of torch's own choice; they are the process's."""


class TorchProvider(
    OpenAICompletionUnsupportedMixin, OpenAIChatCompletionUnsupportedMixin, Provider
):
    """Generates with Hugging Face models that lie on this machine.

    A model's name is a folder's path, `hf:ORG/NAME` or `starter`; a folder may hold a single GGUF
    file instead of weights, which is converted once.
    """

    Config = TorchConfig
    config: TorchConfig

    parameters = frozenset(
        {
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "top_p",
            "top_k",
            "seed",
            "stop",
            "logprobs",
            "top_logprobs",
            "logit_bias",
            "frequency_penalty",
            "presence_penalty",
            "repetition_penalty",
            "echo",
        }
    )

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        self.engines: dict[str, Engine] = {}
        self._tokenizing: ThreadPoolExecutor | None = None

    # Start and stop -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the models, in a thread, and start an engine for each.

        Raises:
            ProviderStartError: a package or a model is missing, or a model can't be loaded.
        """
        _require(_MODULES, f"by the provider '{self.id}'")
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
        for name in dict.fromkeys(model.name for model in self.models):
            self.engines[name] = await asyncio.to_thread(self._start_engine, name)

    async def stop(self) -> None:
        """Break off what is running and let the models go."""
        engines, self.engines = self.engines, {}
        for engine in engines.values():
            await asyncio.to_thread(engine.stop)
        if self._tokenizing is not None:
            self._tokenizing.shutdown(cancel_futures=True)

    def _start_engine(self, name: str) -> Engine:
        folder = _model_folder(name)
        try:
            import torch

            from providers.local.torch_engine.engine import Engine
            from providers.local.torch_engine.loader import load
        except (ImportError, OSError) as error:
            raise ProviderStartError(
                f"The provider '{self.id}' can't import what it needs ({error}): pip install"
                " --force-reinstall 'llama-compat[torch]'"
            ) from error
        if self.config.threads is not None:
            torch.set_num_threads(self.config.threads)
        loaded = load(
            name,
            folder,
            device=self.config.device,
            dtype=self.config.dtype,
            context_length=self._wanted_context_length(name),
        )
        engine = Engine(loaded)
        engine.start()
        return engine

    def _wanted_context_length(self, name: str) -> int | None:
        lengths = [model.context_length for model in self.models if model.name == name]
        return min((length for length in lengths if length is not None), default=None)

    def context_length(self, model: str) -> int | None:
        """How many tokens `model` holds: the model's own limit, or the template's lower one."""
        engine = self.engines.get(model)
        return (
            self._wanted_context_length(model) if engine is None else engine.loaded.context_length
        )

    def stats(self) -> dict[str, int]:
        """How many generations run, and how many wait for their turn."""
        stats = [engine.stats for engine in self.engines.values()]
        return {
            "running": sum(each.running for each in stats),
            "waiting": sum(each.waiting for each in stats),
        }

    # Requests -------------------------------------------------------------------------------------

    def completion(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Continue a prompt; events and errors as in `Provider.completion`."""
        return self._generate(request, "prompt", lambda loaded: text_prompt(loaded, request.prompt))

    def chat_completion(self, request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message; events and errors as in `Provider.chat_completion`."""
        return self._generate(
            request, "messages", lambda loaded: chat_prompt(loaded, request.messages)
        )

    async def _generate(
        self,
        request: CompletionRequest | ChatCompletionRequest,
        param: str,
        make_prompt: Callable[[LoadedModel], tuple[int, ...]],
    ) -> AsyncGenerator[StreamEvent, None]:
        engine = self.engines[request.model]
        loop = asyncio.get_running_loop()
        # In one thread, since tokenizers are not made for several, and long prompts take a while.
        prompt_ids = await loop.run_in_executor(self._tokenizing, make_prompt, engine.loaded)
        _check_logit_bias(request.sampling, engine.loaded)
        generation = Generation(
            prompt_ids,
            request.sampling,
            max_tokens=_max_tokens(request.sampling, len(prompt_ids), engine.loaded, param),
            logprobs=request.logprobs,
            echo=_echo(request, engine.loaded),
        )
        async with aclosing(engine.generate(generation)) as events:
            async for event in events:
                yield event


def _max_tokens(
    sampling: SamplingParams, prompt_tokens: int, loaded: LoadedModel, param: str
) -> int:
    """How many tokens may be generated: as many as were asked for, or all that fit."""
    room = loaded.context_length - prompt_tokens
    wanted = max(room, 1) if sampling.max_tokens is None else sampling.max_tokens
    if wanted > room:
        error = context_length_exceeded(loaded.context_length, prompt_tokens, wanted)
        if room <= 0:
            error.param = param
        raise error
    return wanted


def _check_logit_bias(sampling: SamplingParams, loaded: LoadedModel) -> None:
    for token_id in sampling.logit_bias:
        if token_id >= loaded.vocab_size:
            raise invalid_parameter(
                "logit_bias",
                f"Invalid token id in 'logit_bias': {token_id}. The model '{loaded.name}' has the"
                f" ids 0 to {loaded.vocab_size - 1}.",
            )


def _echo(request: CompletionRequest | ChatCompletionRequest, loaded: LoadedModel) -> str | None:
    """The text that the reply begins with, if it was asked for."""
    if isinstance(request, ChatCompletionRequest) or not request.echo:
        return None
    prompt = request.prompt
    return prompt if isinstance(prompt, str) else loaded.vocabulary.decode(prompt)


# What has to be there before a model can be loaded ------------------------------------------------


def _require(modules: Sequence[str], purpose: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ProviderStartError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} needed {purpose}:"
            " pip install 'llama-compat[torch]'"
        )


def _model_folder(name: str) -> Path:
    """The folder of the model `name`; a lone GGUF is converted into a folder beside it, once."""
    gguf = _lone_gguf(Path(name).expanduser())
    if gguf is None:
        return model_store.resolve(name)
    folder = gguf.with_name(f"{gguf.stem}-safetensors")
    if not folder.is_dir():
        _require(_GGUF_MODULES, f"to convert {gguf}")
        from providers.local.torch_engine.gguf_import import convert_gguf

        log.info("converting %s to %s; this is done once and takes a minute or so", gguf, folder)
        try:
            convert_gguf(gguf, folder)
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
