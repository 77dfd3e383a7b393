"""A model that is stopped leaves nothing behind that its memory waits for."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")

from llama_compat.types import ImageContent, UserMessage
from providers.base import ProviderModel
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.provider import LlamaCppProvider
from tests.tiny_ggufs import gguf_of
from tests.tiny_models import make_embedder, make_model, make_reranker
from tests.tiny_vision import data_url, make_vision_model, picture
from tests.unit.providers.local.torch_engine.asking import answer, started


async def opened(kind: str, folder: Path) -> Any:
    if kind == "torch":
        return await started(make_model(folder / "tiny"))
    if kind == "torch that sees":
        return await started(make_vision_model(folder / "tiny", "qwen2_5_vl"))
    pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
    gguf = gguf_of(make_model(folder / "tiny"), folder / "tiny.gguf")
    provider = LlamaCppProvider("local", LlamaCppConfig(threads=1), [ProviderModel(str(gguf))])
    await provider.start()
    return provider


@pytest.mark.parametrize("kind", ["torch", "torch that sees", "llama_cpp"])
async def test_no_garbage_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """That takes as long as there are objects, of which a server with torch has a million."""
    provider = await opened(kind, tmp_path)
    sees = kind == "torch that sees"
    image = (ImageContent(data_url(picture(30, 30))),) if sees else "What?"
    await answer(provider, UserMessage(image))
    gone = weakref.ref(next(iter(provider.engines.values())))
    looked: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda *_: looked.append("everywhere"))
    gc.disable()
    try:
        await provider.stop()
        assert gone() is None
    finally:
        gc.enable()
    assert looked == []


async def test_what_a_model_gives_is_told_once_it_was_loaded(tmp_path: Path) -> None:
    made = {
        "text": make_model(tmp_path / "generates"),
        "embeddings": make_embedder(tmp_path / "embeds"),
        "rerank": make_reranker(tmp_path / "ranks"),
    }
    for gives, folder in made.items():
        provider = await started(folder)
        try:
            assert provider.outputs(str(folder)) == (gives,)
            assert provider.inputs(str(folder)) == ("text",)
        finally:
            await provider.stop()
        assert provider.outputs(str(folder)) is None
