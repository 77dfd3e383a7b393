"""Settings of models that share memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import Distribution, ModelStay, load_distribution
from llama_compat.distribution.problems import TemplateError
from llama_compat.distribution.residency import idle_seconds
from providers.registry import config_model
from routing.parts.providers import wanted_models

PROVIDERS = "providers: [{id: echo, type: 'local::echo'}]\n"


def loaded(tmp_path: Path, text: str) -> Distribution:
    path = tmp_path / "template.yaml"
    path.write_text(PROVIDERS + text)
    return load_distribution(str(path), config_model)


def test_memory_is_said_by_the_device(tmp_path: Path) -> None:
    text = "memory: {cpu: 12GB, cuda:0: 70GiB}\nmodels: [{id: a, provider: echo}]\n"
    found = loaded(tmp_path, text)
    assert found.memory == {"cpu": 12 * 10**9, "cuda:0": 70 * 2**30}


@pytest.mark.parametrize(
    ("keep", "stay"),
    [
        ("always", ModelStay("always", preload=True)),
        ("on_demand", ModelStay("on_demand")),
        ("idle 10m", ModelStay("idle 10m")),
    ],
)
def test_how_a_model_stays(tmp_path: Path, keep: str, stay: ModelStay) -> None:
    text = f"memory: {{cpu: 1GB}}\nmodels: [{{id: a, provider: echo, keep: {keep}}}]\n"
    [model] = loaded(tmp_path, text).models
    assert model.stay == stay
    assert idle_seconds(model.stay.keep) == (600 if keep == "idle 10m" else None)


def test_one_model_that_is_offered_twice_stays_as_long_as_either_wants(tmp_path: Path) -> None:
    def stay(one: str, other: str) -> Any:
        text = (
            "memory: {cpu: 1GB}\nmodels:\n"
            f"  - {{id: a, provider: echo, provider_model: m, {one}}}\n"
            f"  - {{id: b, provider: echo, provider_model: m, {other}}}\n"
        )
        [model] = wanted_models(loaded(tmp_path, text))["echo"]
        return model.stay

    assert stay("keep: idle 1m", "keep: idle 5m") == ModelStay("idle 5m")
    assert stay("keep: idle 1m", "park: true") == ModelStay("on_demand", park=True)
    assert stay("keep: always", "keep: idle 5m") == ModelStay("always", preload=True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("memory: {cpu: 12GB}\nmodels: [{id: a, provider: echo, keep: idle}]\n", "idle 10m"),
        ("memory: {cpu: 12GB}\nmodels: [{id: a, provider: echo, keep: idle soon}]\n", "idle 10m"),
        ("memory: {cpu: much}\nmodels: [{id: a, provider: echo}]\n", "memory.cpu"),
        ("memory: {gpu: 12GB}\nmodels: [{id: a, provider: echo}]\n", "gpu"),
        ("memory: {}\nmodels: [{id: a, provider: echo}]\n", "memory"),
        ("models: [{id: a, provider: echo, keep: always}]\n", "add 'memory: {cpu: 12GB}'"),
        ("models: [{id: a, provider: echo, preload: true}]\n", "add 'memory: {cpu: 12GB}'"),
        ("models: [{id: a, provider: echo, park: true}]\n", "add 'memory: {cpu: 12GB}'"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_place(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(TemplateError) as caught:
        loaded(tmp_path, text)
    assert problem in str(caught.value)
    assert ":2" in str(caught.value) or ":3" in str(caught.value)
