"""`local::torch` on a small random model: requests in, events out."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import importlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from pydantic import ValidationError

from llama_compat.errors import APIError
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    CompletionRequest,
    GreedySamplingStrategy,
    ImageContent,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    SystemMessage,
    TextContent,
    TokenLogProbs,
    ToolCall,
    ToolResponseMessage,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
    UserMessage,
)
from providers.base import ProviderModel, ProviderStartError
from providers.local.prompts.prompts import render_messages
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_model

PROMPT = "The quick brown fox"
LONG_PROMPT = "one two three " * 30
GREEDY = GreedySamplingStrategy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
async def provider(folder: str) -> AsyncIterator[TorchProvider]:
    provider = await started(folder)
    yield provider
    await provider.stop()


@pytest.fixture
def engine(provider: TorchProvider) -> TorchEngine:
    return engine_of(provider)


def engine_of(provider: TorchProvider) -> TorchEngine:
    [engine] = provider.engines.values()
    assert isinstance(engine, TorchEngine)
    return engine


def ids_of(engine: TorchEngine, text: str) -> list[int]:
    return list(engine.model.tokenizer.encode(text, add_special_tokens=True))


async def started(folder: str | Path, **config: Any) -> TorchProvider:
    # What is compared with transformers has to be as exact.
    config = {"device": "cpu", "dtype": "float32", **config}
    provider = TorchProvider("local", TorchConfig(**config), [ProviderModel(str(folder))])
    await provider.start()
    return provider


class Result:
    """The events of one generation."""

    def __init__(self, events: list[StreamEvent]) -> None:
        assert isinstance(events[0], StreamStart)
        assert isinstance(events[-1], StreamComplete)
        self.start, self.complete = events[0], events[-1]
        self.progress = [event for event in events[1:-1] if isinstance(event, StreamProgress)]
        assert len(self.progress) == len(events) - 2

    @property
    def text(self) -> str:
        return "".join(event.delta.text for event in self.progress)  # type: ignore[union-attr]

    @property
    def logprobs(self) -> list[TokenLogProbs]:
        return [token for event in self.progress for token in event.logprobs or ()]


async def collect(events: AsyncGenerator[StreamEvent, None]) -> Result:
    return Result([event async for event in events])


async def complete(
    provider: TorchProvider,
    prompt: str | tuple[int, ...] = PROMPT,
    *,
    logprobs: int | None = None,
    echo: bool = False,
    **sampling: Any,
) -> Result:
    params = SamplingParams(**{"strategy": GREEDY, "max_tokens": 12, **sampling})
    [model] = provider.engines
    request = CompletionRequest(model, prompt, params, logprobs=logprobs, echo=echo)
    return await collect(provider.completion(request))


async def chat(provider: TorchProvider, *messages: Any, **sampling: Any) -> Result:
    params = SamplingParams(**{"strategy": GREEDY, "max_tokens": 12, **sampling})
    [model] = provider.engines
    request = ChatCompletionRequest(model, messages or (UserMessage("Hello"),), params)
    return await collect(provider.chat_completion(request))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (the engine's figures tell nobody of a change)
            await asyncio.sleep(0.001)


def generated_by_transformers(engine: TorchEngine, prompt: str, tokens: int) -> list[int]:
    """What transformers' own `generate` makes of it, greedily."""
    ids = torch.tensor([ids_of(engine, prompt)])
    output = reference(engine).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False
    )
    made: list[int] = output[0, ids.shape[1] :].tolist()
    return made


def reference(engine: TorchEngine) -> Any:
    """The model as transformers runs it; its name is its folder."""
    return transformers.AutoModelForCausalLM.from_pretrained(engine.model.name).eval()


# The text -----------------------------------------------------------------------------------------


# More tokens than the cache has room for at first, and a prompt of several chunks.
@pytest.mark.parametrize(("prompt", "tokens"), [(PROMPT, 280), (LONG_PROMPT, 60)])
async def test_greedy_text_is_that_of_transformers(
    provider: TorchProvider, engine: TorchEngine, prompt: str, tokens: int
) -> None:
    expected = generated_by_transformers(engine, prompt, tokens)
    result = await complete(provider, prompt, max_tokens=tokens)
    ended = expected[-1] in engine.model.stop_tokens
    assert result.text == engine.model.vocabulary.decode(expected)
    assert result.complete.usage.completion_tokens == len(expected)
    assert result.complete.stop_reason == (
        StopReason.end_of_turn if ended else StopReason.out_of_tokens
    )


async def test_a_model_with_a_sliding_window(tmp_path: Path) -> None:
    make_model(tmp_path)
    torch.manual_seed(1)
    settings = transformers.AutoConfig.from_pretrained(tmp_path).to_dict()
    settings = {name: value for name, value in settings.items() if name != "model_type"}
    config = transformers.MistralConfig(**settings | {"sliding_window": 24})
    transformers.MistralForCausalLM(config).save_pretrained(tmp_path)
    provider = await started(tmp_path)
    engine = engine_of(provider)
    expected = generated_by_transformers(engine, LONG_PROMPT, 40)
    result = await complete(provider, LONG_PROMPT, max_tokens=40)
    assert result.text == engine.model.vocabulary.decode(expected)
    await provider.stop()


async def test_a_prompt_of_token_ids(provider: TorchProvider, engine: TorchEngine) -> None:
    ids = tuple(ids_of(engine, PROMPT))
    assert (await complete(provider, ids)).text == (await complete(provider)).text


async def test_usage_counts_the_tokenizers_tokens(
    provider: TorchProvider, engine: TorchEngine
) -> None:
    result = await complete(provider, max_tokens=7, logit_bias=no_end(engine))
    prompt_tokens = len(ids_of(engine, PROMPT))
    assert result.start.prompt_tokens == prompt_tokens
    assert result.complete.usage.prompt_tokens == prompt_tokens
    assert result.complete.usage.completion_tokens == 7
    assert result.complete.stop_reason == StopReason.out_of_tokens


def no_end(engine: TorchEngine) -> dict[int, float]:
    """A bias with which no end token is ever sampled."""
    return dict.fromkeys(engine.model.stop_tokens, -1e4)


async def test_an_end_token_ends_the_reply_and_is_counted(
    provider: TorchProvider, engine: TorchEngine
) -> None:
    end = engine.model.vocabulary.id_of("<|im_end|>")
    result = await complete(provider, logit_bias={end: 1e4}, logprobs=0)
    assert (result.text, result.logprobs) == ("", [])
    assert result.progress[0].logprobs == ()
    assert result.complete.stop_reason == StopReason.end_of_turn
    assert result.complete.usage.completion_tokens == 1


async def test_stop_strings_span_tokens_and_never_show(
    provider: TorchProvider, engine: TorchEngine
) -> None:
    words = {ids_of(engine, word)[0]: 1e3 for word in ("The", "fox", "dog")}
    settings: dict[str, Any] = {"max_tokens": 40, "logprobs": 0, "logit_bias": words}
    whole = await complete(provider, **settings)
    first, second, third = (token.chosen.token for token in whole.logprobs[5:8])
    stop = first[-1] + second + third[:2]
    cut = await complete(provider, **settings, stop=("nowhere", stop))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.complete.stop_reason == StopReason.end_of_turn
    assert cut.complete.usage.completion_tokens <= 8
    # The tokens shown are those that the text came from, the last one perhaps cut.
    shown = [token.chosen.token for token in cut.logprobs]
    assert cut.text.startswith("".join(shown[:-1]))
    assert "".join(shown).startswith(cut.text)


# Sampling -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy",
    [
        TopPSamplingStrategy(1.0, 1.0),
        TopPSamplingStrategy(0.8, 0.5),
        TopKSamplingStrategy(5, 1.0, 0.9),
        TopPSamplingStrategy(1e-30, 1.0),
    ],
)
async def test_a_seed_repeats_whatever_else_runs(provider: TorchProvider, strategy: Any) -> None:
    alone = await complete(provider, strategy=strategy, seed=-5)
    others = [complete(provider, strategy=strategy, seed=seed) for seed in (1, 2)]
    again, *_ = await asyncio.gather(
        complete(provider, strategy=strategy, seed=-5), *others, complete(provider)
    )
    assert again.text == alone.text


async def test_seeds_differ(provider: TorchProvider) -> None:
    strategy = TopPSamplingStrategy(2.0, 1.0)
    texts = {(await complete(provider, strategy=strategy, seed=seed)).text for seed in range(8)}
    assert len(texts) > 4


@pytest.mark.parametrize(
    "strategy", [TopKSamplingStrategy(1, 2.0), TopPSamplingStrategy(2.0, 1e-9)]
)
async def test_only_the_likeliest_left_is_greedy(provider: TorchProvider, strategy: Any) -> None:
    assert (await complete(provider, strategy=strategy)).text == (await complete(provider)).text


async def test_penalties_forbid_repetition(provider: TorchProvider, engine: TorchEngine) -> None:
    biased = {**no_end(engine), ids_of(engine, "a")[0]: 50.0}
    repeated = await complete(provider, logit_bias=biased)
    assert repeated.text == "a" * 12
    for penalty in ("frequency_penalty", "presence_penalty"):
        varied = await complete(provider, logit_bias=biased, **{penalty: 100.0})
        assert varied.text.startswith("a")
        assert varied.text != repeated.text
    unseen = await complete(provider, repetition_penalty=100.0, logit_bias=no_end(engine))
    ids = ids_of(engine, PROMPT)
    assert not set(ids_of(engine, unseen.text)[:1]) & set(ids)


# Log probabilities and echo -----------------------------------------------------------------------


async def test_logprobs_are_the_models_own(provider: TorchProvider, engine: TorchEngine) -> None:
    result = await complete(provider, logprobs=3, max_tokens=8, logit_bias=no_end(engine))
    assert len(result.logprobs) == 8
    assert (
        b"".join(t.chosen.token_bytes for t in result.logprobs).decode(errors="replace")
        == result.text
    )
    ids = ids_of(engine, PROMPT)
    with torch.inference_mode():
        expected = reference(engine)(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    first = result.logprobs[0]
    best = expected.topk(3)
    assert [token.logprob for token in first.top] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert first.top[0].logprob == max(token.logprob or 0 for token in first.top)


async def test_echo_begins_with_the_prompt_and_scores_it(
    provider: TorchProvider, engine: TorchEngine
) -> None:
    plain = await complete(provider, LONG_PROMPT, logit_bias=no_end(engine))
    result = await complete(provider, LONG_PROMPT, echo=True, logprobs=2, logit_bias=no_end(engine))
    assert result.text == LONG_PROMPT + plain.text
    ids = ids_of(engine, LONG_PROMPT)
    scored = result.logprobs[: len(ids)]
    assert "".join(token.chosen.token for token in scored) == LONG_PROMPT
    assert scored[0].chosen.logprob is None
    with torch.inference_mode():
        logprobs = reference(engine)(torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = [float(logprobs[place, token]) for place, token in enumerate(ids[1:])]
    assert [token.chosen.logprob for token in scored[1:]] == pytest.approx(expected, abs=1e-3)
    assert all(len(token.top) == 2 for token in scored[1:])


async def test_echo_alone(provider: TorchProvider, engine: TorchEngine) -> None:
    ids = tuple(ids_of(engine, PROMPT))
    result = await complete(provider, ids, echo=True, max_tokens=0)
    assert result.text == PROMPT
    assert result.complete.stop_reason == StopReason.out_of_tokens
    assert result.complete.usage.completion_tokens == 0


# Chat ---------------------------------------------------------------------------------------------


async def test_a_chat_is_what_the_template_writes(provider: TorchProvider) -> None:
    prompt = (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    result = await chat(
        provider,
        SystemMessage("Be brief.", role="developer"),
        UserMessage((TextContent("Hel"), TextContent("lo"))),
    )
    expected = await complete(provider, prompt)
    assert result.text == expected.text
    assert result.start.prompt_tokens == expected.start.prompt_tokens


async def test_a_chat_without_max_tokens_fills_the_context(
    provider: TorchProvider, engine: TorchEngine
) -> None:
    result = await chat(provider, max_tokens=None, logit_bias=no_end(engine))
    usage = result.complete.usage
    assert result.complete.stop_reason == StopReason.out_of_tokens
    assert usage.prompt_tokens + usage.completion_tokens == engine.model.context_length == 512


def test_tool_calls_are_rendered_as_templates_read_them() -> None:
    call = ToolCall("call_1", "add", {"a": 1}, '{"a": 1}')
    messages = [CompletionMessage.of(tool_calls=(call,)), ToolResponseMessage("call_1", "3")]
    function = {"name": "add", "arguments": {"a": 1}}
    assert render_messages(messages) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "3", "tool_call_id": "call_1", "name": "add"},
    ]


# What is refused ----------------------------------------------------------------------------------


async def refused(work: Any) -> APIError:
    with pytest.raises(APIError) as caught:
        await work
    assert caught.value.status == 400
    return caught.value


async def test_what_does_not_fit_is_refused(provider: TorchProvider, engine: TorchEngine) -> None:
    error = await refused(complete(provider, max_tokens=600))
    assert (error.code, error.param) == ("context_length_exceeded", "max_tokens")
    assert "512" in error.message
    error = await refused(complete(provider, "one two three " * 200, max_tokens=1))
    assert (error.code, error.param) == ("context_length_exceeded", "prompt")
    error = await refused(chat(provider, UserMessage("one two three " * 200), max_tokens=None))
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    ids = tuple(ids_of(engine, PROMPT))
    fits = await complete(provider, ids, max_tokens=512 - len(ids), logit_bias=no_end(engine))
    assert fits.complete.usage.completion_tokens == 512 - len(ids)


async def test_ids_that_the_model_does_not_have_are_refused(provider: TorchProvider) -> None:
    assert (await refused(complete(provider, (1, 100_000)))).param == "prompt"
    assert (await refused(complete(provider, logit_bias={100_000: 1.0}))).param == "logit_bias"


async def test_nothing_to_continue_is_refused(provider: TorchProvider) -> None:
    assert (await refused(complete(provider, ""))).param == "prompt"


async def test_images_are_refused(provider: TorchProvider) -> None:
    image = ImageContent("data:image/png;base64,AA==")
    error = await refused(chat(provider, UserMessage((TextContent("What is this?"), image))))
    assert error.param == "messages[0].content[1]"


async def test_a_template_that_objects(tmp_path: Path) -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    provider = await started(make_model(tmp_path, chat_template=template))
    error = await refused(chat(provider))
    assert error.param == "messages"
    assert "roles must alternate" in error.message
    await provider.stop()


async def test_a_model_without_a_chat_template(tmp_path: Path) -> None:
    provider = await started(make_model(tmp_path, chat_template=None))
    error = await refused(chat(provider))
    assert "chat template" in error.message
    assert (await complete(provider)).text
    await provider.stop()


# Turns, cancelling and failing --------------------------------------------------------------------


def endless(provider: TorchProvider, engine: TorchEngine) -> AsyncGenerator[StreamEvent, None]:
    """A generation that is still running when the test has done what it wants to do."""
    params = SamplingParams(GREEDY, max_tokens=500, logit_bias=no_end(engine))
    return provider.completion(CompletionRequest(engine.model.name, "a", params))


async def test_requests_share_steps(provider: TorchProvider, engine: TorchEngine) -> None:
    results = await asyncio.gather(*(complete(provider) for _ in range(5)))
    assert len({result.text for result in results}) == 1
    stats = engine.stats
    assert (stats.finished, stats.running, stats.waiting) == (5, 0, 0)
    assert stats.generated_tokens == sum(r.complete.usage.completion_tokens for r in results)
    computed = stats.prompt_tokens + stats.cached_tokens
    assert computed == sum(r.start.prompt_tokens for r in results)
    assert stats.steps < stats.generated_tokens


async def test_closing_stops_a_running_generation(
    provider: TorchProvider, engine: TorchEngine
) -> None:
    events = endless(provider, engine)
    seen = [await anext(events) for _ in range(3)]
    assert isinstance(seen[0], StreamStart)
    await events.aclose()
    await until(lambda: engine.stats.running == 0)
    assert engine.stats.cancelled == 1
    assert engine.stats.generated_tokens < 500
    assert (await complete(provider)).text


async def test_closing_takes_a_waiting_generation_out(folder: str) -> None:
    provider = await started(folder, max_sequences=1)
    engine = engine_of(provider)
    running, waiting = endless(provider, engine), endless(provider, engine)
    await anext(running)
    task = asyncio.ensure_future(anext(waiting))
    await until(lambda: engine.stats.waiting == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: (engine.stats.waiting, engine.stats.cancelled) == (0, 1))
    await running.aclose()
    await until(lambda: engine.stats.cancelled == 2)
    await provider.stop()


async def test_a_failing_model_fails_one_request_only(
    provider: TorchProvider,
    engine: TorchEngine,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a kernel failed")

    with monkeypatch.context() as patch:
        patch.setattr(engine.loaded.runner, "forward", fail)
        with pytest.raises(APIError) as caught:
            await complete(provider)
    assert caught.value.status == 500
    assert "kernel" not in caught.value.message
    assert "a kernel failed" in caplog.text
    assert (await complete(provider)).text
    assert (engine.stats.failed, engine.stats.finished) == (1, 1)


async def test_out_of_memory_says_so(
    provider: TorchProvider, engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with monkeypatch.context() as patch:
        patch.setattr(engine.loaded.runner, "forward", fail)
        with pytest.raises(APIError) as caught:
            await complete(provider)
    assert (caught.value.status, caught.value.code) == (503, "out_of_memory")
    assert (await complete(provider)).text


async def test_stopping_breaks_off_what_runs(folder: str) -> None:
    provider = await started(folder, max_sequences=1)
    engine = engine_of(provider)
    running, waiting = endless(provider, engine), endless(provider, engine)
    await anext(running)
    task = asyncio.ensure_future(anext(waiting))
    await until(lambda: engine.stats.waiting == 1)
    await provider.stop()
    with pytest.raises(APIError) as caught:
        async for _ in running:
            pass
    assert caught.value.code == "server_shutting_down"
    with pytest.raises(APIError):
        await task
    assert (engine.stats.running, engine.stats.waiting, engine.stats.cancelled) == (0, 0, 2)


# Another provider in its place --------------------------------------------------------------------


async def follower(provider: TorchProvider, *models: ProviderModel, **config: Any) -> TorchProvider:
    """A provider that has started in the place of `provider`."""
    settings = TorchConfig(**{"device": "cpu", "dtype": "float32", **config})
    other = TorchProvider("local", settings, models or provider.models)
    other.adopt(provider)
    await other.start()
    return other


async def test_a_model_that_would_be_loaded_alike_runs_on_with_what_it_is_doing(
    folder: str, tmp_path: Path
) -> None:
    provider = await started(folder)
    engine = engine_of(provider)
    running = endless(provider, engine)
    begun = await anext(running)
    another = ProviderModel(str(make_model(tmp_path / "another")))
    other = await follower(provider, *provider.models, another, unsupported="drop")
    assert other.engines[folder] is engine
    assert len(other.engines) == 2
    await provider.stop()
    result = Result([begun, *[event async for event in running]])
    assert result.complete.usage.completion_tokens == 500
    also_running = endless(other, engine)
    await anext(also_running)
    await also_running.aclose()
    await other.stop()
    assert not engine._thread.is_alive()


@pytest.mark.parametrize(
    ("config", "context_length"),
    [({"max_sequences": 3}, None), ({}, 20), ({"dtype": "bfloat16"}, None)],
)
async def test_what_would_be_loaded_otherwise_is_loaded(
    folder: str, config: dict[str, Any], context_length: int | None
) -> None:
    provider = await started(folder)
    other = await follower(provider, ProviderModel(folder, context_length), **config)
    assert engine_of(other) is not engine_of(provider)
    await provider.stop()
    await other.stop()


async def test_a_start_that_is_cancelled_leaves_no_engine_running(folder: str) -> None:
    provider = TorchProvider("local", TorchConfig(device="cpu"), [ProviderModel(folder)])
    opened: list[TorchEngine] = []
    opening = threading.Event()
    open_engine = provider._open_engine

    def noticed(name: str, context_length: int | None) -> Any:
        opening.set()
        opened.append(cast(TorchEngine, open_engine(name, context_length)))
        return opened[0]

    provider._open_engine = noticed  # type: ignore[method-assign]
    starting = asyncio.create_task(provider.start())
    await asyncio.to_thread(opening.wait)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await provider.stop()
    assert not opened[0]._thread.is_alive()


# Starting -----------------------------------------------------------------------------------------


def test_checking_a_template_loads_nothing_heavy() -> None:
    code = (
        "import sys; from providers.local.torch_engine.provider import TorchConfig;"
        "print({'torch', 'transformers', 'tokenizers', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "config", [{"device": "tpu"}, {"device": "cuda:x"}, {"dtype": "int4"}, {"threads": 0}]
)
def test_settings_that_make_no_sense(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(config))):
        TorchConfig(**config)


async def test_a_device_that_is_not_there(folder: str) -> None:
    with pytest.raises(ProviderStartError, match="device: cpu"):
        await started(folder, device="cuda:99")


def test_a_model_that_is_not_there_is_told_before_torch_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # so that to import it is an error
    absent = str(tmp_path / "absent")
    provider = TorchProvider("local", TorchConfig(device="cpu"), [ProviderModel(absent)])
    with pytest.raises(ProviderStartError, match="no model folder"):
        provider._open_engine(absent, None)


async def test_a_folder_without_weights(folder: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((Path(folder) / "config.json").read_text())
    with pytest.raises(ProviderStartError, match="can't be loaded"):
        await started(tmp_path)


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"]
)
@pytest.mark.parametrize("damage", ["torn", "empty", "of something else"])
async def test_a_damaged_file(folder: str, tmp_path: Path, name: str, damage: str) -> None:
    damaged = tmp_path / "model"
    shutil.copytree(folder, damaged)
    contents = (damaged / name).read_bytes()
    half = contents[: len(contents) // 2]
    other = b'{"version": "1.0", "model": {"type": "of something else"}}'
    (damaged / name).write_bytes({"torn": half, "empty": b""}.get(damage, other))
    if name == "generation_config.json" and damage == "of something else":
        await (await started(damaged)).stop()
        return
    with pytest.raises(ProviderStartError, match=f"{damaged} can't be loaded"):
        await started(damaged)


@pytest.mark.parametrize("kv_cache", [2, 100, 1e-12])
async def test_a_cache_with_room_for_nothing(folder: str, kv_cache: float) -> None:
    with pytest.raises(ProviderStartError, match="set a larger 'kv_cache'"):
        await started(folder, kv_cache=kv_cache)


def test_a_share_of_the_memory_and_a_number_of_bytes(folder: str) -> None:
    def blocks(kv_cache: float) -> int:
        config = TorchConfig(device="cpu", dtype="float32", kv_cache=kv_cache, max_sequences=2)
        return load("tiny", Path(folder), config).blocks.total

    everything = blocks(1)
    assert everything == blocks(0.5) == 2 * 512 // 16
    # Two layers with keys and values of two heads of 16 numbers.
    block = 16 * 2 * 2 * 2 * 16 * 4
    assert blocks(3 * block) == blocks(4 * block - 1) == 3


@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
def test_end_tokens_that_the_model_itself_names(folder: str, tmp_path: Path, where: str) -> None:
    shutil.copytree(folder, tmp_path / "model")
    for name in ("generation_config.json", "config.json"):
        file = tmp_path / "model" / name
        settings = json.loads(file.read_text())
        settings["eos_token_id"] = [7, 11] if name == where else None
        file.write_text(json.dumps(settings))
    stop_tokens = load("tiny", tmp_path / "model", TorchConfig(device="cpu")).model.stop_tokens
    assert {7, 11} < stop_tokens.keys()


def test_a_model_that_does_not_run(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no kernel image is available")

    loaded = load("tiny", Path(folder), TorchConfig(device="cpu"))
    monkeypatch.setattr(loaded.runner, "forward", fail)
    with pytest.raises(ProviderStartError, match="no kernel image"):
        TorchEngine(loaded).start()


async def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProviderStartError, match="llama-compat pull"):
        await started(tmp_path / "nothing")


async def test_the_templates_context_counts_where_it_is_less(folder: str) -> None:
    provider = TorchProvider("local", TorchConfig(device="cpu"), [ProviderModel(folder, 100)])
    assert provider.context_length(folder) == 100
    await provider.start()
    assert provider.context_length(folder) == 100
    request = CompletionRequest(folder, "Hello", SamplingParams(max_tokens=20), context_length=20)
    with pytest.raises(APIError, match="maximum context length is 20") as raised:
        [event async for event in provider.completion(request)]
    assert raised.value.code == "context_length_exceeded"
    await provider.stop()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
async def test_dtypes(folder: str, dtype: str) -> None:
    provider = await started(folder, dtype=dtype)
    engine = engine_of(provider)
    assert engine.loaded.dtype == getattr(torch, dtype)
    assert (await complete(provider)).text
    await provider.stop()


@pytest.mark.parametrize("kind", ["torch", "llama_cpp"])
def test_a_step_has_a_token_for_every_sequence(kind: str) -> None:
    """With fewer the last ones would wait for as long as there are others."""
    module = importlib.import_module(
        f"providers.local.{'torch' if kind == 'torch' else 'llama_cpp'}_engine.provider"
    )
    config = module.TorchConfig if kind == "torch" else module.LlamaCppConfig
    config(max_sequences=40, max_step_tokens=40)
    with pytest.raises(ValidationError, match="max_sequences") as caught:
        config(max_sequences=40, max_step_tokens=39)
    assert caught.value.errors()[0]["loc"] == ("max_step_tokens",)


async def test_more_sequences_than_a_step_usually_has_tokens(folder: str) -> None:
    provider = await started(folder, max_sequences=300)
    assert engine_of(provider).loaded.limits.tokens == 300
    await provider.stop()
