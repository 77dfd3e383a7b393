"""`local::torch` on CUDA: its provider, and a whole server; the same on the CPU.

The model is a small random one that is made here, so nothing is downloaded.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    GreedySamplingStrategy,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamProgress,
    StreamStart,
    TextDelta,
    TopPSamplingStrategy,
    UserMessage,
)
from providers.base import ProviderModel
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.integration.server_process import ServerProcess, running, write_template
from tests.tiny_models import make_model

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs the extra 'torch'"
)

LONG_PROMPT = "one two three " * 250


@pytest.fixture(
    scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)], ids=str
)
def device(request: pytest.FixtureRequest) -> str:
    import torch

    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip(f"needs a CUDA GPU; torch {torch.__version__} sees none on this machine")
    return str(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=4096)


async def text_of(
    provider: TorchProvider, request: CompletionRequest | ChatCompletionRequest
) -> tuple[str, StreamComplete]:
    """What the model says, and the last event."""
    if isinstance(request, CompletionRequest):
        events = provider.completion(request)
    else:
        events = provider.chat_completion(request)
    text, last = "", None
    async for event in events:
        last = event
        if isinstance(event, StreamProgress):
            assert isinstance(event.delta, TextDelta)
            text += event.delta.text
    assert isinstance(last, StreamComplete)
    return text, last


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
async def test_the_provider(device: str, folder: Path, dtype: str) -> None:
    import torch

    from providers.local.torch_engine.engine import TorchEngine

    # In half precision a GPU rounds otherwise in another batch, which may decide between tokens.
    repeats = device == "cpu" or dtype == "float32"
    name = str(folder)
    config = TorchConfig.model_validate({"device": device, "dtype": dtype})
    provider = TorchProvider("local", config, [ProviderModel(name)])
    await provider.start()
    try:
        engine = provider.engines[name]
        assert isinstance(engine, TorchEngine)
        assert engine.loaded.device.type == device
        assert engine.loaded.dtype == getattr(torch, dtype)
        no_end = dict.fromkeys(engine.model.stop_tokens, -100.0)

        greedy = SamplingParams(GreedySamplingStrategy(), max_tokens=20, logit_bias=no_end)
        # A prompt of several chunks, and one of few tokens.
        for prompt in (LONG_PROMPT, "The quick brown fox"):
            once, again = [
                await text_of(provider, CompletionRequest(name, prompt, greedy, logprobs=2))
                for _ in range(2)
            ]
            # The second time the prompt's blocks are there already.
            assert again[1].usage.cached_tokens or len(prompt) < 100
            assert once[0] == again[0] or not repeats
            assert once[1].stop_reason == StopReason.out_of_tokens
            assert once[1].usage.completion_tokens == 20

        sampling = SamplingParams(
            TopPSamplingStrategy(1.5, 0.9),
            max_tokens=20,
            seed=7,
            frequency_penalty=0.5,
            repetition_penalty=1.1,
            logit_bias=no_end,
        )
        chat = ChatCompletionRequest(name, (UserMessage("Hello"),), sampling)
        alone = await text_of(provider, chat)
        beside_others = await asyncio.gather(*(text_of(provider, chat) for _ in range(3)))
        assert {last.usage.completion_tokens for _, last in beside_others} == {20}
        assert [text for text, _ in beside_others] == [alone[0]] * 3 or not repeats

        endless = SamplingParams(max_tokens=4000, logit_bias=no_end)
        events = provider.completion(CompletionRequest(name, "a", endless))
        assert isinstance(await anext(events), StreamStart)
        await events.aclose()
        async with asyncio.timeout(60):
            while engine.stats.running:  # noqa: ASYNC110 (the engine tells nobody)
                await asyncio.sleep(0.01)
        assert engine.stats.generated_tokens < 4000
    finally:
        await provider.stop()


@pytest.fixture(scope="module")
def torch_server(
    device: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    template = write_template(
        tmp_path_factory.mktemp("templates") / "tiny.yaml",
        providers=[
            {
                "id": "local",
                "type": "local::torch",
                # What is computed once more, and not found, is rounded the same.
                "config": {"device": device, "dtype": "bfloat16", "prefix_cache": False},
            }
        ],
        models=[{"id": "tiny", "provider": "local", "provider_model": str(folder)}],
    )
    with running(template) as server:
        yield server


def test_a_chat_through_the_whole_server(torch_server: ServerProcess) -> None:
    with openai.OpenAI(base_url=torch_server.base_url, api_key="none", max_retries=0) as client:
        settings = {"model": "tiny", "max_tokens": 16, "temperature": 0}
        messages = [{"role": "user", "content": "Hello"}]
        whole = client.chat.completions.create(messages=messages, **settings)  # type: ignore[call-overload]
        chunks = list(
            client.chat.completions.create(  # type: ignore[call-overload]
                messages=messages,
                stream=True,
                stream_options={"include_usage": True},
                **settings,
            )
        )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    [choice] = whole.choices
    assert choice.message.content == text
    assert choice.finish_reason in ("length", "stop")
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert whole.usage.completion_tokens <= 16
