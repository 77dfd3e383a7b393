"""`remote::fastchat`: the workers that a FastChat controller knows."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Any, ClassVar, TypeVar

from msgspec import structs
from pydantic import Field

from llama_compat.dialects import fastchat
from llama_compat.dialects.fastchat.templates import ConversationTemplate, parse_template
from llama_compat.errors import APIError, upstream_error
from llama_compat.fitting.placeless import IMAGE_DETAIL, SPEAKERS
from llama_compat.mixins import (
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
)
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    StreamEvent,
)
from llama_compat.wire.json_lines import NUL
from providers.base import ProviderConfig, ProviderModel
from providers.remote import http1
from providers.remote.config import HTTPURL
from providers.remote.relaying.json_objects import encode, read_lines, read_object
from providers.remote.upstream.exchanges import Upstream, UpstreamResponse
from providers.remote.upstream.images import ImageFetchingConfig, ImageFetchingProvider

log = logging.getLogger(__name__)

Parsed = TypeVar("Parsed")

MAX_WORKERS_TRIED = 5
"""After so many workers that can't be reached, a request is given up."""

WORKER_REFRESH_SECONDS = 300.0
"""How long a worker's template and context length are taken for granted."""

MAX_WORKERS_REMEMBERED = 1000
"""Of more (a worker counts once a model) those are forgotten that have been known longest."""


class FastChatConfig(ImageFetchingConfig):
    """The settings of `remote::fastchat`; `base_url` is the controller's."""

    base_url: HTTPURL = "http://localhost:21001"

    embedding_batch_size: int = Field(default=32, ge=1)
    """Texts that a worker embeds at a time."""


class FastChatProvider(
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
    ImageFetchingProvider,
):
    """Chats, continues prompts and embeds with the workers of one controller.

    Every request asks the controller for a worker of its model. If that can't be reached and has
    said nothing yet, the controller is asked for another.
    """

    Config: ClassVar[type[ProviderConfig]] = FastChatConfig
    config: FastChatConfig

    parameters = frozenset(
        {
            "echo",
            "frequency_penalty",
            "logprobs",
            "max_completion_tokens",
            "max_tokens",
            "presence_penalty",
            "repetition_penalty",
            "stop",
            "temperature",
            "top_k",
            "top_p",
        }
    )
    placeless = frozenset({IMAGE_DETAIL, SPEAKERS})

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        self._workers: dict[tuple[str, str], _Worker] = {}

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """Workers tell the chosen token's log probability alone."""
        if (request.logprobs or 0) > 1:
            return {"logprobs": "FastChat's workers tell no alternatives; 1 is the most"}
        return {}

    async def live_models(self) -> Sequence[str]:
        """What it lists now.

        Raises:
            APIError: why it does not.
        """
        listing = self.upstream.post("/list_models", b"{}", idempotent=True)
        return await self.listed(listing, fastchat.parse_models)

    # Requests -------------------------------------------------------------------------------------

    async def chat_completion(
        self, request: ChatCompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message of a conversation; images that have a URL are fetched first."""
        messages = await self.images.inline(request.messages)
        async with aclosing(self._generate(structs.replace(request, messages=messages))) as events:
            async for event in events:
                yield event

    def completion(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Continue a prompt, which the worker gets as it is."""
        return self._generate(request)

    async def _generate(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        async with aclosing(self._candidates(request.model, request.request_id)) as workers:
            async for worker in workers:
                asked = False
                try:
                    body = await self._body(worker, request)
                    asked = True
                    async with aclosing(worker.generate(body, request.request_id)) as events:
                        async for event in events:
                            yield event
                    return
                except APIError as error:
                    if not (_was_not_sent(error) if asked else _unreachable(error)):
                        raise
                    self._give_up(worker, error)

    async def _body(
        self, worker: _Worker, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, Any]:
        """What `worker` is asked, by what it says of its model."""
        chat = isinstance(request, ChatCompletionRequest)
        template = await worker.template(request.request_id) if chat else None
        body = fastchat.render_request(request, template)
        context_length = request.context_length
        if context_length is None:
            context_length = await worker.context_length(request.request_id)
        if context_length is not None:
            prompt_tokens = await worker.count_tokens(body["prompt"], request.request_id)
            body = fastchat.fit_context(body, prompt_tokens, context_length)
        return body

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Turn texts into vectors, `embedding_batch_size` of them in a request.

        Raises:
            APIError: what the worker says.
        """
        async with aclosing(self._candidates(request.model, request.request_id)) as workers:
            async for worker in workers:
                try:
                    return await self._embed_in_batches(worker, request)
                except APIError as error:
                    if not _was_not_sent(error):
                        raise
                    self._give_up(worker, error)
        raise AssertionError("_candidates ends with an error")

    async def _embed_in_batches(
        self, worker: _Worker, request: EmbeddingRequest
    ) -> EmbeddingResponse:
        size = self.config.embedding_batch_size
        batches = [
            await worker.embed(structs.replace(request, inputs=request.inputs[at : at + size]))
            for at in range(0, len(request.inputs), size)
        ]
        vectors = tuple(vector for batch in batches for vector in batch.vectors)
        return EmbeddingResponse(vectors, sum(batch.prompt_tokens for batch in batches))

    # Workers --------------------------------------------------------------------------------------

    async def _candidates(self, model: str, request_id: str) -> AsyncGenerator[_Worker, None]:
        """One worker after another that the controller names for `model`, each once.

        Raises (from the generator):
            APIError: 503, there is none, or none further.
        """
        tried: list[str] = []
        while len(tried) < MAX_WORKERS_TRIED:
            address = await self._worker_address(model, request_id)
            if address in tried:
                await self._let_controller_look(request_id)
                address = await self._worker_address(model, request_id)
            if not address or address in tried:
                break
            tried.append(address)
            yield self._worker(address, model)
        unreachable = f" The workers at {', '.join(tried)} can't be reached." if tried else ""
        raise upstream_error(
            self.id,
            f"the controller has no worker for the model '{model}'.{unreachable} Start one, or try"
            " again when it has registered.",
            status=503,
            code="no_worker",
        )

    async def _worker_address(self, model: str, request_id: str) -> str:
        body = encode({"model": model})
        async with self.upstream.post(
            "/get_worker_address", body, request_id=request_id, idempotent=True
        ) as response:
            return await read_object(self.id, response, fastchat.parse_address)

    async def _let_controller_look(self, request_id: str) -> None:
        """Have the controller drop the workers that are gone; by itself it takes 90 seconds."""
        try:
            async with self.upstream.post(
                "/refresh_all_workers", b"{}", request_id=request_id, idempotent=True
            ) as response:
                await response.read()
        except APIError as error:
            log.warning("The controller of '%s' did not look: %s", self.id, error.message)

    def _worker(self, address: str, model: str) -> _Worker:
        worker = self._workers.get((address, model))
        if worker is None or worker.is_old():
            self._workers.pop((address, model), None)
            worker = self._workers[address, model] = _Worker(self.id, self.upstream, address, model)
            if len(self._workers) > MAX_WORKERS_REMEMBERED:
                del self._workers[next(iter(self._workers))]
        return worker

    def _give_up(self, worker: _Worker, error: APIError) -> None:
        log.warning("%s Asking the controller for another worker.", error.message)
        self._workers.pop((worker.address, worker.model), None)


class _Worker:
    """One worker at an address, and what it said of its model."""

    def __init__(self, provider: str, upstream: Upstream, address: str, model: str) -> None:
        self.address = address
        self.model = model
        self._provider = provider
        self._upstream = upstream
        self._since = time.monotonic()
        self._template: ConversationTemplate | None = None
        self._context_length: int | None = None
        self._knows_context_length = False

    def is_old(self) -> bool:
        """Whether it has to be asked anew: another worker may have taken its address."""
        return time.monotonic() - self._since > WORKER_REFRESH_SECONDS

    async def template(self, request_id: str) -> ConversationTemplate:
        """The template of its model's conversations.

        Raises:
            APIError: 502, its separator style is not known here.
        """
        if self._template is None:
            self._template = await self._ask(
                "/worker_get_conv_template", {}, parse_template, request_id
            )
        return self._template

    async def context_length(self, request_id: str) -> int | None:
        """The tokens that its model holds, if it knows."""
        if not self._knows_context_length:
            self._context_length = await self._ask(
                "/model_details", {}, fastchat.parse_context_length, request_id
            )
            self._knows_context_length = True
        return self._context_length

    async def count_tokens(self, prompt: str, request_id: str) -> int:
        """The tokens of a prompt."""
        parse = partial(fastchat.parse_count, self._provider)
        return await self._ask("/count_token", {"prompt": prompt}, parse, request_id)

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Turn texts into vectors."""
        body = fastchat.render_embedding_request(request)
        async with self._post("/worker_get_embeddings", body, request.request_id) as response:
            parse = partial(fastchat.parse_embeddings, self._provider)
            return await read_object(self._provider, response, parse)

    async def generate(
        self, body: Mapping[str, Any], request_id: str
    ) -> AsyncGenerator[StreamEvent, None]:
        """Continue the prompt in `body`."""
        parser = fastchat.StreamParser(self._provider, body)
        async with (
            self._post("/worker_generate_stream", body, request_id) as response,
            aclosing(read_lines(self._provider, response, parser, NUL)) as events,
        ):
            async for event in events:
                yield event

    async def _ask(
        self,
        path: str,
        body: Mapping[str, Any],
        parse: Callable[[Mapping[str, Any]], Parsed],
        request_id: str,
    ) -> Parsed:
        """What it says of itself or of a prompt, which costs nothing and may be asked twice."""
        async with self._post(path, body, request_id, idempotent=True) as response:
            return await read_object(self._provider, response, parse)

    def _post(
        self, path: str, body: Mapping[str, Any], request_id: str, *, idempotent: bool = False
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        # One worker process may serve several models; those look at the model's name.
        return self._upstream.post(
            path,
            encode({"model": self.model, **body}),
            request_id=request_id,
            base_url=self.address,
            idempotent=idempotent,
        )


def _was_not_sent(error: APIError) -> bool:
    """Whether there was no connection to a worker, so that it has not begun to answer either. What
    it may have read goes to another by the model's policies alone, as an attempt of its own."""
    return isinstance(
        error.__cause__, http1.ConnectError | http1.ConnectTimeout | http1.InvalidURLError
    )


def _unreachable(error: APIError) -> bool:
    """Whether a worker is not there, as opposed to slow, or there and unwilling."""
    return _was_not_sent(error) or isinstance(
        error.__cause__, http1.DisconnectedError | http1.ProtocolError
    )
