"""`local::torch` with cross-encoders: a query and documents in, their order out."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.dialects.rerank.operations import RERANK
from llama_compat.errors import APIError
from llama_compat.exchange import Target
from llama_compat.types import EmbeddingRequest, RerankRequest
from providers.base import ProviderStartError
from providers.local.torch_engine.kinds import is_reranker
from providers.local.torch_engine.texts.reranker import TorchReranker
from tests.tiny_models import make_embedder, make_reranker
from tests.unit.calls import call_of
from tests.unit.providers.local.torch_engine.texts.test_embedder import running

QUERY = "quick fox"
DOCUMENTS = ("The quick brown fox", "a", "def add(a, b): return a + b " * 2, "lazy dog")

KIND = pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "modernbert"])


def relevances(folder: Path, query: str, documents: tuple[str, ...]) -> list[float]:
    """What transformers makes of each pair by itself."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind = transformers.AutoModelForSequenceClassification
    model = kind.from_pretrained(folder).eval()
    found = []
    with torch.inference_mode():
        for document in documents:
            pair = tokenizer(query, document, return_tensors="pt")
            found.append(torch.sigmoid(model(**pair).logits[0, 0]).item())
    return found


def asked(folder: Path, **more: Any) -> RerankRequest:
    return RerankRequest(**{"model": str(folder), "query": QUERY, "documents": DOCUMENTS, **more})


@KIND
async def test_documents_are_ranked_as_transformers_scores_them(tmp_path: Path, kind: str) -> None:
    folder = make_reranker(tmp_path, kind)
    expected = relevances(folder, QUERY, DOCUMENTS)
    assert len(set(expected)) == len(expected)
    async with running(folder) as provider:
        response = await provider.rerank(asked(folder))
        first = await provider.rerank(asked(folder, top_n=1))
    order = sorted(range(len(DOCUMENTS)), key=lambda place: -expected[place])
    assert [each.index for each in response.results] == order
    for each in response.results:
        assert each.relevance_score == pytest.approx(expected[each.index], abs=1e-5)
    assert first.results == response.results[:1]
    assert response.usage.prompt_tokens > len(DOCUMENTS) * 4


@KIND
async def test_a_long_document_is_cut_and_fills_the_model(tmp_path: Path, kind: str) -> None:
    folder = make_reranker(tmp_path, kind)
    long = "fox " * 2000
    async with running(folder) as provider:
        reranker = provider.rerankers[str(folder)]
        assert isinstance(reranker, TorchReranker)
        held = reranker.loaded.max_tokens
        cut = await provider.rerank(asked(folder, documents=(long,)))
        assert cut.usage.prompt_tokens == held
        short = await provider.rerank(asked(folder, documents=(long,), max_document_tokens=3))
        assert short.usage.prompt_tokens < 12
        for request, param in (
            (asked(folder, documents=("a", long), truncate=False), "documents"),
            (asked(folder, query=long), "query"),
            (asked(folder, query="fox " * held), "query"),
        ):
            with pytest.raises(APIError) as raised:
                await provider.rerank(request)
            assert (raised.value.status, raised.value.param) == (400, param)
    assert held == (64 if kind in ("bert", "modernbert") else 64 - reranker.loaded.padding - 1)


async def test_the_call_of_a_client(tmp_path: Path) -> None:
    folder = make_reranker(tmp_path)
    asks = {"query": QUERY, "documents": list(DOCUMENTS), "return_documents": True}
    call = call_of(asks, RERANK)
    async with running(folder) as provider:
        reply = await provider.openai_rerank(call, Target(str(folder)))
        with pytest.raises(APIError, match="does not support embeddings"):
            await provider.embed(EmbeddingRequest(str(folder), ("a",)))
    assert isinstance(reply.body, bytes)
    body = json.loads(reply.body)
    assert body["model"] == "public"
    for result in body["results"]:
        assert result["document"] == {"text": DOCUMENTS[result["index"]]}
    assert reply.usage is not None
    assert body["usage"]["total_tokens"] == reply.usage.prompt_tokens


async def test_who_goes_away_is_not_served_any_further(tmp_path: Path) -> None:
    folder = make_reranker(tmp_path)
    async with running(folder, max_waiting=2) as provider:
        many = asked(folder, documents=DOCUMENTS * 2000)
        task = asyncio.create_task(provider.rerank(many))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await provider.rerank(asked(folder))).results
        stats = provider.engine_stats()[str(folder)]
        assert (stats.waiting, stats.finished) == (0, 1) or stats.finished == 2
        assert stats.prompt_tokens < 10_000


async def test_too_many_wait(tmp_path: Path) -> None:
    folder = make_reranker(tmp_path)
    async with running(folder, max_waiting=1) as provider:
        first = asyncio.create_task(provider.rerank(asked(folder, documents=DOCUMENTS * 200)))
        await asyncio.sleep(0)
        with pytest.raises(APIError) as raised:
            await provider.rerank(asked(folder))
        assert raised.value.status == 429
        await first


async def test_an_embedder_does_not_rank(tmp_path: Path) -> None:
    folder = make_embedder(tmp_path)
    async with running(folder) as provider:
        with pytest.raises(
            APIError, match=r"does not support rerank with the model .* Choose another model\."
        ):
            await provider.rerank(asked(folder))


def test_what_is_a_reranker(tmp_path: Path) -> None:
    for name, labels in (("one", 1), ("two", 2), ("three", 3)):
        assert is_reranker(make_reranker(tmp_path / name, labels=labels)) == (labels == 1)
    assert not is_reranker(make_embedder(tmp_path / "embedder"))
    assert not is_reranker(tmp_path)


async def test_a_damaged_folder_says_what_to_do(tmp_path: Path) -> None:
    folder = make_reranker(tmp_path)
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ProviderStartError, match=r"reranking model .* can't be loaded"):
        async with running(folder):
            pass
