"""`local::torch`: Hugging Face causal language models in this process, on CPU or CUDA."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

from msgspec import structs
from pydantic import PositiveInt, StringConstraints

from llama_compat.errors import context_length_exceeded, invalid_parameter
from llama_compat.mixins import (
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
)
from llama_compat.text.reasoning import CLOSING_TAG, OPENING_TAG
from llama_compat.tools.formats import ForcedCallParser, reply_parser
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    SamplingParams,
    StreamEvent,
)
from providers.base import Provider, ProviderConfig, ProviderModel, ProviderStartError
from providers.local.call_rules import call_rules
from providers.local.models import store as model_store
from providers.local.requirements import require
from providers.local.tool_replies import CallingParser, read_reply
from providers.local.torch_engine.prompts import chat_prompt, text_prompt
from providers.local.torch_engine.sequence import Generation

if TYPE_CHECKING:
    from providers.local.torch_engine.engine import Engine
    from providers.local.torch_engine.loader import LoadedModel

T = TypeVar("T")

log = logging.getLogger(__name__)

_MODULES = ("torch", "transformers", "safetensors")
_GGUF_MODULES = ("accelerate", "gguf")
_TOOL_PARAMETERS = ("tools", "tool_choice", "parallel_tool_calls")


class TorchConfig(ProviderConfig):
    """Where and how the models run."""

    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    """`auto` (CUDA where there is one, else CPU), `cpu`, `cuda` or `cuda:N`."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto` is float32 on the CPU and bfloat16 on CUDA."""

    threads: PositiveInt | None = None
    """CPU threads of one operation, in place of torch's own choice; they are the process's."""

    tool_format: Literal[
        "auto",
        "none",
        "hermes",
        "llama3",
        "llama3_json",
        "mistral",
        "pythonic",
        "qwen",
        "qwen3_coder",
    ] = "auto"
    """How the models write tool calls; `auto` looks for it in each model's chat template and name,
    with `none` they take no tools."""


class TorchProvider(
    OpenAICompletionUnsupportedMixin, OpenAIChatCompletionUnsupportedMixin, Provider
):
    """Generates with Hugging Face models that lie on this machine.

    A model's name is a folder's path, `hf:ORG/NAME` or `starter`; a folder may hold a single GGUF
    file instead of weights, which is converted once.
    """

    Config: ClassVar[type[ProviderConfig]] = TorchConfig
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
            *_TOOL_PARAMETERS,
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
        require(_MODULES, f"by the provider '{self.id}'")
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
        for name in dict.fromkeys(model.name for model in self.models):
            self.engines[name] = await asyncio.to_thread(self._start_engine, name)

    async def stop(self) -> None:
        """Break off what is running and let the models go."""
        engines, self.engines = self.engines, {}
        for engine in engines.values():
            await asyncio.to_thread(engine.stop)
        if self._tokenizing is not None:
            # It waits for the prompt that is being tokenized, which may be a long one.
            await asyncio.to_thread(self._tokenizing.shutdown, cancel_futures=True)

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
            tool_format=self.config.tool_format,
        )
        engine = Engine(loaded)
        engine.start()
        return engine

    def _wanted_context_length(self, name: str) -> int | None:
        return next((each.context_length for each in self.models if each.name == name), None)

    def context_length(self, model: str) -> int | None:
        """How many tokens `model` holds: the model's own limit, or the template's lower one."""
        engine = self.engines.get(model)
        return (
            self._wanted_context_length(model) if engine is None else engine.loaded.context_length
        )

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """Tools need a model whose way of writing calls is known."""
        engine = self.engines.get(request.model)
        if engine is None or engine.loaded.tool_format is not None:
            return {}
        if self.config.tool_format == "none":
            why = "its 'tool_format' is 'none'"
        else:
            why = (
                f"how the model '{engine.loaded.name}' writes tool calls can't be told from its"
                " chat template or name; the template can say it with 'tool_format', such as"
                " 'hermes'"
            )
        # The error is about 'tools'; where they are dropped, the others go with them.
        names = _TOOL_PARAMETERS if self.config.unsupported == "drop" else ("tools",)
        return dict.fromkeys(names, why)

    def stats(self) -> dict[str, int]:
        """How many generations run, and how many wait for their turn."""
        stats = [engine.stats for engine in self.engines.values()]
        return {
            "running": sum(each.running for each in stats),
            "waiting": sum(each.waiting for each in stats),
        }

    # Requests -------------------------------------------------------------------------------------

    async def completion(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Continue a prompt; events and errors as in `Provider.completion`."""
        engine = self.engines[request.model]
        prompt_ids = await self._tokenize(text_prompt, engine.loaded, request.prompt)
        _check_logit_bias(request.sampling, engine.loaded)
        generation = Generation(
            prompt_ids,
            request.sampling,
            max_tokens=_max_tokens(request, len(prompt_ids), engine.loaded, "prompt"),
            logprobs=request.logprobs,
            echo=_echoed_text(request, engine.loaded),
        )
        async with aclosing(engine.generate(generation)) as events:
            async for event in events:
                yield event

    async def chat_completion(
        self, request: ChatCompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message; events and errors as in `Provider.chat_completion`."""
        engine = self.engines[request.model]
        loaded, sampling = engine.loaded, request.sampling
        rules = call_rules(request)
        prompt = await self._tokenize(chat_prompt, loaded, request, rules)
        _check_logit_bias(sampling, loaded)
        parser: CallingParser = reply_parser(loaded.tool_format, rules.tools, prompt=prompt.text)
        if prompt.openings:
            parser = ForcedCallParser(prompt.openings)
            # It has no text that they could end.
            sampling = structs.replace(sampling, stop=())
        generation = Generation(
            prompt.token_ids,
            sampling,
            max_tokens=_max_tokens(request, len(prompt.token_ids), loaded, "messages"),
            logprobs=request.logprobs,
            openings=prompt.opening_ids,
            shown_tokens=_shown_tokens(loaded, with_calls=bool(rules.tools)),
        )
        reply = read_reply(engine.generate(generation), parser, single_call=rules.single)
        async with aclosing(reply) as events:
            async for event in events:
                yield event

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        """How many tokens the model's chat template makes of the conversation."""
        loaded = self.engines[request.model].loaded
        prompt = await self._tokenize(chat_prompt, loaded, request, call_rules(request))
        return len(prompt.token_ids)

    async def _tokenize(self, make: Callable[..., T], *args: object) -> T:
        # In one thread, since tokenizers are not made for several, and long prompts take a while.
        return await asyncio.get_running_loop().run_in_executor(self._tokenizing, make, *args)


def _max_tokens(
    request: ChatCompletionRequest | CompletionRequest,
    prompt_tokens: int,
    loaded: LoadedModel,
    param: str,
) -> int:
    """How many tokens may be generated: as many as were asked for, or all that fit."""
    context_length = min(request.context_length or loaded.context_length, loaded.context_length)
    room = context_length - prompt_tokens
    wanted = request.sampling.max_tokens
    if wanted is None:
        wanted = max(room, 1)
    if wanted > room:
        error = context_length_exceeded(context_length, prompt_tokens, wanted)
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


def _echoed_text(request: CompletionRequest, loaded: LoadedModel) -> str | None:
    """The text that the reply begins with, if it was asked for."""
    if not request.echo:
        return None
    prompt = request.prompt
    return prompt if isinstance(prompt, str) else loaded.vocabulary.decode(prompt)


def _shown_tokens(loaded: LoadedModel, *, with_calls: bool) -> frozenset[int]:
    """The tokens without which reasoning and calls can't be found in a reply's text."""
    markers = [OPENING_TAG, CLOSING_TAG]
    if with_calls and loaded.tool_format is not None:
        markers += loaded.tool_format.markers
    token_ids = map(loaded.vocabulary.id_of, markers)
    return frozenset(token_id for token_id in token_ids if token_id is not None)


# What has to be there before a model can be loaded ------------------------------------------------


def _model_folder(name: str) -> Path:
    """The folder of the model `name`; a lone GGUF is converted into a folder beside it, once."""
    gguf = _lone_gguf(Path(name).expanduser())
    if gguf is None:
        return model_store.resolve(name)
    folder = gguf.with_name(f"{gguf.stem}-safetensors")
    if not folder.is_dir():
        require(_GGUF_MODULES, f"to convert {gguf}")
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
