"""`local::echo` that takes the time of an engine and caches as one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from llama_compat.errors import APIError
from llama_compat.exchange import Target
from llama_compat.types import (
    ChatCompletionRequest,
    SamplingParams,
    StreamComplete,
    StreamEvent,
    SystemMessage,
    UserMessage,
)
from providers.base import ProviderModel
from providers.local.echo import EchoConfig, EchoProvider
from tests.unit.calls import call_of
from tests.virtual_time import in_virtual_time

FAST = {"step_seconds": 0.0001, "block_tokens": 4}


def provider(**simulate: Any) -> EchoProvider:
    config = EchoConfig.model_validate({"simulate": {**FAST, **simulate}})
    return EchoProvider("echo", config, [ProviderModel("echo")])


async def asked(
    echo: EchoProvider, user: str, system: str = "", salt: str | None = None
) -> list[StreamEvent]:
    messages = (*([SystemMessage(system)] if system else []), UserMessage(user))
    request = ChatCompletionRequest("echo", messages, sampling=SamplingParams(cache_salt=salt))
    return [event async for event in echo.chat_completion(request)]


async def cached(echo: EchoProvider, *args: Any, **named: Any) -> int | None:
    last = (await asked(echo, *args, **named))[-1]
    assert isinstance(last, StreamComplete)
    return last.usage.cached_tokens


async def test_it_says_what_it_says_without_simulation() -> None:
    simulated, plain = provider(), EchoProvider("echo", EchoConfig(), [ProviderModel("echo")])
    for user in ("Hello, big world", "one", " ", "x " * 500):
        said, expected = await asked(simulated, user), await asked(plain, user)
        assert said[:-1] == expected[:-1]


async def test_a_prompt_that_it_had_before_is_cached() -> None:
    echo = provider()
    system = "a b c d e f g h "
    assert await cached(echo, "one two", system) == 0
    assert await cached(echo, "three four", system) == 8
    assert await cached(echo, "three four", system, "salt") == 0
    assert await cached(echo, "three four", system, "salt") == 8


@in_virtual_time
async def test_it_takes_the_time_of_an_engine() -> None:
    echo = provider(step_seconds=0.01, step_seconds_per_sequence=0, prefill_tokens_per_second=100)
    await asked(echo, "one two three four")
    assert asyncio.get_running_loop().time() == pytest.approx(0.04 + 4 * 0.01)


async def test_a_client_that_leaves_frees_the_engine() -> None:
    echo = provider(step_seconds=0.001, max_sequences=1)
    request = ChatCompletionRequest("echo", (UserMessage("word " * 2_000),))
    events = echo.chat_completion(request)
    await anext(events)
    waits = asyncio.create_task(asked(echo, "one"))
    await asyncio.sleep(0.01)
    assert echo.stats() == {"running": 1, "waiting": 1}
    await events.aclose()
    await asyncio.wait_for(waits, 5)
    assert echo.stats() == {"running": 0, "waiting": 0}
    await echo.stop()


async def test_what_its_cache_does_not_hold_is_refused() -> None:
    echo = provider(kv_blocks=2)
    assert echo.context_length("echo") == 8
    with pytest.raises(APIError) as caught:
        await asked(echo, "a b c d e")
    assert caught.value.code == "context_length_exceeded"


async def test_a_demanded_call_comes_in_its_time_too() -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    body = {
        "messages": [{"role": "user", "content": "say it"}],
        "tools": [{"type": "function", "function": {"name": "say", "parameters": schema}}],
        "tool_choice": "required",
    }
    reply = await provider().openai_chat_completion(call_of(body), Target("echo"))
    assert b'"tool_calls"' in bytes(reply.body)  # type: ignore[arg-type]
