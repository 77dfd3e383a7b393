"""Ollama's own list of what is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from llama_compat.types import ModelInfo
from providers.local.residency.resident import Whereabouts
from routing.ingress.apis import ollama


@dataclass(eq=False)
class Loaded:
    """A model in memory."""

    sizes: dict[str, int]

    def snapshot(self) -> Any:
        return SimpleNamespace(state=Whereabouts.ready, sizes=self.sizes, expires_seconds=None)


class Engine:
    """Models by name, the adapted ones after a colon."""

    id = "own"

    def __init__(self) -> None:
        self.loaded = {name: Loaded({"cuda:0": 7, "cpu": 1}) for name in ("base", "other")}

    def stats(self) -> dict[str, int]:
        return {"running": 0}

    def is_adapted(self, model: str) -> bool:
        return ":" in model

    def has_adapter(self, model: str) -> bool:
        return not model.endswith(":gone")

    def resident(self, model: str) -> Any:
        return self.loaded.get(model.partition(":")[0])


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        (["base"], [8]),
        (["base", "base:a", "base:b"], [8, 0, 0]),
        (["base:a", "base", "other"], [0, 8, 8]),
        (["base:gone", "base:a", "base:b", "other:a"], [8, 0, 8]),
        (["alone", "base:a"], [0, 8]),
    ],
)
async def test_a_model_and_its_adapters_are_in_memory_once(
    monkeypatch: pytest.MonkeyPatch, names: list[str], sizes: list[int]
) -> None:
    engine = Engine()

    async def list_models(request: Any) -> list[ModelInfo]:
        return [ModelInfo(id=name, created=0, owned_by="own") for name in names]

    async def seen(name: str, principal: Any) -> Any:
        return SimpleNamespace(provider=engine, target=SimpleNamespace(model=name))

    runtime = SimpleNamespace(providers={"own": engine}, models=SimpleNamespace(seen=seen))
    monkeypatch.setattr(ollama, "runtime_of", lambda request: runtime)
    monkeypatch.setattr(ollama, "list_models", list_models)
    listed = (await ollama.running(SimpleNamespace(scope={"principal": None})))["models"]
    assert [each["size"] for each in listed] == sizes
    assert [each["size_vram"] for each in listed] == [7 if size else 0 for size in sizes]
