"""OpenAI's calls for providers whose own side does not speak OpenAI.

A provider that answers in the vocabulary (`completion`, `chat_completion`) inherits these, and so
gets `openai_completion` and `openai_chat_completion`: the request is parsed, every prompt and every
one of `n` choices becomes a stream of events of its own, all of them run at the same time, and what
comes is rendered as one reply or one stream.

A provider that only chats gets `completion` from `ChatOnlyMixin`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import msgspec
from msgspec import structs

from llama_compat.dialects.openai import chat as openai_chat
from llama_compat.dialects.openai import completions as openai_completions
from llama_compat.dialects.openai.parameters import parameters_set
from llama_compat.errors import invalid_parameter, unsupported_parameter
from llama_compat.events import Collector, add_usage
from llama_compat.exchange import OpenAIReply, OpenAIRequest
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    ToolCallDelta,
    Usage,
    UserMessage,
)
from llama_compat.wire import sse
from llama_compat.wire.json_fields import unicode_from_raw

Events = AsyncGenerator[StreamEvent, None]
Renderer = openai_chat.StreamRenderer | openai_completions.StreamRenderer


class Settings(Protocol):
    """What the mixins need of a provider's settings."""

    @property
    def unsupported(self) -> str: ...


class VocabularyProvider(Protocol):
    """What the mixins need of the provider that they are mixed into."""

    id: str

    @property
    def config(self) -> Settings: ...

    @property
    def parameters(self) -> frozenset[str]: ...

    def unsupported_values(self, body: Mapping[str, Any]) -> Mapping[str, str]: ...

    def completion(self, request: CompletionRequest) -> Events: ...

    def chat_completion(self, request: ChatCompletionRequest) -> Events: ...


class OpenAICompletionUnsupportedMixin:
    """`openai_completion` for a provider whose side has no OpenAI completions."""

    async def openai_completion(self: VocabularyProvider, request: OpenAIRequest) -> OpenAIReply:
        """Answer `POST /completions` from `completion`.

        Raises:
            APIError: 400 for what the provider can't honour, or what it raised itself.
        """
        body = _honoured_body(self, request)
        call = openai_completions.parse_request(body, request.provider_model)
        streams = [
            self.completion(structs.replace(single, request_id=request.request_id))
            for single in call.requests()
        ]
        labels = _labels("cmpl", request)
        if call.stream:
            renderer = openai_completions.StreamRenderer(**labels, include_usage=call.include_usage)
            return await _stream_reply(streams, renderer, call.n)
        collectors, usage = await _collect(streams, call.n)
        responses = [collector.completion() for collector in collectors]
        return _json_reply(openai_completions.render_reply(responses, usage, **labels))


class OpenAIChatCompletionUnsupportedMixin:
    """`openai_chat_completion` for a provider whose side has no OpenAI chat completions."""

    async def openai_chat_completion(
        self: VocabularyProvider, request: OpenAIRequest
    ) -> OpenAIReply:
        """Answer `POST /chat/completions` from `chat_completion`.

        Raises:
            APIError: 400 for what the provider can't honour, or what it raised itself.
        """
        body = _honoured_body(self, request)
        call = openai_chat.parse_request(body, request.provider_model)
        streams = [
            self.chat_completion(structs.replace(single, request_id=request.request_id))
            for single in call.requests()
        ]
        if body.get("parallel_tool_calls") is False:
            streams = [_first_call_only(stream) for stream in streams]
        labels = _labels("chatcmpl", request)
        if call.stream:
            renderer = openai_chat.StreamRenderer(**labels, include_usage=call.include_usage)
            return await _stream_reply(streams, renderer, call.n)
        collectors, usage = await _collect(streams, call.n)
        responses = [collector.chat_completion() for collector in collectors]
        return _json_reply(openai_chat.render_reply(responses, usage, **labels))


class ChatOnlyMixin:
    """`completion` for a provider that only chats: the prompt is what the user says.

    The model answers the prompt rather than continuing it. What only a continuation has is refused:
    a prompt of token ids here, `echo`, `suffix` and `best_of` by the provider's `parameters`.
    """

    async def completion(self: VocabularyProvider, request: CompletionRequest) -> Events:
        """Answer the text prompt of `request`.

        Raises:
            APIError: 400 for a prompt of token ids, or what `chat_completion` raised.
        """
        if not isinstance(request.prompt, str):
            raise invalid_parameter(
                "prompt",
                f"Provider '{self.id}' has a chat API only and takes no token ids: send the prompt"
                " as text.",
            )
        chat = ChatCompletionRequest(
            model=request.model,
            messages=(UserMessage(request.prompt),),
            sampling=request.sampling,
            logprobs=request.logprobs,
            stream=request.stream,
            request_id=request.request_id,
        )
        async with aclosing(self.chat_completion(chat)) as events:
            async for event in events:
                yield event


def _honoured_body(provider: VocabularyProvider, request: OpenAIRequest) -> dict[str, Any]:
    """The request's JSON without what the provider can't honour, which is refused or dropped."""
    body = {name: unicode_from_raw(raw) for name, raw in request.fields.items()}
    body["model"] = request.provider_model
    refused = provider.unsupported_values(body)
    for name in parameters_set(body):
        if name in provider.parameters and name not in refused:
            continue
        if provider.config.unsupported != "drop":
            raise unsupported_parameter(name, provider.id, refused.get(name, ""))
        request.dropped.append(name)
        body.pop(name, None)
    return body


def _labels(prefix: str, request: OpenAIRequest) -> dict[str, Any]:
    return {
        "reply_id": f"{prefix}-{os.urandom(12).hex()}",
        "model": request.model,
        "created": int(time.time()),
    }


def _json_reply(value: dict[str, Any]) -> OpenAIReply:
    return OpenAIReply(msgspec.json.encode(value), headers={"content-type": "application/json"})


async def _first_call_only(events: Events) -> Events:
    """`events` without the tool calls after the first.

    Not every vendor can be told to make no more than one; a model that still wants the others asks
    again when it has seen what the first gave.
    """
    async with aclosing(events) as stream:
        async for event in stream:
            delta = event.delta if isinstance(event, StreamProgress) else None
            if not isinstance(delta, ToolCallDelta) or delta.index == 0:
                yield event


async def _collect(
    streams: Sequence[Events], choices_per_prompt: int
) -> tuple[list[Collector], Usage]:
    """What each of `streams` says, and what all of it cost."""
    collectors = [Collector() for _ in streams]
    async with aclosing(_interleave(streams)) as events:
        async for choice, event in events:
            collectors[choice].add(event)
    return collectors, add_usage([each.usage for each in collectors], choices_per_prompt)


async def _stream_reply(
    streams: Sequence[Events], renderer: Renderer, choices_per_prompt: int
) -> OpenAIReply:
    body = _render(streams, renderer, choices_per_prompt)
    return OpenAIReply(body, first=await anext(body))


async def _render(
    streams: Sequence[Events], renderer: Renderer, choices_per_prompt: int
) -> AsyncGenerator[bytes, None]:
    completed: dict[int, StreamComplete] = {}
    async with aclosing(_interleave(streams)) as events:
        async for choice, event in events:
            if isinstance(event, StreamComplete):
                completed[choice] = event
            for chunk in renderer.render(choice, event):
                yield sse.encode_data(msgspec.json.encode(chunk))
    usages = [completed[choice].usage for choice in sorted(completed)]
    for chunk in renderer.finish(add_usage(usages, choices_per_prompt)):
        yield sse.encode_data(msgspec.json.encode(chunk))


async def _interleave(
    streams: Sequence[Events],
) -> AsyncGenerator[tuple[int, StreamEvent], None]:
    """The events of all `streams` as they come, each with its stream's number.

    The streams run at the same time. The first exception ends them all and is raised here; closing
    this generator closes them.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as stream:
            async for event in stream:
                yield 0, event
        return

    # One place a stream: a slow reader holds the streams back instead of filling the memory.
    queue: asyncio.Queue[tuple[int, StreamEvent] | BaseException | None] = asyncio.Queue(
        maxsize=len(streams)
    )

    async def pump(number: int, stream: Events) -> None:
        async with aclosing(stream):
            async for event in stream:
                await queue.put((number, event))

    async def run_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for number, stream in enumerate(streams):
                    group.create_task(pump(number, stream))
        except BaseExceptionGroup as failed:
            await queue.put(_first_exception(failed))
        else:
            await queue.put(None)

    runner = asyncio.create_task(run_all())
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)


def _first_exception(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_exception(first) if isinstance(first, BaseExceptionGroup) else first
