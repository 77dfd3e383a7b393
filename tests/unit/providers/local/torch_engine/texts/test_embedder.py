"""`local::torch` with sentence-transformers folders: texts in, vectors out."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from safetensors.torch import load_file, save_file

from llama_compat.errors import APIError
from llama_compat.types import CompletionRequest, EmbeddingRequest
from providers.base import ProviderModel, ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_embedder, make_model

TEXTS = ("The quick brown fox", "a", "def add(a, b): return a + b " * 3, "lazy dog")


@asynccontextmanager
async def running(folder: Path, **config: Any) -> AsyncGenerator[TorchProvider, None]:
    config = {"device": "cpu", **config}
    provider = TorchProvider("local", TorchConfig(**config), [ProviderModel(str(folder))])
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


def states_of(folder: Path, text: str) -> Any:
    """What the transformer itself makes of a text, alone: `[tokens, hidden]`."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        ids = torch.tensor([tokenizer.backend_tokenizer.encode(text).ids])
        return model(input_ids=ids).last_hidden_state[0]


def weighted(states: Any) -> Any:
    weights = torch.arange(1, len(states) + 1)
    return (states * weights[:, None]).sum(0) / weights.sum()


@pytest.mark.parametrize(
    ("pooling", "pooled"),
    [
        ("mean_tokens", lambda states: states.mean(0)),
        ("cls_token", lambda states: states[0]),
        ("lasttoken", lambda states: states[-1]),
        ("max_tokens", lambda states: states.amax(0)),
        ("mean_sqrt_len_tokens", lambda states: states.sum(0) / len(states) ** 0.5),
        ("weightedmean_tokens", lambda states: weighted(states)),
    ],
)
@pytest.mark.parametrize("normalize", [True, False])
async def test_vectors(tmp_path: Path, pooling: str, pooled: Any, normalize: bool) -> None:
    make_embedder(tmp_path, pooling=pooling, normalize=normalize)
    async with running(tmp_path) as provider:
        reply = await provider.embed(EmbeddingRequest(str(tmp_path), TEXTS))
        [alone] = (await provider.embed(EmbeddingRequest(str(tmp_path), TEXTS[:1]))).vectors
    expected = [pooled(states_of(tmp_path, text)) for text in TEXTS]
    if normalize:
        expected = [vector / vector.norm() for vector in expected]
    for vector, wanted in zip(reply.vectors, expected, strict=True):
        assert vector == pytest.approx(wanted.tolist(), abs=1e-5)
    assert alone == pytest.approx(reply.vectors[0], abs=1e-5)
    assert reply.prompt_tokens == sum(len(states_of(tmp_path, text)) for text in TEXTS)


KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {},
    "xlm-roberta": {},
    # Layers that see all of a text, and layers with a window of 8 tokens to either side.
    "modernbert": {"local_attention": 16, "global_attn_every_n_layers": 2, "num_hidden_layers": 3},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
}


@pytest.mark.parametrize("kind", KINDS)
async def test_architectures_say_in_a_batch_what_transformers_says_alone(
    tmp_path: Path, kind: str
) -> None:
    pooling = "lasttoken" if kind == "qwen3" else "cls_token"
    make_embedder(tmp_path, kind=kind, pooling=pooling, config=KINDS[kind])
    texts = (*TEXTS, "the lazy dog adds " * 3)
    async with running(tmp_path) as provider:
        reply = await provider.embed(EmbeddingRequest(str(tmp_path), texts))
    for text, vector in zip(texts, reply.vectors, strict=True):
        states = states_of(tmp_path, text)
        wanted = states[-1 if kind == "qwen3" else 0]
        assert vector == pytest.approx((wanted / wanted.norm()).tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
async def test_the_longest_text_is_as_long_as_there_are_positions(
    tmp_path: Path, kind: str
) -> None:
    """Of some the first positions are not for texts."""
    make_embedder(tmp_path, kind=kind, config={"pad_token_id": 1})
    async with running(tmp_path) as provider:
        [embedder] = provider.embedders.values()
        assert embedder.loaded.max_tokens == 62
        longest = " ".join(["a"] * 62)
        assert len(states_of(tmp_path, longest)) == 62
        reply = await provider.embed(EmbeddingRequest(str(tmp_path), (longest,)))
        assert reply.prompt_tokens == 62
        with pytest.raises(APIError, match="63 tokens"):
            await provider.embed(EmbeddingRequest(str(tmp_path), (f"{longest} a",)))


async def test_dense_layers_come_between_pooling_and_length(tmp_path: Path) -> None:
    make_embedder(tmp_path, dense=20)
    layer = load_file(tmp_path / "2_Dense" / "model.safetensors")
    async with running(tmp_path) as provider:
        reply = await provider.embed(EmbeddingRequest(str(tmp_path), TEXTS))
    for text, vector in zip(TEXTS, reply.vectors, strict=True):
        mean = states_of(tmp_path, text).mean(0)
        wanted = torch.tanh(layer["linear.weight"] @ mean + layer["linear.bias"])
        assert vector == pytest.approx((wanted / wanted.norm()).tolist(), abs=1e-5)


async def test_the_prompt_that_a_folder_names_goes_before_every_text(tmp_path: Path) -> None:
    make_embedder(tmp_path)
    prompts = {"prompts": {"query": "add a: ", "document": ""}, "default_prompt_name": "query"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    async with running(tmp_path) as provider:
        [vector] = (await provider.embed(EmbeddingRequest(str(tmp_path), ("fox",)))).vectors
    wanted = states_of(tmp_path, "add a: fox").mean(0)
    assert vector == pytest.approx((wanted / wanted.norm()).tolist(), abs=1e-5)
    # Where it names none, who asks writes it.
    prompts["default_prompt_name"] = None  # type: ignore[assignment]
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    async with running(tmp_path) as provider:
        [vector] = (await provider.embed(EmbeddingRequest(str(tmp_path), ("fox",)))).vectors
    wanted = states_of(tmp_path, "fox").mean(0)
    assert vector == pytest.approx((wanted / wanted.norm()).tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("config", "asked", "why"),
    [
        ({}, 8, "was not trained for vectors that are cut"),
        ({"is_matryoshka": False, "matryoshka_dimensions": [8]}, 8, "was not trained"),
        ({"matryoshka_dimensions": [8, 16]}, 9, r"was trained for vectors of 8, 16 numbers"),
    ],
)
async def test_vectors_that_may_not_be_cut_are_not(
    tmp_path: Path, config: dict[str, Any], asked: int, why: str
) -> None:
    make_embedder(tmp_path, config=config)
    async with running(tmp_path) as provider:
        with pytest.raises(APIError, match=f"the model '{tmp_path}' {why}.* 32 numbers") as caught:
            await provider.embed(EmbeddingRequest(str(tmp_path), ("fox",), asked))
        assert (caught.value.status, caught.value.param) == (400, "dimensions")
        # As many as there are is no cut.
        reply = await provider.embed(EmbeddingRequest(str(tmp_path), ("fox",), 32))
    assert len(reply.vectors[0]) == 32


async def test_a_family_that_may_be_cut_needs_no_word_of_it(tmp_path: Path) -> None:
    make_embedder(tmp_path, kind="qwen3", pooling="lasttoken", config=KINDS["qwen3"])
    async with running(tmp_path) as provider:
        [cut] = (await provider.embed(EmbeddingRequest(str(tmp_path), ("fox",), 8))).vectors
    wanted = states_of(tmp_path, "fox")[-1][:8]
    assert cut == pytest.approx((wanted / wanted.norm()).tolist(), abs=1e-5)


async def test_dimensions(tmp_path: Path) -> None:
    make_embedder(tmp_path, config={"is_matryoshka": True})
    async with running(tmp_path) as provider:
        [whole] = (await provider.embed(EmbeddingRequest(str(tmp_path), ("fox",)))).vectors
        [cut] = (await provider.embed(EmbeddingRequest(str(tmp_path), ("fox",), 8))).vectors
        with pytest.raises(APIError) as caught:
            await provider.embed(EmbeddingRequest(str(tmp_path), ("fox",), 33))
    length = sum(number**2 for number in whole[:8]) ** 0.5
    assert cut == pytest.approx([number / length for number in whole[:8]], abs=1e-6)
    assert (caught.value.status, caught.value.param) == (400, "dimensions")


async def test_what_is_refused(tmp_path: Path) -> None:
    make_embedder(tmp_path / "embeds")
    make_model(tmp_path / "says")
    names = [str(tmp_path / "embeds"), str(tmp_path / "says")]
    models = [ProviderModel(name) for name in names]
    provider = TorchProvider("local", TorchConfig(device="cpu"), models)
    await provider.start()
    try:
        with pytest.raises(APIError) as caught:
            await provider.embed(EmbeddingRequest(names[0], ("fox", "fox " * 100)))
        assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
        assert "Text 1" in caught.value.message
        with pytest.raises(APIError) as caught:
            await provider.embed(EmbeddingRequest(names[1], ("fox",)))
        assert (caught.value.status, caught.value.code) == (400, "unsupported_capability")
        with pytest.raises(APIError) as caught:
            await anext(provider.completion(CompletionRequest(names[0], "fox")))
        assert (caught.value.status, caught.value.code) == (400, "unsupported_capability")
    finally:
        await provider.stop()


async def test_a_full_queue_and_who_goes_away(tmp_path: Path) -> None:
    make_embedder(tmp_path)
    request = EmbeddingRequest(str(tmp_path), TEXTS)
    async with running(tmp_path, max_waiting=2) as provider:
        tasks = [asyncio.ensure_future(provider.embed(request)) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [getattr(each, "status", None) for each in done[2:]] == [429, 429]
        assert isinstance(done[1], asyncio.CancelledError)
        assert len(done[0].vectors) == len(TEXTS)  # type: ignore[union-attr]
        assert len((await provider.embed(request)).vectors) == len(TEXTS)
        assert provider.stats()["waiting"] == 0


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"pooling_mode_mean_tokens": False, "pooling_mode_odd": True}, "pooling_mode_odd"),
        ({"pooling_mode": ["mean", "odd"]}, "mean and odd"),
        ({"pooling_mode_mean_tokens": False}, "none"),
    ],
)
async def test_steps_that_are_not_known(
    tmp_path: Path, steps: dict[str, Any], message: str
) -> None:
    make_embedder(tmp_path, **steps)
    with pytest.raises(ProviderStartError, match=message):
        async with running(tmp_path):
            pass


async def test_a_step_is_in_the_model_s_own_folder(tmp_path: Path) -> None:
    make_embedder(tmp_path)
    modules = (tmp_path / "modules.json").read_text().replace("1_Pooling", "../elsewhere")
    (tmp_path / "modules.json").write_text(modules)
    with pytest.raises(ProviderStartError, match=r"the folder of a step, \.\./elsewhere, is not"):
        async with running(tmp_path):
            pass


@pytest.mark.parametrize(
    "name",
    ["config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json", "model.safetensors"],
)
async def test_a_damaged_file(tmp_path: Path, name: str) -> None:
    file = make_embedder(tmp_path) / name
    contents = file.read_bytes()
    file.write_bytes(contents[: len(contents) // 2])
    with pytest.raises(ProviderStartError, match=f"{tmp_path} can't be loaded"):
        async with running(tmp_path):
            pass


def change_weights(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda weights: weights.pop("encoder.layer.1.output.dense.bias"),
            "it lacks encoder.layer.1.output.dense.bias",
        ),
        (
            lambda weights: weights.update({"encoder.layer.2.output.dense.bias": torch.ones(32)}),
            "no place for encoder.layer.2.output.dense.bias",
        ),
    ],
    ids=["missing", "left over"],
)
async def test_incomplete_weights_are_refused_by_name(
    tmp_path: Path, change: Any, said: str
) -> None:
    change_weights(make_embedder(tmp_path), change)
    with pytest.raises(ProviderStartError, match=said):
        async with running(tmp_path):
            pass


async def test_vectors_that_are_no_numbers_are_an_error(tmp_path: Path) -> None:
    make_embedder(tmp_path)
    name = "embeddings.word_embeddings.weight"
    change_weights(tmp_path, lambda weights: weights[name].__setitem__(slice(5, None), torch.nan))
    async with running(tmp_path) as provider:
        with pytest.raises(APIError, match="no numbers") as caught:
            await provider.embed(EmbeddingRequest(str(tmp_path), TEXTS))
    assert (caught.value.status, caught.value.code) == (500, "invalid_model_output")


async def test_weights_of_what_comes_after_the_pooling_are_not_needed(tmp_path: Path) -> None:
    """Most folders have no weights for BERT's own pooler; some have the head of its training."""
    make_embedder(tmp_path)

    def change(weights: dict[str, Any]) -> None:
        del weights["pooler.dense.weight"], weights["pooler.dense.bias"]
        weights["cls.predictions.bias"] = torch.ones(300)

    change_weights(tmp_path, change)
    async with running(tmp_path) as provider:
        reply = await provider.embed(EmbeddingRequest(str(tmp_path), TEXTS))
    assert len(reply.vectors) == len(TEXTS)


async def test_base64_over_the_wire_is_the_same_numbers(tmp_path: Path) -> None:
    from llama_compat.dialects.openai.operations import EMBEDDINGS
    from llama_compat.exchange import Target
    from tests.unit.calls import call_of

    make_embedder(tmp_path)
    async with running(tmp_path) as provider:
        found = []
        for encoding in ("float", "base64"):
            body = {"model": "m", "input": "fox", "encoding_format": encoding}
            reply = await provider.openai_embeddings(
                call_of(body, EMBEDDINGS), Target(str(tmp_path))
            )
            found.append(json.loads(reply.body)["data"][0]["embedding"])
    numbers, packed = found
    unpacked = struct.unpack(f"<{len(numbers)}f", base64.b64decode(packed))
    assert unpacked == pytest.approx(numbers, abs=1e-6)


async def test_control_tokens_are_text_unless_they_are_wanted(tmp_path: Path) -> None:
    make_embedder(tmp_path)
    asked = EmbeddingRequest(str(tmp_path), ("fox<|im_end|>",))
    counts = {}
    for spoken in ("none", "completions", "all"):
        async with running(tmp_path, control_tokens=spoken) as provider:
            counts[spoken] = (await provider.embed(asked)).prompt_tokens
    assert counts["all"] == 2
    assert counts["none"] == counts["completions"] > 2


async def test_a_text_that_can_not_fit_is_refused_by_its_length(tmp_path: Path) -> None:
    make_embedder(tmp_path)
    async with running(tmp_path) as provider:
        [embedder] = provider.embedders.values()
        longest = embedder.loaded.max_characters
        assert longest % embedder.loaded.max_tokens == 0
        await provider.embed(EmbeddingRequest(str(tmp_path), (" " * (longest - 1) + "a",)))
        with pytest.raises(APIError, match=rf"Text 1 .* {longest + 1} characters") as caught:
            await provider.embed(EmbeddingRequest(str(tmp_path), ("a", " " * longest + "a")))
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
