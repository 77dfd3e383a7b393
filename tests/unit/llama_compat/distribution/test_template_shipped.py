from __future__ import annotations

import os
import re
from datetime import date

import pytest

from llama_compat.catalog import Catalog
from llama_compat.catalog.warnings import DAYS, warnings_of
from llama_compat.distribution import list_templates, load_distribution
from llama_compat.distribution.problems import TemplateError
from providers.registry import config_model
from providers.remote.openai.vendors import VENDORS
from tests.documents import ROOT

NAMES = [name for name, _ in list_templates()]

REQUIRED = {"openai": "OPENAI_API_KEY", "passthrough": "PASSTHROUGH_URL"}
"""The variable without which a template can't be used."""


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.endswith(("_KEY", "_TOKEN", "_URL", "_MS", "_ENDPOINT")):
            monkeypatch.delenv(name)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("PASSTHROUGH_URL", "http://localhost:9000/v1")


def test_which_templates_ship() -> None:
    assert NAMES == [
        "echo",
        "native",
        "openai",
        "passthrough",
        "resilient",
        "starter",
        "starter-llama-cpp",
        "vendors",
        "vllm",
    ]


def test_each_has_a_description() -> None:
    for name, description in list_templates():
        assert 20 < len(description) <= 62, name  # one line of a terminal


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("name", NAMES)
def test_each_loads(name: str) -> None:
    distribution = load_distribution(name, config_model)
    assert (distribution.server.host, distribution.server.port) == ("127.0.0.1", 8321)
    for provider in distribution.providers:
        assert isinstance(provider.config, config_model(provider.type).model)


@pytest.mark.parametrize("name", NAMES)
def test_what_each_needs_from_the_environment(name: str) -> None:
    if name not in REQUIRED:
        load_distribution(name, config_model)
        return
    with pytest.raises(TemplateError) as raised:
        load_distribution(name, config_model)
    (problem,) = raised.value.problems
    assert f"the environment variable {REQUIRED[name]} is not set" in problem.message
    assert problem.line is not None


def test_starter_offers_the_starter_model() -> None:
    distribution = load_distribution("starter", config_model)
    (model,) = distribution.models
    assert (model.id, model.provider_model) == ("SmolLM2-135M-Instruct", "starter")
    assert model.aliases == ["starter"]
    assert distribution.providers[0].type == "local::torch"


@pytest.mark.usefixtures("environment")
def test_openai_has_its_key_from_the_environment() -> None:
    (provider,) = load_distribution("openai", config_model).providers
    assert provider.config.api_key.get_secret_value() == "sk-test"


def test_vllm_has_a_default_address(monkeypatch: pytest.MonkeyPatch) -> None:
    (provider,) = load_distribution("vllm", config_model).providers
    assert provider.config.base_url == "http://localhost:8000/v1"
    monkeypatch.setenv("VLLM_URL", "http://gpu-box:9000/v1")
    (provider,) = load_distribution("vllm", config_model).providers
    assert provider.config.base_url == "http://gpu-box:9000/v1"


def test_vendors_shows_every_vendor() -> None:
    distribution = load_distribution("vendors", config_model)
    assert {provider.type for provider in distribution.providers} == set(VENDORS)
    unlisted = {each.type for each in distribution.providers if each.config.models != "discover"}
    assert unlisted == UNLISTED


UNLISTED = {
    "remote::bedrock",
    "remote::cloudflare",
    "remote::cohere",
    "remote::databricks",
    "remote::jina",
    "remote::voyage",
}
"""Vendors that document no list of models in OpenAI's form: a template names what it wants."""


def test_vendors_keys_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor in VENDORS.values():
        if vendor.key_variable:
            monkeypatch.setenv(vendor.key_variable, f"key of {vendor.name}")
    for provider in load_distribution("vendors", config_model).providers:
        vendor = VENDORS[provider.type]
        if vendor.key_variable:
            assert provider.config.api_key.get_secret_value() == f"key of {vendor.name}"


def released() -> date:
    """The date of the newest entry of the changelog: what ships is as of then."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    dates = re.findall(r"^## \[\d[^\]]*\] - (\d{4}-\d{2}-\d{2})$", changelog, re.MULTILINE)
    return max(map(date.fromisoformat, dates))


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("name", NAMES)
def test_none_names_a_model_that_ends_soon(name: str) -> None:
    distribution = load_distribution(name, config_model)
    catalog = Catalog.of(distribution)
    targets = [each for model in distribution.models for each in distribution.targets_of(model)]
    ending = {
        each.model: facts.shutdown
        for each in targets
        if (facts := catalog.target_facts(each.provider, each.model)).ends_within(DAYS, released())
    }
    assert ending == {}


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("name", NAMES)
def test_there_is_nothing_to_warn_of(name: str) -> None:
    distribution = load_distribution(name, config_model)
    assert list(warnings_of(distribution, Catalog.of(distribution), released())) == []


@pytest.mark.usefixtures("environment")
def test_each_model_of_a_vendor_s_is_known() -> None:
    for name in ("openai", "resilient"):
        distribution = load_distribution(name, config_model)
        catalog = Catalog.of(distribution)
        for model in distribution.models:
            for each in distribution.targets_of(model):
                if each.provider != "torch":
                    assert catalog.target_facts(each.provider, each.model).context, each
