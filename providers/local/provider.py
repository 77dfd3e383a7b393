"""What all providers that run models in this process do alike, whichever engine they have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import ClassVar, Literal, TypeVar

from msgspec import structs
from pydantic import ValidationInfo

from llama_compat.errors import APIError, invalid_parameter, unsupported_capability
from llama_compat.fitting.placeless import IMAGE_DETAIL
from llama_compat.mixins import (
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
)
from llama_compat.once import Once
from llama_compat.prefixes.held import HeldPrompts
from llama_compat.prefixes.marks import Marks
from llama_compat.text.reasoning import CLOSING_TAG, OPENING_TAG
from llama_compat.tools.formats import ForcedCallParser, reply_parser
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    Guide,
    Mark,
    RerankRequest,
    RerankResponse,
    StreamEvent,
)
from providers.base import (
    ProviderConfig,
    ProviderModel,
)
from providers.local.engine import (
    Constraint,
    Embedder,
    Engine,
    Generation,
    LocalModel,
    Reranker,
)
from providers.local.limits import check_token_ids, max_tokens
from providers.local.media.fetching import PictureFetcher
from providers.local.media.limits import AudioLimits, MediaLimits, PictureLimits
from providers.local.models.defaults import with_defaults
from providers.local.prompts.prompts import (
    ChatPrompt,
    ControlTokens,
    chat_prompt,
    refuse_media,
    text_prompt,
)
from providers.local.prompts.thinking import can_be_told, unread, untold
from providers.local.replies.call_rules import CallRules, before_reply, call_rules
from providers.local.replies.grammar import Grammars
from providers.local.replies.reply import text_events
from providers.local.replies.tool_replies import CallingParser, read_reply
from providers.local.residency.hosting import HostingProvider

T = TypeVar("T")

_TOOL_PARAMETERS = ("tools", "tool_choice", "parallel_tool_calls")


class LocalConfig(ProviderConfig):
    """What can be set for models of every engine."""

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

    deterministic: bool = False
    """Whether the same request gets the same reply, to the bit, whatever runs beside it and
    whatever caches hold: one that is greedy, or has a `seed`. That takes longer. `local::torch` can
    do so on x86 CPUs alone."""

    control_tokens: ControlTokens = "completions"
    """Where a control token such as `<|im_end|>` that a client's text spells out is that token, and
    not text like any other: in the prompts of `completions`, which are all that the model gets and
    may have been made from its template, in `all` texts, or in `none`."""

    images: PictureLimits = PictureLimits()
    """Which pictures a request may have, of models that take any."""

    audio: AudioLimits = AudioLimits()
    """Which audio a request may have, of models that take any."""


def enough_for_each(max_step_tokens: int | None, info: ValidationInfo) -> int | None:
    """A check of the setting: in a step every sequence has a token, or the last ones would wait.

    Raises:
        ValueError: it is less than `max_sequences`.
    """
    sequences = info.data.get("max_sequences")
    if max_step_tokens is not None and sequences is not None and max_step_tokens < sequences:
        raise ValueError(
            f"a step of {max_step_tokens} tokens has none for some of the {sequences} requests of"
            " 'max_sequences': take as many tokens, or fewer requests"
        )
    return max_step_tokens


class LocalProvider(
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
    HostingProvider,
):
    """Answers with models that run in this process; a subclass says how they come there, as
    `HostingProvider` wants it."""

    Config: ClassVar[type[ProviderConfig]] = LocalConfig
    config: LocalConfig
    parameters = frozenset(
        {
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "seed",
            "stop",
            "stop_token_ids",
            "include_stop_str_in_output",
            "min_tokens",
            "ignore_eos",
            "logprobs",
            "top_logprobs",
            "logit_bias",
            "allowed_token_ids",
            "frequency_penalty",
            "presence_penalty",
            "repetition_penalty",
            "priority",
            "cache_salt",
            "response_format",
            "structured_outputs",
            "guided_json",
            "guided_regex",
            "guided_choice",
            "guided_grammar",
            "return_token_ids",
            "echo",
            "best_of",
            "reasoning_effort",
            "chat_template_kwargs",
            *_TOOL_PARAMETERS,
        }
    )

    placeless = frozenset({IMAGE_DETAIL})
    embedding_parameters = frozenset({"dimensions", "truncate", "truncate_prompt_tokens"})
    rerank_parameters = frozenset({"truncation", "max_tokens_per_doc"})

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        self._telling: set[str] = set()
        self._fetcher = PictureFetcher(self.config.images)

    async def stop(self) -> None:
        """As `HostingProvider.stop`; no picture is fetched any more."""
        await super().stop()
        await self._fetcher.close()

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """Tools need a model whose way of writing calls is known, and thinking one whose chat
        template can be told of it."""
        engine = self._generating(request.model)
        if engine is None:
            return {}
        return self._untaken_tools(engine.model) | _untold(request, engine.model)

    def parameters_of(self, model: str) -> frozenset[str]:
        """Without how hard to think, unless the model is there and can be told."""
        engine = self._generating(model)
        template = None if engine is None else engine.model.tokenizer.chat_template
        if template is not None and can_be_told(template):
            return self.parameters
        return self.parameters - {"reasoning_effort"}

    def _untaken_tools(self, model: LocalModel) -> dict[str, str]:
        if model.tool_format is not None:
            return {}
        if self.config.tool_format == "none":
            why = "its 'tool_format' is 'none'"
        else:
            why = (
                "how the model writes tool calls can't be told from its chat template or name; the"
                " template can say it with 'tool_format', such as 'hermes'"
            )
        # The error is about 'tools'; where they are dropped, the others go with them.
        names = _TOOL_PARAMETERS if self.config.unsupported == "drop" else ("tools",)
        return dict.fromkeys(names, why)

    # Requests -------------------------------------------------------------------------------------

    async def completion(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Continue a prompt; events and errors as in `Provider.completion`."""
        engine = self._engine(request.model)
        model, sampling = engine.model, with_defaults(request.sampling, engine.model.defaults)
        request = structs.replace(request, sampling=sampling)
        check_token_ids(sampling, model)
        prompt_ids = await self._prompt(text_prompt, model, request, self.config.control_tokens)
        generation = Generation(
            prompt_ids,
            sampling,
            max_tokens=max_tokens(request, len(prompt_ids), model, "prompt"),
            logprobs=request.logprobs,
            prompt_logprobs=request.echo and request.logprobs is not None,
            constraint=await self._constraint(request, sampling.guide),
            marks=await self._marks(request, prompt_ids, model),
            adapter=await self._adapter(request.model),
        )
        reply = text_events(
            engine,
            generation,
            echo=_echoed_text(request, model),
            with_token_ids=request.return_token_ids,
        )
        async with aclosing(reply) as events:
            async for event in events:
                yield event

    async def chat_completion(
        self, request: ChatCompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message; events and errors as in `Provider.chat_completion`."""
        engine = self._engine(request.model)
        model, sampling = engine.model, with_defaults(request.sampling, engine.model.defaults)
        request = structs.replace(request, sampling=sampling)
        rules = call_rules(request)
        check_token_ids(sampling, model)
        prompt = await self._chat_prompt(model, request, rules)
        parser: CallingParser = reply_parser(model.tool_format, rules.tools, prompt=prompt.text)
        constraint = await self._chat_constraint(request, rules, prompt)
        if prompt.openings:
            parser = ForcedCallParser(prompt.openings)
            # It has no text that they could end.
            sampling = structs.replace(sampling, stop=())
        generation = Generation(
            prompt.token_ids,
            sampling,
            max_tokens=max_tokens(request, len(prompt.token_ids), model, "messages"),
            logprobs=request.logprobs,
            constraint=constraint,
            # Who is told of characters knows nothing of media between them.
            marks=() if prompt.media else await self._marks(request, prompt.token_ids, model),
            adapter=await self._adapter(request.model),
            media=prompt.media,
        )
        text = text_events(
            engine,
            generation,
            shown_tokens=_shown_tokens(model, with_calls=bool(rules.tools)),
            with_token_ids=request.return_token_ids,
        )
        async with aclosing(read_reply(text, parser, single_call=rules.single)) as events:
            async for event in events:
                yield event

    async def _chat_constraint(
        self, request: ChatCompletionRequest, rules: CallRules, prompt: ChatPrompt
    ) -> Constraint | None:
        grammars = self._grammars(request.model)
        guide = _guide_of(request)
        if prompt.openings:
            return await grammars.call_constraint(rules.demanded, prompt.openings)
        if rules.tools and (guide is not None or any(tool.strict for tool in rules.tools)):
            return await grammars.reply_constraint(
                rules.tools, guide, prefix=before_reply(prompt.text), single=rules.single
            )
        return await self._constraint(request, guide, prompt.text)

    async def _constraint(
        self,
        request: ChatCompletionRequest | CompletionRequest,
        guide: Guide | None,
        prompt: str = "",
    ) -> Constraint | None:
        if guide is None:
            return None
        return await self._grammars(request.model).constraint(guide, before_reply(prompt))

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Turn texts into vectors; errors as in `Provider.embed`."""
        opened = self._opened(request.model)
        if opened is None or not isinstance(opened.engine, Embedder):
            raise self._unable("embeddings", request.model)
        return await opened.engine.embed(request)

    async def rerank(self, request: RerankRequest) -> RerankResponse:
        """Say how much each document has to do with a query; errors as in `Provider.rerank`."""
        opened = self._opened(request.model)
        if opened is None or not isinstance(opened.engine, Reranker):
            raise self._unable("rerank", request.model)
        return await opened.engine.rerank(request)

    def _engine(self, name: str) -> Engine:
        engine = self._generating(name)
        if engine is None:
            raise self._unable("generating", name)
        return engine

    def _unable(self, what: str, model: str) -> APIError:
        what = f"{what} with the model '{model}'"
        return unsupported_capability(self.id, what, "another model").about(model)

    def _generating(self, name: str) -> Engine | None:
        opened = self._opened(name)
        if opened is None or isinstance(opened.engine, Embedder | Reranker):
            return None
        return opened.engine

    def _grammars(self, name: str) -> Grammars:
        opened = self._opened(name)
        assert opened is not None
        assert opened.grammars is not None
        return opened.grammars

    def _prompts(self, name: str) -> ThreadPoolExecutor:
        opened = self._opened(name)
        assert opened is not None
        return opened.prompts

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        """How many tokens the model's chat template makes of the conversation."""
        model = self._engine(request.model).model
        prompt = await self._chat_prompt(model, request, call_rules(request))
        return len(prompt.token_ids)

    def held_prompts(self, model: str) -> HeldPrompts | None:
        """Those in the cache of its engine, if it has one that tells; nobody tells of what was
        computed with an adapter."""
        engine = None if model in self._adapted else self._generating(model)
        held = None if engine is None else engine.held_prompts()
        if held is not None:
            self._telling.add(model)
        return held

    async def _marks(
        self,
        request: ChatCompletionRequest | CompletionRequest,
        prompt_ids: Sequence[int],
        model: LocalModel,
    ) -> Marks:
        """What blocks of characters are told by of this prompt; nothing where nobody is told."""
        mark = request.mark
        if mark is None or request.model not in self._telling:
            return ()
        thread = self._prompts(request.model)
        run = asyncio.get_running_loop().run_in_executor
        return await run(thread, _marked, mark, model, prompt_ids)

    async def _chat_prompt(
        self, model: LocalModel, request: ChatCompletionRequest, rules: CallRules
    ) -> ChatPrompt:
        """The prompt of a conversation, whose pictures are fetched."""
        limits = MediaLimits(self.config.images, self.config.audio)
        settings = (rules, self.config.control_tokens, limits)
        if not self._fetcher.is_needed(request.messages):
            return await self._prompt(chat_prompt, model, request, *settings)
        refuse_media(model, request.messages)

        async def fetch_and_make() -> ChatPrompt:
            messages = await self._fetcher.fetched(request.messages)
            fetched = structs.replace(request, messages=messages, prepared=None)
            return await self._prompt(chat_prompt, model, fetched, *settings)

        prepared = request.prepared or Once()
        return await prepared.get(lambda: asyncio.ensure_future(fetch_and_make()))

    async def _prompt(
        self,
        make: Callable[..., T],
        model: LocalModel,
        request: ChatCompletionRequest | CompletionRequest,
        *args: object,
    ) -> T:
        """What `make` makes of a request's prompt; it is made once for all who share it.

        In one thread a model: tokenizers are not made for several, long prompts take a while, and
        what a chat template does is no other model's affair.
        """
        thread = self._prompts(request.model)
        run = asyncio.get_running_loop().run_in_executor
        prepared = request.prepared or Once()
        return await prepared.get(lambda: run(thread, make, model, request, *args))


def _untold(
    request: ChatCompletionRequest | CompletionRequest, model: LocalModel
) -> dict[str, str]:
    """What of a request the model's chat template can't be told, and why."""
    template = model.tokenizer.chat_template
    if template is None or not isinstance(request, ChatCompletionRequest):
        return {}
    whys: dict[str, str] = {}
    given, effort = request.template_variables, request.reasoning_effort
    if effort is not None and (why := untold(effort, template)) is not None:
        whys["reasoning_effort"] = why
    if given is not None and unread(given, template):
        whys["chat_template_kwargs"] = "the model's chat template reads none of these"
    return whys


def _marked(mark: Mark, model: LocalModel, prompt_ids: Sequence[int]) -> Marks:
    return mark([model.vocabulary.token_bytes(each) for each in prompt_ids])


def _guide_of(request: ChatCompletionRequest) -> Guide | None:
    """What the whole reply has to be.

    Raises:
        APIError: 400; the request says it twice.
    """
    asked, guide = request.response_format, request.sampling.guide
    if asked is not None and asked.type != "text":
        if guide is not None:
            raise invalid_parameter(
                "response_format", f"'response_format' and '{guide.path}' exclude each other."
            )
        if asked.type == "json_schema":
            guide = Guide("json_schema", asked.schema or {}, asked.path)
        else:
            guide = Guide("json_object", None, "response_format")
    return guide


def _echoed_text(request: CompletionRequest, model: LocalModel) -> str | None:
    """The text that the reply begins with, if it was asked for."""
    if not request.echo:
        return None
    prompt = request.prompt
    return prompt if isinstance(prompt, str) else model.vocabulary.decode(prompt)


def _shown_tokens(model: LocalModel, *, with_calls: bool) -> frozenset[int]:
    """The tokens without which reasoning and calls can't be found in a reply's text."""
    markers = [OPENING_TAG, CLOSING_TAG]
    if with_calls and model.tool_format is not None:
        markers += model.tool_format.markers
    token_ids = map(model.vocabulary.id_of, markers)
    return frozenset(token_id for token_id in token_ids if token_id is not None)
