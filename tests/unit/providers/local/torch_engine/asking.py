"""Models of the torch engine that are asked in a conversation, and what they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from llama_compat.errors import APIError
from llama_compat.types import (
    ChatCompletionRequest,
    GreedySamplingStrategy,
    Message,
    SamplingParams,
    StreamComplete,
    StreamProgress,
    StreamStart,
)
from providers.base import ProviderModel
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.provider import TorchProvider

TOKENS = 12


class Answer(NamedTuple):
    prompt_ids: tuple[int, ...]
    token_ids: list[int]
    cached_tokens: int


async def started(folder: Path, **config: Any) -> TorchProvider:
    settings = {"device": "cpu", "dtype": "float32", "kv_cache": 4e6, "max_step_tokens": 40}
    provider = TorchProvider(
        "local", TorchConfig(**{**settings, **config}), [ProviderModel(str(folder))]
    )
    await provider.start()
    return provider


def request_of(provider: TorchProvider, *messages: Message, **more: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest(
        model=provider.models[0].name,
        messages=messages,
        sampling=SamplingParams(
            strategy=GreedySamplingStrategy(), max_tokens=TOKENS, ignore_eos=True
        ),
        return_token_ids=True,
        **more,
    )


async def answer(provider: TorchProvider, *messages: Message) -> Answer:
    events = [each async for each in provider.chat_completion(request_of(provider, *messages))]
    start, *progress, complete = events
    assert isinstance(start, StreamStart)
    assert isinstance(complete, StreamComplete)
    token_ids = [
        token
        for each in progress
        if isinstance(each, StreamProgress)
        for token in each.token_ids or ()
    ]
    assert complete.usage.prompt_tokens == start.prompt_tokens == len(start.token_ids or ())
    return Answer(start.token_ids or (), token_ids, complete.usage.cached_tokens or 0)


def engine_of(provider: TorchProvider) -> TorchEngine:
    [engine] = provider.engines.values()
    assert isinstance(engine, TorchEngine)
    return engine


async def refused(provider: TorchProvider, *messages: Message, **more: Any) -> APIError:
    with pytest.raises(APIError) as raised:
        async for _ in provider.chat_completion(request_of(provider, *messages, **more)):
            pass
    return raised.value
