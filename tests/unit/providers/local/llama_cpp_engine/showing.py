"""Models of llama.cpp that are shown media, and what they and llama.cpp itself say to these."""

from __future__ import annotations

import base64
import ctypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.types import (
    AudioContent,
    ChatCompletionRequest,
    ChatCompletionResponse,
    ContentPart,
    GreedySamplingStrategy,
    ImageContent,
    SamplingParams,
    TextContent,
    UserMessage,
)
from providers.base import ProviderModel
from providers.local.llama_cpp_engine.bindings.context import Context
from providers.local.llama_cpp_engine.bindings.model import Model
from providers.local.llama_cpp_engine.bindings.sampler import LlamaSampler
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.media.mtmd import library
from providers.local.llama_cpp_engine.provider import LlamaCppProvider
from providers.local.media.audio import audio_file

REPLY = 12
Turn = str | tuple[int, int, int] | bytes
"""Of a message: a text, a picture's width, height and seed, or a file of audio."""


def pixels(width: int, height: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)


def encoded(image: Any, kind: str = "PNG", **options: Any) -> ImageContent:
    file = BytesIO()
    image.save(file, kind, **options)
    data = base64.b64encode(file.getvalue()).decode()
    return ImageContent(f"data:image/{kind.lower()};base64,{data}")


def message(*turns: Turn) -> UserMessage:
    return UserMessage(tuple(map(_part, turns)))


def _part(turn: Turn) -> ContentPart:
    match turn:
        case str():
            return TextContent(turn)
        case bytes():
            return AudioContent("audio/wav", base64.b64encode(turn).decode())
    return encoded(Image.fromarray(pixels(*turn)))


@asynccontextmanager
async def running(path: Path, **config: Any) -> AsyncIterator[LlamaCppProvider]:
    settings = LlamaCppConfig(**{"threads": 1, "kv_cache": 8_000_000, **config})
    provider = LlamaCppProvider("local", settings, [ProviderModel(str(path))])
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


async def say(provider: LlamaCppProvider, *turns: Turn, **options: Any) -> tuple[int, ...]:
    """The tokens of a reply."""
    return await ask(provider, message(*turns), **options)


async def ask(
    provider: LlamaCppProvider, *messages: UserMessage, tokens: int = REPLY
) -> tuple[int, ...]:
    return (await reply_to(provider, *messages, tokens=tokens)).token_ids or ()


async def reply_to(
    provider: LlamaCppProvider, *messages: UserMessage, tokens: int, logprobs: int | None = None
) -> ChatCompletionResponse:
    [model] = provider.engines
    sampling = SamplingParams(GreedySamplingStrategy(), max_tokens=tokens, ignore_eos=True)
    request = ChatCompletionRequest(
        model, messages, sampling, return_token_ids=True, logprobs=logprobs
    )
    collector = Collector()
    async for event in provider.chat_completion(request):
        collector.add(event)
    return collector.chat_completion()


def llama_cpp_says(path: Path, *turns: Turn) -> tuple[int, ...]:
    """The same by llama.cpp's own helper, of one request by itself."""
    mtmd, model = library(), Model(path)
    params = mtmd.mtmd_context_params_default()
    params.use_gpu, params.n_threads, params.print_timings = False, 1, False
    seeing = mtmd.mtmd_init_from_file(
        str(path.with_name("mmproj.gguf")).encode(), model.pointer, params
    )
    context = Context(model, tokens=2048, sequences=1, batch_tokens=512, outputs=512, threads=1)
    media = [turn for turn in turns if not isinstance(turn, str)]
    said = "".join(turn if isinstance(turn, str) else "<__media__>" for turn in turns)
    prompt = f"<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n".encode()
    bitmaps = (ctypes.c_void_p * len(media))()
    for at, turn in enumerate(media):
        if isinstance(turn, bytes):
            samples = audio_file(turn, "").unpacked(16_000)
            numbers = (ctypes.c_float * len(samples))(*samples)
            bitmaps[at] = mtmd.mtmd_bitmap_init_from_audio(len(samples), numbers)
            continue
        width, height, seed = turn
        data = (ctypes.c_uint8 * (width * height * 3))(*pixels(width, height, seed).tobytes())
        bitmaps[at] = mtmd.mtmd_bitmap_init(width, height, data)
    chunks = mtmd.mtmd_input_chunks_init()
    text = mtmd.mtmd_input_text(prompt, len(prompt), False, True)
    assert mtmd.mtmd_tokenize(seeing, chunks, ctypes.byref(text), bitmaps, len(media)) == 0
    position = ctypes.c_int32(0)
    evaluated = mtmd.mtmd_helper_eval_chunks(
        seeing, context._context, chunks, 0, 0, 512, True, ctypes.byref(position)
    )
    assert evaluated == 0
    sampler, found = LlamaSampler(model.vocab_size), []
    sampler.add_greedy()
    for at in range(REPLY):
        found.append(sampler.sample(context, -1))
        context.tokens[0], context.positions[0] = found[-1], position.value + at
        context.wants_logits[0] = 1
        assert context.decode(1) == 0
    return tuple(found)


async def refused(provider: LlamaCppProvider, *parts: Any) -> APIError:
    with pytest.raises(APIError) as caught:
        await ask(provider, UserMessage(parts))
    assert caught.value.status == 400
    # Nothing is lost by it.
    assert len(await say(provider, "Hello", tokens=2)) == 2
    return caught.value
