"""Prompts and long texts of embedders, in the words of a client."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.dialects.openai.operations import EMBEDDINGS
from llama_compat.errors import APIError
from llama_compat.exchange import Target
from tests.tiny_models import make_embedder
from tests.unit.calls import call_of
from tests.unit.providers.local.torch_engine.texts.test_embedder import running, states_of

PROMPTS = {
    "prompts": {"query": "add a: ", "passage": "return b: "},
    "default_prompt_name": None,
}
LONG = "fox dog lazy quick brown " * 200


def with_prompts(folder: Path, **options: Any) -> Path:
    make_embedder(folder, **options)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS))
    return folder


async def vectors(folder: Path, **members: Any) -> tuple[list[list[float]], int]:
    """What a client gets of OpenAI's embeddings, and for how many tokens."""
    async with running(folder) as provider:
        body = {"model": "m", "input": "fox", **members}
        reply = await provider.openai_embeddings(call_of(body, EMBEDDINGS), Target(str(folder)))
    assert isinstance(reply.body, bytes)
    found = json.loads(reply.body)
    return [each["embedding"] for each in found["data"]], found["usage"]["prompt_tokens"]


def mean_of(folder: Path, text: str) -> list[float]:
    mean = states_of(folder, text).mean(0)
    return (mean / mean.norm()).tolist()


@pytest.mark.parametrize(
    ("members", "prompt"),
    [
        ({}, ""),
        ({"prompt_name": "query"}, "add a: "),
        ({"input_type": "query"}, "add a: "),
        ({"input_type": "search_document"}, "return b: "),
        ({"task": "retrieval.passage"}, "return b: "),
    ],
)
async def test_whoever_asks_says_which_prompt(
    tmp_path: Path, members: dict[str, Any], prompt: str
) -> None:
    folder = with_prompts(tmp_path)
    [found], _ = await vectors(folder, **members)
    assert found == pytest.approx(mean_of(folder, f"{prompt}fox"), abs=1e-5)


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token", "lasttoken", "max_tokens"])
async def test_a_prompt_may_be_read_and_not_pooled(tmp_path: Path, pooling: str) -> None:
    folder = with_prompts(tmp_path, pooling=pooling, include_prompt=False)
    found, tokens = await vectors(folder, prompt_name="query", input=["fox", "lazy dog, a fox"])
    count = len(states_of(folder, "add a: "))
    for vector, text in zip(found, ("fox", "lazy dog, a fox"), strict=True):
        states = states_of(folder, f"add a: {text}")[count:]
        pooled = {
            "mean_tokens": states.mean(0),
            "cls_token": states[0],
            "lasttoken": states[-1],
            "max_tokens": states.amax(0),
        }[pooling]
        assert vector == pytest.approx((pooled / pooled.norm()).tolist(), abs=1e-5)
    assert tokens > 2 * count


@pytest.mark.parametrize(
    ("members", "kept"),
    [
        ({"truncate_prompt_tokens": -1}, slice(64)),
        ({"truncate": True}, slice(64)),
        ({"truncate": "END"}, slice(64)),
        ({"truncate": "start"}, slice(-64, None)),
        ({"truncate_prompt_tokens": 5}, slice(5)),
        ({"truncate_prompt_tokens": 5, "truncate": "START"}, slice(-5, None)),
        ({"truncate_prompt_tokens": 500}, slice(64)),
    ],
)
async def test_a_long_text_is_cut_where_that_is_asked_for(
    tmp_path: Path, members: dict[str, Any], kept: slice
) -> None:
    folder = make_embedder(tmp_path)
    words = LONG.split()[kept]
    [found], tokens = await vectors(folder, input=LONG, **members)
    assert tokens == len(words)
    assert found == pytest.approx(mean_of(folder, " ".join(words)), abs=1e-5)


@pytest.mark.parametrize("members", [{}, {"truncate": False}, {"truncate": "none"}])
async def test_otherwise_it_is_refused_and_named(tmp_path: Path, members: dict[str, Any]) -> None:
    folder = make_embedder(tmp_path)
    text = "fox " * 65
    with pytest.raises(APIError, match="Text 1 of 'input' has 65 tokens, more than the 64") as why:
        await vectors(folder, input=["fox", text], **members)
    assert (why.value.status, why.value.code) == (400, "context_length_exceeded")
    assert "'truncate_prompt_tokens': -1" in why.value.message


async def test_one_that_was_cut_changes_nothing_for_the_next(tmp_path: Path) -> None:
    folder = make_embedder(tmp_path)
    async with running(folder) as provider:

        async def ask(**members: Any) -> Any:
            body = {"model": "m", **members}
            return await provider.openai_embeddings(call_of(body, EMBEDDINGS), Target(str(folder)))

        await ask(input=LONG, truncate_prompt_tokens=3)
        reply = await ask(input="fox dog lazy quick")
        assert json.loads(reply.body)["usage"]["prompt_tokens"] == 4
        with pytest.raises(APIError, match="65 tokens"):
            await ask(input="fox " * 65)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"truncate": "MIDDLE"}, "truncate"),
        ({"truncate": 3}, "truncate"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": True}, "truncate_prompt_tokens"),
        ({"prompt_name": 3}, "prompt_name"),
        ({"prompt_name": "nope"}, "prompt_name"),
        ({"input_type": ["query"]}, "input_type"),
        ({"task": "nope"}, "input_type"),
    ],
)
async def test_mistakes(tmp_path: Path, members: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as raised:
        await vectors(make_embedder(tmp_path), **members)
    assert (raised.value.status, raised.value.param) == (400, param)


async def test_folders_of_later_versions_name_their_pooling_in_one_word(tmp_path: Path) -> None:
    folder = make_embedder(tmp_path)
    pooling = {"embedding_dimension": 32, "pooling_mode": "max", "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    [found], _ = await vectors(folder, input="lazy dog")
    largest = states_of(folder, "lazy dog").amax(0)
    assert found == pytest.approx((largest / largest.norm()).tolist(), abs=1e-5)


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode": ["cls", "mean"]},
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
    ],
)
async def test_several_poolings_stand_one_behind_the_other(
    tmp_path: Path, pooling: dict[str, Any]
) -> None:
    folder = make_embedder(tmp_path)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    [found], _ = await vectors(folder, input="lazy dog")
    states = states_of(folder, "lazy dog")
    both = torch.cat([states[0], states.mean(0)])
    assert found == pytest.approx((both / both.norm()).tolist(), abs=1e-5)
    with pytest.raises(APIError, match="have 64 numbers"):
        await vectors(folder, dimensions=65)


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken", "weightedmean"])
async def test_they_are_the_numbers_of_sentence_transformers(
    tmp_path: Path, pooling: str, include_prompt: bool
) -> None:
    made_by = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    folder = make_embedder(tmp_path)
    prompts = {"prompts": {"query": "add a: ", "document": "return b: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    settings = {
        "embedding_dimension": 32,
        "pooling_mode": pooling,
        "include_prompt": include_prompt,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12}))
    theirs = made_by.SentenceTransformer(str(folder), device="cpu")
    texts = ["fox", "lazy dog and a fox", LONG]
    for members, expected in (
        ({}, theirs.encode(texts)),
        ({"prompt_name": "query"}, theirs.encode(texts, prompt_name="query")),
        ({"input_type": "query"}, theirs.encode_query(texts)),
        ({"input_type": "document"}, theirs.encode_document(texts)),
    ):
        found, _ = await vectors(folder, input=texts, truncate_prompt_tokens=-1, **members)
        for ours, wanted in zip(found, expected.tolist(), strict=True):
            assert ours == pytest.approx(wanted, abs=1e-5)
