"""A model of Ollama's library in llama.cpp: pulled by its name, run with its parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")
pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")

from llama_compat.dialects.openai.parameters import parse_sampling
from providers.local.llama_cpp_engine import loader
from providers.local.models.store import pull
from tests.tiny_ggufs import gguf_of
from tests.tiny_models import make_speaking_model
from tests.unit.providers.local.llama_cpp_engine.test_provider import chat, running, tried
from tests.unit.providers.local.models.sources.test_ollama import MODEL, Registry, registry, store

__all__ = ["registry", "store", "tried"]

PARAMS = "application/vnd.ollama.image.params"


@pytest.fixture
def pulled(
    registry: Registry,
    tmp_path: Path,
    tried: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    monkeypatch.setattr(loader, "try_out", tried)
    folder = make_speaking_model(tmp_path / "speaks", ["one", "two", "stop", "three"])
    gguf = gguf_of(folder, tmp_path / "speaks.gguf")
    params = {"temperature": 0, "stop": ["stop"], "num_ctx": 256}
    registry.layers = [(MODEL, gguf.read_bytes()), (PARAMS, json.dumps(params).encode())]
    pull("ollama:llama3.2:1b", lambda step, done=0, total=None: None)
    return "ollama:llama3.2:1b"


async def test_it_says_what_it_says_with_the_parameters_of_its_makers(pulled: str) -> None:
    async with running(pulled) as provider:
        assert provider.context_length(pulled) == 256
        [engine] = provider.engines.values()
        assert engine.model.context_length == 256
        said = await chat(provider, sampling=parse_sampling({"max_tokens": 40}))
        assert said.completion_message.content == "onetwo"
        # A request's own word goes before.
        said = await chat(provider, sampling=parse_sampling({"max_tokens": 40, "stop": "three"}))
        assert said.completion_message.content == "onetwostop"


async def test_a_template_s_context_goes_before_that_of_its_makers(pulled: str) -> None:
    async with running(pulled, context_length=128) as provider:
        assert provider.context_length(pulled) == 128
