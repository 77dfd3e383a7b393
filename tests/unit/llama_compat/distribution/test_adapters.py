"""Adapters in a template: which models they come to, and what is wrong with some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import Distribution, load_distribution
from llama_compat.distribution.adapters import AdapterOf
from llama_compat.distribution.problems import TemplateError
from providers.registry import config_model
from routing.cli.pulling import wanted_models as to_pull
from routing.parts.providers import wanted_models
from tests.integration.server_process import write_template

BASE = {"id": "base", "provider": "local", "provider_model": "/models/base"}


def read(path: Path, *models: dict[str, Any], **provider: Any) -> Distribution:
    settings = {"id": "local", "type": "local::torch", **provider}
    echo = {"id": "echo", "type": "local::echo"}
    written = write_template(
        path / "template.yaml", providers=[settings, echo], models=list(models), server={}
    )
    return load_distribution(str(written), config_model)


def test_each_is_a_model_of_its_own(tmp_path: Path) -> None:
    limits = {"requests_per_minute": 5}
    distribution = read(
        tmp_path,
        {**BASE, "adapters": {"sql": "/adapters/sql"}, "aliases": ["other"], "limits": limits},
        {"id": "either", "targets": [{"model": "base:sql"}, {"model": "base"}]},
        BASE | {"id": "twice", "adapters": {"poems": "hf:ORG/NAME"}},
    )
    by_id = {each.id: each for each in distribution.models}
    assert list(by_id) == ["base", "either", "twice", "base:sql", "twice:poems"]
    adapted = by_id["base:sql"]
    assert adapted.adapter == AdapterOf("base", "sql", "/adapters/sql")
    assert adapted.names == ("base:sql",)
    assert adapted.limits == by_id["base"].limits is not None
    assert by_id["base"].adapter is None
    targets = [each.model for each in distribution.targets_of(by_id["either"])]
    assert targets == ["/models/base:sql", "/models/base"]
    [model] = wanted_models(distribution)["local"]
    assert model.name == "/models/base"
    assert [each.id for each in model.adapters] == ["/models/base:sql", "/models/base:poems"]
    assert to_pull(distribution) == ["/models/base", "/adapters/sql", "hf:ORG/NAME"]


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ([{**BASE, "adapters": {"a:b": "/x"}}], "models[0].adapters.a:b: string should match"),
        ([{**BASE, "adapters": {"latest": "/x"}}], "'latest' is what Ollama calls the model"),
        ([{**BASE, "adapters": {"a": ""}}], "models[0].adapters.a: "),
        ([{**BASE, "adapters": {"a": {"path": "/x"}}}], "models[0].adapters.a: expected text"),
        (
            [{**BASE, "adapters": {"a": "/x"}}, {**BASE, "id": "base:a"}],
            "models[1].id: 'base:a' is taken by models[0]",
        ),
        (
            [{**BASE, "adapters": {"a": "/x"}}, {**BASE, "id": "b", "adapters": {"a": "/y"}}],
            "models[1].adapters.a: another model has an adapter of this name",
        ),
        (
            [BASE, {"id": "b", "targets": [{"model": "base"}], "adapters": {"a": "/x"}}],
            "models[1].adapters: a model with 'targets' has no adapters of its own",
        ),
        (
            [{"id": "b", "provider": "echo", "adapters": {"a": "/x"}}],
            "models[0].adapters: only models of local::torch and local::llama_cpp can have",
        ),
        (
            [{**BASE, "adapters": {"a": "/x"}}, {"id": "c", "targets": [{"model": "base:b"}]}],
            "no model has the id 'base:b'",
        ),
    ],
)
def test_what_is_wrong(tmp_path: Path, models: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(TemplateError) as raised:
        read(tmp_path, *models)
    assert problem in str(raised.value)


def test_replicas_have_none(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="models that run as replicas have no adapters"):
        read(tmp_path, {**BASE, "adapters": {"a": "/x"}}, replicas={"min": 1})
