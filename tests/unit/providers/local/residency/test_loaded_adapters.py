from __future__ import annotations

import pytest

from llama_compat.errors import APIError
from llama_compat.types import SamplingParams
from llama_compat.wire.retry_after import retry_after
from providers.local.engine import Generation
from providers.local.residency.loaded_adapters import LoadedAdapters


def generation(adapter: str | None) -> Generation:
    return Generation((0,), SamplingParams(), 1, adapter=adapter)


def test_a_generation_has_the_adapter_that_it_names() -> None:
    adapters: LoadedAdapters[str] = LoadedAdapters("m")
    adapters.add("a", "numbers")
    assert list(adapters.sources) == ["a"]
    assert adapters.of(generation("a")) == "numbers"
    assert adapters.of(generation(None)) is None


def test_one_that_was_unloaded_meanwhile_can_be_asked_for_again() -> None:
    adapters: LoadedAdapters[str] = LoadedAdapters("m")
    adapters.add("a", "numbers")
    assert adapters.remove("a")
    assert not adapters.remove("a")
    assert list(adapters.sources) == []
    with pytest.raises(APIError, match="just been unloaded") as raised:
        adapters.of(generation("a"))
    assert raised.value.status == 503
    assert raised.value.code == "model_not_loaded"
    assert raised.value.headers == retry_after(1)
