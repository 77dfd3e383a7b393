"""The settings of replicas, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llama_compat.distribution import ReplicaSettings, ScaleSettings, load_distribution
from llama_compat.distribution.problems import TemplateError
from providers.registry import config_model


def load(folder: Path, provider: dict[str, Any], **sections: Any) -> Any:
    path = folder / "template.yaml"
    model = {"id": "m", "provider": "p", **sections.pop("model", {})}
    told = {"version": 1, "providers": [{"id": "p", **provider}], "models": [model], **sections}
    path.write_text(yaml.safe_dump(told))
    return load_distribution(str(path), config_model)


ECHO = {"type": "local::echo", "replicas": {"min": 2}}


def test_a_local_provider_may_have_replicas(tmp_path: Path) -> None:
    loaded = load(tmp_path, ECHO, scale={"ray": "auto", "keep": True})
    assert loaded.has_replicas
    assert loaded.providers[0].replicas == ReplicaSettings(min=2)
    assert loaded.scale == ScaleSettings(ray="auto", keep=True)


def test_there_may_be_as_many_as_there_have_to_be_but_one_at_least() -> None:
    assert [ReplicaSettings(min=each).most for each in (0, 1, 3)] == [1, 1, 3]
    assert ReplicaSettings(min=1, max=8).most == 8


def test_a_balance_is_between_replicas_too(tmp_path: Path) -> None:
    model = {"routing": {"balance": "prefix"}}
    assert load(tmp_path, ECHO, model=model).models[0].routing.balance == "prefix"
    with pytest.raises(TemplateError, match="needs a second target"):
        load(tmp_path, {"type": "local::echo"}, model=model)


@pytest.mark.parametrize(
    ("provider", "sections", "told"),
    [
        (
            {"type": "remote::openai", "replicas": {}},
            {},
            "only a local provider .* has replicas",
        ),
        ({**ECHO, "replicas": {"min": 3, "max": 2}}, {}, "'max' .2. is less than 'min' .3."),
        ({**ECHO, "replicas": {"maximum": 2}}, {}, "maximum"),
        (ECHO, {"scale": {"ray": "http://x:8265"}}, "address of a Ray cluster"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, provider: dict[str, Any], sections: dict[str, Any], told: str
) -> None:
    with pytest.raises(TemplateError, match=told):
        load(tmp_path, provider, **sections)
