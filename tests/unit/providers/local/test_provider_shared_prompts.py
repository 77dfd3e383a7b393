"""Each client is answered to its own prompt, whatever lies where another's has been."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")

from llama_compat.events import Collector
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    GreedySamplingStrategy,
    SamplingParams,
    UserMessage,
)
from providers.base import ProviderModel
from providers.local import provider as local
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.provider import LlamaCppProvider
from providers.local.provider import LocalProvider
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_ggufs import gguf_of
from tests.tiny_models import make_model

SAMPLING = SamplingParams(GreedySamplingStrategy(), max_tokens=1)

PLACES = 1000
"""So many prompts of the newcomer are made at most, to have one where the other's was: that is the
first of them, or none of 100,000."""

ROUNDS = 20


class Text(str):
    """A text that tells when it is gone; to the process that renders templates it is any text.

    That would import this module otherwise, and with it all that the module imports.
    """

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str.__str__(self),)


Request = ChatCompletionRequest | CompletionRequest


def chat(model: str, text: str) -> ChatCompletionRequest:
    return ChatCompletionRequest(model, (UserMessage(text),), SAMPLING)


def completion(model: str, text: str) -> CompletionRequest:
    return CompletionRequest(model, Text(text), SAMPLING)


def shared_of(request: Request) -> object:
    """What the choices of one prompt have in common."""
    if isinstance(request, ChatCompletionRequest):
        return request.messages
    return request.prompt


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(params=["torch", "llama_cpp"])
async def provider(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[LocalProvider]:
    one: LocalProvider
    if request.param == "torch":
        config = TorchConfig(device="cpu", dtype="float32")
        one = TorchProvider("local", config, [ProviderModel(str(folder))])
    else:
        pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
        gguf = gguf_of(folder, folder.with_suffix(".gguf"))
        one = LlamaCppProvider("local", LlamaCppConfig(threads=1), [ProviderModel(str(gguf))])
    await one.start()
    yield one
    await one.stop()


async def prompt_tokens(provider: LocalProvider, request: Request) -> int:
    collector = Collector()
    if isinstance(request, ChatCompletionRequest):
        events = provider.chat_completion(request)
    else:
        events = provider.completion(request)
    async for event in events:
        collector.add(event)
    assert collector.usage is not None
    return collector.usage.prompt_tokens


@pytest.mark.parametrize(("make", "function"), [(chat, "chat_prompt"), (completion, "text_prompt")])
async def test_a_newcomer_is_not_answered_to_the_prompt_of_one_who_left(
    provider: LocalProvider,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[str, str], Request],
    function: str,
) -> None:
    [model] = provider.engines
    making, may_end = threading.Event(), threading.Event()
    real = getattr(local, function)

    def slowly(*arguments: Any) -> Any:
        making.set()
        may_end.wait(30)
        return real(*arguments)

    own = await prompt_tokens(provider, make(model, "Hi"))
    monkeypatch.setattr(local, function, slowly)
    # What all tests before have made is not looked through in each round.
    gc.freeze()
    at_its_place = False

    async def come(place: int) -> int:
        nonlocal at_its_place
        others: list[object] = []
        while len(others) < PLACES:
            request = make(model, "Hi")
            at_its_place = id(shared_of(request)) == place
            if at_its_place:
                break
            others.append(request)
        return await prompt_tokens(provider, request)

    for _ in range(ROUNDS):
        making.clear()
        may_end.clear()
        text = Text("The quick brown fox jumps over the lazy dog. " * 3)
        request = make(model, text)
        text = text if isinstance(request, ChatCompletionRequest) else request.prompt
        gone, place = weakref.ref(text), id(shared_of(request))
        leaver = asyncio.create_task(prompt_tokens(provider, request))
        del text, request
        await asyncio.to_thread(making.wait)
        leaver.cancel()
        await asyncio.wait([leaver])
        del leaver
        gc.collect()
        newcomer = asyncio.create_task(come(place))
        may_end.set()
        # Nothing else runs in the loop until the prompt has been made, and is gone.
        deadline = time.monotonic() + 30
        while gone() is not None:
            assert time.monotonic() < deadline
            time.sleep(0.001)  # noqa: ASYNC251
        assert await newcomer == own
        if at_its_place:
            return
    pytest.skip("no newcomer's prompt lay where the leaver's had been: it is for the memory to say")
