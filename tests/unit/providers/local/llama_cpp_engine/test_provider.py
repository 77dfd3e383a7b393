"""`local::llama_cpp`: requests, files that are broken, adapters, embeddings."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")
pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
jsonschema = pytest.importorskip("jsonschema", reason="needs the extra 'dev'")

import numpy as np
import torch
import transformers
from pydantic import ValidationError
from safetensors.numpy import load_file, save_file

from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    GreedySamplingStrategy,
    Guide,
    ResponseFormat,
    SamplingParams,
    StopReason,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    UserMessage,
)
from providers.base import ProviderModel, ProviderStartError
from providers.local import memory
from providers.local.llama_cpp_engine import loader, trial
from providers.local.llama_cpp_engine.bindings.model import Model
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.embedder import batches
from providers.local.llama_cpp_engine.provider import LlamaCppProvider
from providers.local.models.store import resolve_gguf
from tests.tiny_ggufs import gguf_of, lora_of
from tests.tiny_models import make_model, make_speaking_model
from tests.unit.providers.local.engines import tried_once

GREEDY = GreedySamplingStrategy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=2048)


@pytest.fixture(scope="module")
def gguf(folder: Path) -> Path:
    return gguf_of(folder, folder.with_suffix(".gguf"))


@asynccontextmanager
async def running(
    path: Path | str, context_length: int | None = None, **config: Any
) -> AsyncIterator[LlamaCppProvider]:
    settings = LlamaCppConfig(**{"threads": 1, "tool_format": "hermes", **config})
    models = [ProviderModel(str(path), context_length)]
    provider = LlamaCppProvider("local", settings, models)
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


@pytest.fixture(scope="module")
def tried() -> Callable[..., bool]:
    return tried_once()


@pytest.fixture
async def provider(
    gguf: Path, tried: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LlamaCppProvider]:
    """One of the tiny model, whose trial is remembered: what trials see has tests of its own."""
    monkeypatch.setattr(loader, "try_out", tried)
    async with running(gguf) as one:
        yield one


async def complete(provider: LlamaCppProvider, prompt: Any, **options: Any) -> Any:
    [model] = provider.engines
    sampling = {"strategy": GREEDY, "max_tokens": 24}
    others = {name: options.pop(name) for name in ("logprobs", "echo") if name in options}
    request = CompletionRequest(model, prompt, SamplingParams(**{**sampling, **options}), **others)
    collector = Collector()
    async for event in provider.completion(request):
        collector.add(event)
    return collector.completion()


async def chat(provider: LlamaCppProvider, text: str = "Hello", **options: Any) -> Any:
    [model] = provider.engines
    sampling = options.pop("sampling", SamplingParams(GREEDY, max_tokens=60))
    request = ChatCompletionRequest(model, (UserMessage(text),), sampling, **options)
    collector = Collector()
    async for event in provider.chat_completion(request):
        collector.add(event)
    return collector.chat_completion()


def hub_tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


# Texts and tokens ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox",
        "Größe, naïve café 日本語 👩‍👩‍👧  two  spaces\n\n\ttab",
        "<|im_start|>user\nHi<|im_end|>",
        "a\0b",
        "",
    ],
)
async def test_tokens_are_those_of_the_hub_s_tokenizer(
    provider: LlamaCppProvider, folder: Path, text: str
) -> None:
    [engine] = provider.engines.values()
    ids = engine.model.tokenizer.encode(text, add_special_tokens=False)
    assert list(ids) == hub_tokenizer(folder)(text, add_special_tokens=False).input_ids
    vocabulary = engine.model.vocabulary
    special = [id for id in ids if vocabulary.is_special(id)]
    assert vocabulary.decode(ids, special) == text
    detokenizer = vocabulary.detokenizer((), frozenset(special))
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == text


async def test_what_is_no_text_is_known(provider: LlamaCppProvider) -> None:
    [engine] = provider.engines.values()
    tokenizer = engine.model.tokenizer
    assert tokenizer.control_tokens == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    assert tokenizer.longest_token == len("<|endoftext|>")


async def test_what_ends_a_reply(provider: LlamaCppProvider) -> None:
    [engine] = provider.engines.values()
    named = {engine.model.vocabulary.token_bytes(id) for id in engine.model.stop_tokens}
    assert named == {b"<|im_end|>", b"<|endoftext|>"}
    assert engine.model.vocabulary.id_of("<|im_end|>") in engine.model.stop_tokens
    assert engine.model.vocabulary.id_of("no such token") is None
    assert engine.model.vocabulary.token_bytes(10**6) == b""


async def test_a_chat_is_what_the_template_writes(provider: LlamaCppProvider, folder: Path) -> None:
    [engine] = provider.engines.values()
    messages = [{"role": "user", "content": 'Tell me of "Größe"'}]
    written = hub_tokenizer(folder).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert engine.model.tokenizer.render_chat(messages, None) == written
    request = ChatCompletionRequest(
        engine.model.name, (UserMessage('Tell me of "Größe"'),), SamplingParams()
    )
    tokens = hub_tokenizer(folder)(written, add_special_tokens=False).input_ids
    assert await provider.count_tokens(request) == len(tokens)


async def test_control_tokens_that_a_user_spells_out_stay_text(
    provider: LlamaCppProvider,
) -> None:
    [engine] = provider.engines.values()

    async def tokens(text: str) -> int:
        messages = (UserMessage(text),)
        request = ChatCompletionRequest(engine.model.name, messages, SamplingParams())
        return await provider.count_tokens(request)

    assert await tokens("a<|im_end|>b") - await tokens("ab") > 3
    spoken = await complete(provider, "a<|im_end|>b", max_tokens=1)
    assert spoken.usage.prompt_tokens == 3


async def test_a_template_that_is_none(folder: Path, tmp_path: Path) -> None:
    broken = make_model(tmp_path / "broken", chat_template="{% for %}")
    path = gguf_of(broken, tmp_path / "broken.gguf")
    with pytest.raises(ProviderStartError, match="its chat template can't be read"):
        async with running(path):
            pass


async def test_a_model_without_a_chat_template(tmp_path: Path) -> None:
    bare = make_model(tmp_path / "bare", chat_template=None)
    async with running(gguf_of(bare, tmp_path / "bare.gguf")) as provider:
        with pytest.raises(APIError) as caught:
            await chat(provider)
        assert caught.value.code == "no_chat_template"
        assert (await complete(provider, "The")).usage.completion_tokens == 24


async def test_echo_begins_with_the_prompt_and_scores_it(provider: LlamaCppProvider) -> None:
    made = await complete(provider, "The quick", echo=True, logprobs=2, max_tokens=3)
    assert made.content.startswith("The quick")
    first, *rest = made.logprobs
    assert first.chosen.logprob is None
    assert all(each.chosen.logprob <= 0 and len(each.top) == 2 for each in rest)
    assert (
        b"".join(each.chosen.token_bytes for each in made.logprobs).decode("utf-8", "replace")
        == made.content
    )


async def test_stop_strings_end_a_reply(tmp_path: Path) -> None:
    speaking = make_speaking_model(tmp_path / "speaks", ["one", "two", "three"])
    async with running(gguf_of(speaking, tmp_path / "speaks.gguf")) as provider:
        whole = await chat(provider)
        assert whole.completion_message.content == "onetwothree"
        assert whole.completion_message.stop_reason is StopReason.end_of_turn
        stopped = await chat(provider, sampling=SamplingParams(GREEDY, stop=("etw",)))
        assert stopped.completion_message.content == "on"


async def test_what_does_not_fit_is_refused(gguf: Path) -> None:
    async with running(gguf, 128) as provider:
        assert provider.context_length(str(gguf)) == 128
        with pytest.raises(APIError) as caught:
            await complete(provider, tuple([5] * 120), max_tokens=9)
        assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
        assert (await complete(provider, tuple([5] * 120), max_tokens=8)).usage.prompt_tokens == 120


# Structured output and tools ----------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "sunny": {"type": "boolean"},
    },
    "required": ["city", "days", "sunny"],
    "additionalProperties": False,
}


async def test_a_schema_is_enforced(provider: LlamaCppProvider) -> None:
    for seed in range(4):
        said = await chat(
            provider,
            sampling=SamplingParams(max_tokens=200, seed=seed),
            response_format=ResponseFormat("json_schema", "trip", SCHEMA),
        )
        jsonschema.validate(json.loads(said.completion_message.content), SCHEMA)


async def test_a_schema_that_is_none_is_refused_where_the_client_wrote_it(
    provider: LlamaCppProvider,
) -> None:
    wanted = ResponseFormat("json_schema", "trip", {"type": "smell"}, path="text.format.schema")
    with pytest.raises(APIError, match=r"^'text\.format\.schema' can't be enforced") as caught:
        await chat(provider, response_format=wanted)
    assert caught.value.param == "text.format.schema"


@pytest.mark.parametrize(
    ("guide", "matches"),
    [
        (Guide("choice", ["left", "right"], "guided_choice"), "left|right"),
        (Guide("regex", "[a-c]{3}-[0-9]{2}", "guided_regex"), "[a-c]{3}-[0-9]{2}"),
    ],
)
async def test_a_guide_is_enforced(provider: LlamaCppProvider, guide: Guide, matches: str) -> None:
    import re

    made = await complete(provider, "Go", guide=guide, strategy=GREEDY)
    assert re.fullmatch(matches, made.content)
    assert made.stop_reason is StopReason.end_of_turn


async def test_a_tool_that_has_to_be_called_is(provider: LlamaCppProvider) -> None:
    tools = (ToolDefinition("plan", "Plan a trip", SCHEMA), ToolDefinition("stop"))
    for choice, names in ((ToolChoice("required"), {"plan", "stop"}), (None, None)):
        said = await chat(provider, tools=tools, tool_choice=choice)
        if names is None:
            continue
        [call] = said.completion_message.tool_calls
        assert isinstance(call, ToolCall)
        assert call.tool_name in names
    named = await chat(
        provider,
        tools=tools,
        tool_choice=ToolChoice("required", "plan"),
        sampling=SamplingParams(max_tokens=300, seed=1),
    )
    [call] = named.completion_message.tool_calls
    jsonschema.validate(call.arguments, SCHEMA)


async def test_a_call_is_read_from_the_reply(tmp_path: Path) -> None:
    call = [
        "<tool_call>",
        '{"name": "plan", "arguments": ',
        '{"city": "Rome"}',
        "}",
        "</tool_call>",
    ]
    speaking = make_speaking_model(
        tmp_path / "calls", call, special=("<tool_call>", "</tool_call>")
    )
    async with running(gguf_of(speaking, tmp_path / "calls.gguf")) as provider:
        said = await chat(provider, tools=(ToolDefinition("plan", None, SCHEMA),))
    [made] = said.completion_message.tool_calls
    assert (made.tool_name, made.arguments) == ("plan", {"city": "Rome"})


# Files that are broken ----------------------------------------------------------------------------


async def fails_to_start(path: Path, **config: Any) -> str:
    with pytest.raises(ProviderStartError) as caught:
        async with running(path, **config):
            pass
    return str(caught.value)


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    said = await fails_to_start(tmp_path / "none.gguf")
    assert said.startswith(f"There is no GGUF file at {tmp_path}/none.gguf: give the path of one")


@pytest.mark.parametrize("size", [0, 3, 24, 500, 20_000, -1])
def test_a_truncated_file(gguf: Path, tmp_path: Path, size: int) -> None:
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(gguf.read_bytes()[:size])
    said = asyncio.run(fails_to_start(torn))
    assert said.startswith(f"The model '{torn}' can't be loaded from {torn}: ")
    assert said.endswith("Pull it again, or name another file in the template.")
    assert "\n" not in said
    assert "does not say why" not in said


def test_no_header_ends_this_process(gguf: Path, tmp_path: Path) -> None:
    """Some of them end the process that tries them; what loads there has to load here."""
    data = gguf.read_bytes()
    header = data.index(b"token_embd.weight")
    chosen = random.Random(11)
    path = tmp_path / "fuzzed.gguf"
    refused = []

    async def starts() -> None:
        async with running(path):
            pass

    for _ in range(12):
        fuzzed = bytearray(data)
        for _ in range(chosen.choice([1, 3, 20])):
            fuzzed[chosen.randrange(4, header + 400)] = chosen.choice([0, 1, 0x7F, 0xFF, 0x80])
        path.write_bytes(fuzzed)
        try:
            asyncio.run(starts())
        except ProviderStartError as error:
            refused.append(str(error))
    assert refused
    assert all(str(path) in said and "\n" not in said for said in refused)


async def test_a_header_that_ends_the_process_that_tries_it(folder: Path, tmp_path: Path) -> None:
    path = gguf_of(folder, tmp_path / "odd.gguf", EMBEDDING_LENGTH=63)
    with pytest.raises(ProviderStartError, match="can't be loaded from"):
        await asyncio.to_thread(trial.try_out, "odd", path, [], 1)


DIES = """
import ctypes
from providers.local.llama_cpp_engine.bindings.context import Context
from providers.local.llama_cpp_engine.bindings.model import Model

def made(self, path, *, repacked=True, _made=Model.__init__, **options):
    _made(self, path, repacked=repacked, **options)
    self.repacked = repacked

def decode(self, tokens, _decode=Context.decode):
    if {when}:
        {dies}
    return _decode(self, tokens)

Model.__init__, Context.decode = made, decode
"""
"""Read by Python as it starts: the trial's process computes on another CPU, so to speak."""


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the process of a trial die, `when` something holds of `self` and `tokens`."""

    def prepare(when: str, dies: str = "ctypes.string_at(0)") -> None:
        (tmp_path / "sitecustomize.py").write_text(DIES.format(when=when, dies=dies))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return prepare


@pytest.mark.parametrize(
    ("when", "doing"),
    [
        ("tokens > 32", "computing a prompt of 40 tokens"),
        ("tokens == 2", "computing a batch of two sequences"),
        ("tokens == 1", "computing one token"),
    ],
)
async def test_a_cpu_on_which_computing_ends_the_process(
    gguf: Path, dying: Callable[..., None], when: str, doing: str
) -> None:
    dying(when)
    said = await fails_to_start(gguf)
    assert f"its process died of SIGSEGV; the last that it said is: {doing}. The file may" in said
    assert "compile llama.cpp anew, with 'python scripts/llama_cpp_wheel.py'" in said
    assert "\n" not in said


async def test_weights_rewritten_for_a_cpu_that_end_the_process_are_not_used(
    gguf: Path, dying: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """What AMX does where a compiler broke it: it is one of the ways of rewriting them."""
    async with running(gguf) as provider:
        wanted = (await complete(provider, "The quick", ignore_eos=True)).content
    dying("self.model.repacked")
    made: list[bool] = []
    plain = Model.__init__

    def noted(self: Any, *args: Any, repacked: bool = True, **options: Any) -> None:
        made.append(repacked)
        plain(self, *args, repacked=repacked, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "__init__", noted)
        async with running(gguf) as provider:
            assert (await complete(provider, "The quick", ignore_eos=True)).content == wanted
    assert made == [False]
    assert "runs with its weights as they are in its file, which is slower" in caplog.text
    assert "died of SIGSEGV; the last that it said is: computing a prompt" in caplog.text


async def test_a_build_for_another_kind_of_cpu(gguf: Path, dying: Callable[..., None]) -> None:
    dying("True", "import signal; signal.raise_signal(signal.SIGILL)")
    said = await fails_to_start(gguf)
    assert "llama.cpp was compiled for another kind of CPU than this: compile it here" in said


async def test_what_is_for_a_gpu_is_not_copied_into_memory(
    gguf: Path, dying: Callable[..., None]
) -> None:
    dying("self.model.repacked")
    assert await asyncio.to_thread(trial.try_out, "x", gguf, [], 1, on_gpu=True)
    dying("not self.model.repacked")
    with pytest.raises(ProviderStartError, match="died of SIGSEGV"):
        await asyncio.to_thread(trial.try_out, "x", gguf, [], 1, on_gpu=True)


async def test_weights_that_are_no_numbers(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "nan")
    weights = load_file(tmp_path / "nan/model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"][3, 5] = np.nan
    save_file(weights, tmp_path / "nan/model.safetensors")
    said = await fails_to_start(gguf_of(tmp_path / "nan", tmp_path / "nan.gguf"))
    assert "what it makes of a prompt of 40 tokens is not a number (NaN or infinite)." in said


HEADERS: list[tuple[str, bytes, bytes, str]] = [
    ("magic", b"GGUF", b"GGUX", "invalid magic characters: 'GGUX', expected 'GGUF'."),
    ("version", b"GGUF\3", b"GGUF\x09", "this GGUF file is version 9 but this software only"),
    (
        "architecture",
        b"general.architecture",
        b"general.architectura",
        "unknown model architecture: ''.",
    ),
    (
        "key",
        b"llama.block_count",
        b"llama.block_xount",
        "key not found in model: llama.block_count.",
    ),
    (
        "tensor",
        b"blk.1.attn_q.weight",
        b"blk.1.attn_x.weight",
        "tensor 'blk.1.attn_q.weight' not found.",
    ),
    ("vocabulary", b"gpt-2", b"gpt-9", "unknown pre-tokenizer type: 'gpt-9'."),
]


@pytest.mark.parametrize(("name", "old", "new", "why"), HEADERS, ids=[row[0] for row in HEADERS])
def test_a_damaged_header_is_refused_with_what_llama_cpp_says(
    gguf: Path, tmp_path: Path, name: str, old: bytes, new: bytes, why: str
) -> None:
    path = tmp_path / f"{name}.gguf"
    data = gguf.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    said = asyncio.run(fails_to_start(path))
    assert said.startswith(f"The model '{path}' can't be loaded from {path}: {why}")


async def test_a_context_that_memory_has_no_room_for(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "available_memory", lambda: 100_000)
    with pytest.raises(ProviderStartError) as caught:
        async with running(gguf, 2048):
            pass
    assert "The context of 2048 tokens of the model" in str(caught.value)
    assert "Set a smaller 'context_length'" in str(caught.value)
    said = await fails_to_start(gguf, kv_cache=200_000)
    assert "set a smaller 'kv_cache' in the template" in said
    # Unasked for, the context is as long as there is room.
    monkeypatch.setattr(loader, "available_memory", lambda: 2**20)
    async with running(gguf) as provider:
        assert provider.context_length(str(gguf)) == 2**20 // 2 // 256


async def test_memory_is_that_of_the_machine_or_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    machine = memory.available_memory()
    assert machine is not None
    assert machine > 2**26
    for name, text in (
        ("memory.max", "5000000\n"),
        ("memory.current", "4000000\n"),
        ("memory.stat", "anon 1\ninactive_file 500000\n"),
    ):
        (tmp_path / name).write_text(text)
    assert memory.available_memory() == 1_500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() > 2**26


# Settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [{"max_sequences": 257}, {"n_gpu_layers": -2}, {"kv_cache": 0}, {"lora": [{"scale": 1}]}],
)
def test_settings_that_make_no_sense(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LlamaCppConfig(**config)


async def test_a_lora_adapter(gguf: Path, tmp_path: Path) -> None:
    adapter = lora_of(tmp_path / "lora.gguf", layers=2, size=64, strength=5.0)

    async def said(**config: Any) -> str:
        async with running(gguf, **config) as provider:
            return str((await complete(provider, "The quick", ignore_eos=True)).content)

    plain = await said()
    assert await said(lora=[{"path": adapter, "scale": 0.0}]) == plain
    assert await said(lora=[{"path": adapter}]) != plain
    missing = await fails_to_start(gguf, lora=[{"path": tmp_path / "none.gguf"}])
    assert "finds no LoRA adapter at" in missing
    assert "can't be loaded" in await fails_to_start(gguf, lora=[{"path": gguf}])


# Embeddings ---------------------------------------------------------------------------------------

TEXTS = ["The quick brown fox", "jumps over", "the lazy dog. " * 30, "x"]


async def test_embeddings_are_the_mean_of_the_model_s_states(folder: Path, tmp_path: Path) -> None:
    path = gguf_of(folder, tmp_path / "embeds.gguf", pooling=1)
    tokenizer = hub_tokenizer(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    async with running(path) as provider:
        made = await provider.embed(EmbeddingRequest(str(path), tuple(TEXTS)))
        cut = await provider.embed(EmbeddingRequest(str(path), tuple(TEXTS), dimensions=16))
        tokens = 0
        for text, vector, short in zip(TEXTS, made.vectors, cut.vectors, strict=True):
            ids = tokenizer(text, return_tensors="pt").input_ids
            tokens += ids.shape[1]
            with torch.no_grad():
                mean = model(ids).last_hidden_state[0].mean(0)
            expected = (mean / mean.norm()).tolist()
            assert vector == pytest.approx(expected, abs=2e-2)
            shorter = mean[:16] / mean[:16].norm()
            assert short == pytest.approx(shorter.tolist(), abs=2e-2)
            assert np.linalg.norm(short) == pytest.approx(1)
        assert made.prompt_tokens == tokens
        few, last = ("the lazy dog." * 30)[:60], "x"
        ids = tokenizer(f"{few}{last}").input_ids
        for end, kept in (("end", ids[:7]), ("start", ids[-7:])):
            short_of = EmbeddingRequest(
                str(path), (f"{few}{last}",), truncate=cast(Any, end), max_tokens=7
            )
            found = await provider.embed(short_of)
            assert found.prompt_tokens == 7
            with torch.no_grad():
                mean = model(torch.tensor([kept])).last_hidden_state[0].mean(0)
            assert found.vectors[0] == pytest.approx((mean / mean.norm()).tolist(), abs=2e-2)
        whole = EmbeddingRequest(str(path), ("x " * 10**6,), truncate="end")
        assert (await provider.embed(whole)).prompt_tokens == 2048
        for request, param in (
            (EmbeddingRequest(str(path), ("x",), dimensions=65), "dimensions"),
            (EmbeddingRequest(str(path), ("x " * 5000,)), "input"),
            # Too long by its length alone.
            (EmbeddingRequest(str(path), ("x" * 10**7,)), "input"),
        ):
            with pytest.raises(APIError) as caught:
                await provider.embed(request)
            assert (caught.value.status, caught.value.param) == (400, param)
        with pytest.raises(APIError, match="does not support generating"):
            provider._engine(str(path))


async def test_a_generating_model_does_not_embed(provider: LlamaCppProvider) -> None:
    [model] = provider.engines
    with pytest.raises(APIError, match="does not support embeddings"):
        await provider.embed(EmbeddingRequest(model, ("x",)))


async def test_a_model_that_ranks_is_refused(folder: Path, tmp_path: Path) -> None:
    path = gguf_of(folder, tmp_path / "ranks.gguf", pooling=4)
    said = await fails_to_start(path)
    assert "ranks" in said or "can't be" in said


@pytest.mark.parametrize(
    ("lengths", "made"),
    [
        ([], []),
        ([5], [[0]]),
        ([5, 5, 1], [[0, 1], [2]]),
        ([1] * 7, [[0, 1, 2], [3, 4, 5], [6]]),
        ([9, 2, 8, 2], [[0], [1, 2], [3]]),
    ],
)
def test_texts_are_computed_together(lengths: list[int], made: list[list[int]]) -> None:
    assert batches(lengths, tokens=10, texts=3) == made


# The starter, beside llama-cpp-python's own class -------------------------------------------------

QUESTIONS = [
    *("The capital of France is", "Once upon a time", "def fibonacci(n):", "1, 2, 3, 4,"),
    *("SELECT * FROM", "Dear Sir or Madam,", "A haiku about rain:", "E = mc"),
]


async def test_greedy_text_is_that_of_create_completion() -> None:
    path = resolve_gguf("starter.gguf")
    from llama_cpp import Llama

    theirs = Llama(
        str(path), n_ctx=256, n_batch=128, n_threads=1, n_threads_batch=1, verbose=False,
        flash_attn=True, logits_all=False,
    )  # fmt: skip
    expected = []
    for question in QUESTIONS:
        theirs.reset()
        made = theirs.create_completion(question, max_tokens=16, temperature=0)
        expected.append(made["choices"][0]["text"])
    theirs.close()
    async with running("starter.gguf", 256) as provider:
        for question, text in zip(QUESTIONS, expected, strict=True):
            assert (await complete(provider, question, max_tokens=16)).content == text
        together = await asyncio.gather(
            *(
                complete(provider, question, max_tokens=16, logprobs=2, cache_salt=question)
                for question in QUESTIONS
            )
        )
    for made, text in zip(together, expected, strict=True):
        same = 0
        for each in made.logprobs:
            (_, first), (_, second) = ((t.token, t.logprob) for t in each.top)
            if first - second < 0.5:  # what rounding activations to 8 bits may do in a batch
                break
            same += len(each.chosen.token)
        assert made.content[:same] == text[:same]
