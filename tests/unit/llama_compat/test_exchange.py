"""A call can be made again, to the same provider or another, and asks the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from llama_compat.dialects.openai.operations import CHAT
from llama_compat.exchange import Target
from providers.answer import answer
from providers.local.echo import EchoConfig, EchoProvider
from providers.remote.openai.requests import vendor_fields
from providers.remote.openai.vendors import VENDORS
from tests.unit.calls import call_of

BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hello there"}],
    "seed": 7,
    "frequency_penalty": 1,
    "max_completion_tokens": 9,
    "n": 2,
}


def test_nobody_writes_to_a_call() -> None:
    call = call_of(BODY)
    with pytest.raises(AttributeError, match="immutable"):
        call.model = "other"  # type: ignore[misc]


@pytest.mark.parametrize("provider", ["remote::mistral", "remote::openai"])
def test_a_second_attempt_sends_the_same_bytes(provider: str) -> None:
    call = call_of(BODY)
    before = dict(call.fields)
    vendor = VENDORS[provider]
    sent = [vendor_fields(call, Target("t"), vendor, "p", unsupported="drop") for _ in range(2)]
    assert sent[0] == sent[1]
    assert call.fields == before


def test_dropping_for_one_provider_leaves_it_whole_for_the_next() -> None:
    call = call_of(BODY, CHAT)
    before = dict(call.fields)
    dropping = EchoProvider("one", EchoConfig(unsupported="drop"), [])

    async def ask() -> list[tuple[str, ...]]:
        return [(await answer(dropping, call, Target("echo"))).dropped for _ in range(2)]

    assert asyncio.run(ask()) == [("frequency_penalty",)] * 2
    assert call.fields == before
